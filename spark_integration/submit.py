"""For spark-submit, which takes a file: `spark-submit --master … --jars … spark_integration/submit.py run --drain`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from spark_integration.pipeline.__main__ import main

if __name__ == "__main__":
    main()
