"""A coordinator's log, read into its shard: what an election and a start do, on a thread of their own.

Of each key only the last record is decoded and applied, as if the whole log were compacted: a log holds a key as often
as it was written since the cleaner came by, which for offsets and transactions is all the time.
"""

from __future__ import annotations

from typing import Protocol

from kbroker._core.log.partition_log import PartitionLog
from kbroker._core.record.latest import Latest
from kbroker._core.record.records import BrokenRecords
from kbroker.coordinator.frames import decode_record
from kbroker.coordinator.step import NO_PRODUCER, Record
from kbroker.protocol.codec import DecodeError

READ_BYTES = 1 << 18  # the interpreter is not shared while so much is gone through


class Replayed(Protocol):
    """Whose durable state is a log."""

    def apply(self, record: Record, producer_id: int = NO_PRODUCER) -> None:
        """One record of the log, in its order."""
        ...

    def apply_end(self, producer_id: int, *, commit: bool) -> None:
        """A transaction's marker in this partition."""
        ...


def replay(kind: str, shard: Replayed, log: PartitionLog) -> int:
    """The whole log into the shard. Returns how many records were of kinds that are not known here.

    Raises BrokenRecords, which tells from which offset on.
    """
    passed_over = 0
    for offset, producer_id, key, value in _latest(log).entries():
        if isinstance(value, bool):
            shard.apply_end(producer_id, commit=value)
        else:
            record = _decode(kind, offset, key or b"", value)
            if record is None:
                passed_over += 1
            else:
                shard.apply(record, producer_id)
    return passed_over


def _latest(log: PartitionLog) -> Latest:
    end = log.log_end_offset
    latest = Latest(log.log_start_offset)
    while latest.next_offset < end:
        data = log.read(latest.next_offset, READ_BYTES, end)
        if not data:
            break  # compaction took the last records
        try:
            latest.take(data)
        except BrokenRecords as problem:
            raise BrokenRecords(f"from offset {latest.next_offset} on: {problem}") from None
    return latest


def _decode(kind: str, offset: int, key: bytes, value: bytes | None) -> Record | None:
    try:
        return decode_record(kind, key, value)
    except DecodeError as problem:
        raise BrokenRecords(f"the record at offset {offset} cannot be read: {problem}") from None
