from collections.abc import Mapping
from os import PathLike
from typing import Any, NamedTuple

from typing_extensions import Buffer

from kbroker._core.clock import BrokerClock
from kbroker._core.log.health import Health
from kbroker._core.log.open_files import FileBudget

class LogError(Exception):
    """A Kafka error code from a log."""

    code: int
    def __init__(self, code: int) -> None: ...

class DamagedLogError(LogError):
    """Bad bytes with records behind them: the log is not opened, and nothing of it was changed."""

    where: Note
    def __init__(self, directory: str, where: Note, later: int) -> None: ...

class Appended(NamedTuple):
    error: int
    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool
    needs_fallback: bool
    message: str | None
    record_errors: list[int]

class Found(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int

class SegmentFacts(NamedTuple):
    base_offset: int
    next_offset: int
    size_bytes: int
    max_timestamp: int
    open: bool
    references: int

class Note(NamedTuple):
    segment_base_offset: int
    offset: int
    position: int
    bytes: int
    reason: str

class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

class ProducerFacts(NamedTuple):
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    last_timestamp: int
    coordinator_epoch: int
    txn_first_offset: int

class PartitionLog:
    """The log of one partition. Every call that may block runs without the GIL."""

    directory: str
    topic_id: bytes
    high_watermark: int
    @staticmethod
    def open(
        directory: str | PathLike[str],
        clock: BrokerClock,
        config: Mapping[str, Any],
        *,
        topic_id: bytes | None = None,
        clean: bool = True,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        files: FileBudget | None = None,
        health: Health | None = None,
        make: bool = True,
    ) -> PartitionLog:
        """Opens or creates the log in `directory`. `clean=False` scans what lies past `recovery_point`.

        With `make=False` nothing may lie at `directory`: the first append or make() makes it, in a parent that exists.
        """

    @staticmethod
    def in_memory(
        clock: BrokerClock, config: Mapping[str, Any], *, topic_id: bytes | None = None, log_start_offset: int = 0
    ) -> PartitionLog:
        """A log whose segments have no name: it ends with its last reference."""

    def append(
        self,
        records: Buffer,
        *,
        origin: int = 0,
        leader_epoch: int = 0,
        now_ms: int | None = None,
        inflated: Buffer | None = None,
        guard: int = 0,
        transaction_version: int = 0,
    ) -> Appended:
        """Appends batches; the bytes given are left alone. The answer carries a Kafka error code.

        `origin`: 0 a client, 1 a coordinator, 2 a leader, 3 the quorum.
        """

    def read(
        self, offset: int, max_bytes: int = 1048576, bound: int | None = None, *, at_least_one: bool = True
    ) -> bytes:
        """Whole batches from the one that holds `offset`, none at or past `bound` (the log's end by default)."""

    @property
    def log_end_offset(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...
    @property
    def recovery_point(self) -> int: ...
    @property
    def damaged_offset(self) -> int:
        """Where a reader found last that no batch stands, as a file was damaged since it was settled; -1: nowhere."""

    @property
    def latest_epoch(self) -> int: ...
    @property
    def offline_errno(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def recovery_notes(self) -> list[Note]: ...
    def segments(self, *, times: bool = False) -> list[SegmentFacts]:
        """Facts about every segment, oldest first. A timestamp is -2 until `times` asks for it."""

    def producers(self) -> list[ProducerFacts]:
        """What is remembered of idempotent producers."""

    def collect_aborted(self, from_offset: int, upper_bound: int) -> list[AbortedTransaction]:
        """Aborted transactions with something in [from_offset, upper_bound), by their markers: for read_committed."""

    def offset_for_timestamp(self, timestamp: int) -> Found | None:
        """The first record at or after `timestamp`, or None."""

    def offset_of_max_timestamp(self) -> Found | None:
        """The first record that carries the largest timestamp, or None."""

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers; (-1, -1) when unknown."""

    def epochs(self) -> list[tuple[int, int]]:
        """Every known (epoch, start offset)."""

    def assign_epoch(self, epoch: int) -> None:
        """On becoming leader: this epoch begins at the end of the log."""

    def configure(self, config: Mapping[str, Any]) -> None:
        """Takes over a topic's settings; they hold from the next append."""

    def make(self) -> None:
        """Makes the files of a log that was opened without; of any other it does nothing."""

    @property
    def made(self) -> bool: ...
    def flush(self) -> int:
        """Syncs what was appended; the new recovery point."""

    def flush_sealed(self) -> int:
        """Syncs the segments that are full, which takes no append's time. A closed or failed log is left alone."""

    def flush_if_due(self, now_ms: int | None = None) -> bool:
        """Syncs when flush.ms have passed since it was last done here; whether it did."""
    def roll(self, now_ms: int | None = None) -> None:
        """Begins a new segment, unless the active one is empty."""

    def truncate_to(self, offset: int) -> int:
        """Cuts the log at the batch that holds `offset`; the new end offset."""

    def raise_start(self, offset: int) -> int:
        """Raises the start to `offset`, at most the high watermark; the start that holds. Segments go by retire()."""

    def retire(self, now_ms: int | None = None) -> list[int]:
        """Takes out every segment that retention lets go; their base offsets. Their files are called *.deleted then.

        Of a log that is closed or offline: none.
        """

    @property
    def file_delete_delay_ms(self) -> int: ...
    def expire_producers(self, now_ms: int | None = None) -> None:
        """Forgets producers that have been silent for producer.id.expiration.ms."""

    def close(self, *, sync: bool = True) -> None:
        """Writes what a clean start relies on and lets the files go. A second call does nothing.

        With `sync=False` it writes nothing: for a log that is to be deleted, on a disk that may be full.
        """
