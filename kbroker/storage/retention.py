"""Old segments leave the logs of a broker: renamed at once, removed when their topic's file.delete.delay.ms is over.

Which ones are old is the log's decision (`_core/log/retention`); here is who is asked, and what becomes of the files.
`*.deleted` files that a stop or a crash leaves are removed when their log is opened again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from kbroker._core.log.partition_log import PartitionLog
from kbroker.storage.turns import Turns

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
DELETED = ".deleted"

Key = tuple[str, int]


class Retired(NamedTuple):
    """What one log let go."""

    key: Key
    log_start_offset: int
    base_offsets: list[int]
    delay_ms: int
    directory: str

    def files(self) -> list[Path]:
        return [
            Path(self.directory, f"{base:020d}{suffix}{DELETED}") for base in self.base_offsets for suffix in SUFFIXES
        ]


def retire(
    logs: Mapping[Key, PartitionLog], keys: Iterable[Key], turns: Turns
) -> tuple[list[Retired], dict[Key, OSError]]:
    """Asks each log for what may go; what went, and the logs that failed. One that fails does not keep the others.

    A log that is being compacted is asked the next time.
    """
    retired: list[Retired] = []
    failed: dict[Key, OSError] = {}
    for key in keys:
        log = logs.get(key)
        if log is None:  # deleted meanwhile
            continue
        try:
            with turns.at(key) as mine:
                bases = log.retire() if mine else []
        except OSError as problem:
            failed[key] = problem
        else:
            if bases:
                retired.append(Retired(key, log.log_start_offset, bases, log.file_delete_delay_ms, log.directory))
    return retired, failed
