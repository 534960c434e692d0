from collections.abc import Iterable
from typing import NamedTuple

from typing_extensions import Buffer

class BrokenRecords(ValueError):  # noqa: N818 - says what is wrong
    """Bytes that are not record batches, or a batch that does not hold what its header says."""

class Record(NamedTuple):
    """One record. An offset of -1 means "the next one" to build_batch."""

    offset: int = -1
    timestamp: int = -1
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()

class BatchHeader(NamedTuple):
    """The header of a batch that starts at `position` and is `size` bytes long, prefix included."""

    position: int
    size: int
    base_offset: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def last_offset(self) -> int: ...
    @property
    def codec(self) -> int: ...
    @property
    def log_append_time(self) -> bool: ...
    @property
    def transactional(self) -> bool: ...
    @property
    def control(self) -> bool: ...
    @property
    def delete_horizon(self) -> bool: ...

def batches(data: Buffer, *, partial_tail: bool = False) -> list[BatchHeader]:
    """The headers of the batches in `data`, one after the other; checksums are not looked at.

    Raises BrokenRecords. `partial_tail` lets the last batch be cut short, as a fetch or a torn file may leave it.
    """

def iterate(
    data: Buffer, *, control: bool = True, partial_tail: bool = False, disabled_codecs: int = 0
) -> list[Record]:
    """Every record of every batch in `data`, checksums checked. `control=False` leaves control batches out.

    Raises BrokenRecords and nothing else, whatever the bytes are.
    """

def build_plain_batch(pairs: list[tuple[bytes, bytes | None]], timestamp: int) -> bytes: ...
def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    codec: int = 0,
    level: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    control: bool = False,
    transactional: bool = False,
    leader_epoch: int = -1,
    append_time_ms: int | None = None,
    last_offset: int | None = None,
) -> bytes:
    """A v2 batch of `records`, ready for the wire or a segment.

    Records without an offset follow one another from `base_offset`; given offsets may leave gaps, as compaction does,
    and `last_offset` may lie behind the last record. `append_time_ms` makes it a log-append-time batch.
    """
