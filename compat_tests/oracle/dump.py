"""kafka-dump-log, and what in its answer is a complaint: it says so in words, and exits with 0 all the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from compat_tests.oracle.tools import run_tool

_COMPLAINTS = re.compile(
    r"mismatch|corrupt|invalid|not ?valid|found log segment|isvalid: false|exception|error", re.IGNORECASE
)
_AT_ONCE = 400  # names on one command line


def complaints(files: Sequence[Path], *options: str) -> list[str]:
    """What Kafka's tool finds wrong with these files; a file that it does not mention is wrong, too."""
    found: list[str] = []
    for first in range(0, len(files), _AT_ONCE):
        some = files[first : first + _AT_ONCE]
        result = run_tool("kafka-dump-log", *options, "--files", ",".join(str(path) for path in some))
        if result.exit_code != 0:
            found.append(f"exit code {result.exit_code}: {result.err.strip()[-1000:]}")
        found += [line for line in result.lines if _COMPLAINTS.search(line.replace("isvalid: true", ""))]
        found += [f"{path} was not dumped" for path in some if f"Dumping {path}" not in result.out]
    return found
