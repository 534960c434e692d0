"""What happens to logs unasked, as lines for whoever runs the broker. From any thread."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from kbroker._core.log.partition_log import Note
    from kbroker.storage.log_dir import Key
    from kbroker.storage.moves import Move
    from kbroker.storage.retention import Retired


class Lines(Protocol):
    """Where log lines go."""

    def info(self, event: str, **fields: Any) -> None: ...
    def warning(self, event: str, **fields: Any) -> None: ...
    def error(self, event: str, cause: BaseException | None = None, **fields: Any) -> None: ...


class News:
    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def offline(self, key: Key, problem: Exception) -> None:
        self._lines.error("a partition is offline", topic=key[0], partition=key[1], reason=str(problem))

    def repaired(self, key: Key, notes: list[Note]) -> None:
        for one in notes:
            self._lines.warning(
                "a log was repaired",
                topic=key[0],
                partition=key[1],
                segment=f"{one.segment_base_offset:020}",
                position=one.position,
                offset=one.offset,
                bytes_cut=one.bytes,
                reason=one.reason,
            )

    def damaged(self, key: Key, offset: int) -> None:
        self._lines.error(
            "records cannot be read",
            topic=key[0],
            partition=key[1],
            offset=offset,
            reason="the segment was damaged since it was written; `kbroker doctor --deep` names the file and the place",
        )

    def failed(self, what: str, problem: Exception) -> None:
        self._lines.error(what, cause=None if isinstance(problem, OSError) else problem, reason=str(problem))

    def retired(self, retired: Retired) -> None:
        (topic, partition), count = retired.key, len(retired.base_offsets)
        self._lines.info(
            "old segments were deleted",
            topic=topic,
            partition=partition,
            segments=count,
            log_start_offset=retired.log_start_offset,
        )

    def moved(self, move: Move) -> None:
        (topic, partition), seconds = move.key, round(time.monotonic() - move.began, 3)
        where = str(move.home.path)
        self._lines.info("a partition was moved", topic=topic, partition=partition, directory=where, seconds=seconds)

    def not_moved(self, key: Key, problem: Exception) -> None:
        self._lines.error("a partition could not be moved", topic=key[0], partition=key[1], reason=str(problem))
