"""Batches for the log tests, and what a log gives back."""

from typing import Any

from kbroker._core.log.partition_log import PartitionLog
from kbroker._core.record.records import Record, batches, build_batch, iterate
from kbroker.tests.unit.log.conftest import NOW_MS


def batch(count: int = 1, *, size: int = 10, timestamp: int = NOW_MS, value: bytes | None = None, **how: Any) -> bytes:
    """`count` records with ascending timestamps from `timestamp`."""
    records = [
        Record(timestamp=timestamp + i, key=b"k", value=value if value is not None else b"v" * size)
        for i in range(count)
    ]
    return build_batch(records, **how)


def produced(sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0, **how: Any) -> bytes:
    """A batch of an idempotent producer."""
    return batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **how)


def read_all(log: PartitionLog, offset: int | None = None, max_bytes: int = 1 << 20) -> list[Record]:
    """Every record from `offset` on, slice by slice."""
    at = log.log_start_offset if offset is None else offset
    records: list[Record] = []
    while at < log.log_end_offset:
        data = log.read(at, max_bytes)
        if not data:
            break
        records += [record for record in iterate(data) if record.offset >= at]
        at = batches(data)[-1].last_offset + 1
    return records


def offsets(log: PartitionLog, offset: int | None = None, max_bytes: int = 1 << 20) -> list[int]:
    return [record.offset for record in read_all(log, offset, max_bytes)]
