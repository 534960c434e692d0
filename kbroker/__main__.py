"""The `kbroker` command, which `python -m kbroker` runs too."""

from __future__ import annotations

import sys


def run() -> None:
    """Runs the command line. Ctrl-C while click and the commands are imported ends the process without a traceback."""
    try:
        from kbroker.cli import main

        main(prog_name="kbroker")
    except KeyboardInterrupt:
        sys.exit(1)


if __name__ == "__main__":
    run()
