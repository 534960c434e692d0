"""kbroker with a Python thread that never rests: what the data plane feels of it is what the GIL costs."""

import sys
import threading

from kbroker.cli import main


def spin() -> None:
    number = 0
    while True:
        number = (number * 31 + 7) % 1_000_003


if __name__ == "__main__":
    threading.Thread(target=spin, daemon=True).start()
    sys.exit(main())
