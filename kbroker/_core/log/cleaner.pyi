from typing import NamedTuple

from kbroker._core.log.partition_log import PartitionLog

class CleaningError(Exception):
    """Why a log cannot be compacted: its content, or a codec that this machine lacks."""

class CleaningCancelledError(Exception):
    """The log was closed, failed or was cut while it was being compacted. What was done so far stands."""

class Stopped(Exception):  # noqa: N818
    """A test's `stop_after` was reached: the files are as a kill would leave them."""

class Cleaned(NamedTuple):
    end_offset: int
    records_read: int
    records_kept: int
    bytes_mapped: int
    bytes_read: int
    bytes_written: int
    segments_written: int
    keys: int

class LogCleaning:
    """One compaction of one log, from `first_dirty_offset` up to the segment that begins at `first_uncleanable_offset`.

    Take step() until `finished`, then ask for `result`; close() at any time gives up what was not swapped in yet.
    """

    def __init__(
        self,
        log: PartitionLog,
        first_dirty_offset: int,
        first_uncleanable_offset: int,
        now_ms: int,
        *,
        delete_retention_ms: int = 86400000,
        map_bytes: int = 134217728,
        load_factor: float = 0.9,
        buffer_bytes: int = 262144,
        stop_after: int = -1,
    ) -> None: ...
    def close(self) -> None:
        """Lets everything go; what was being written is removed. A second call does nothing."""

    @property
    def finished(self) -> bool: ...
    def step(self) -> int:
        """A part of the work, without the GIL; how many bytes were read and written."""

    @property
    def result(self) -> Cleaned:
        """The first offset that is not compacted, and figures."""

    @property
    def replaced(self) -> list[int]:
        """Base offsets of the segments whose files are .deleted now."""
