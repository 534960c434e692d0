"""Compaction as one would explain it: batches in a list, keys in a dict. Slow and short."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from kbroker._core.record.records import Record, batches, iterate

ABORT, COMMIT = 0, 1
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, HORIZON = 0x08, 0x10, 0x20, 0x40


@dataclass(frozen=True)
class Batch:
    """Everything a batch says, its codec included; its bytes are the codec's business."""

    base: int
    last: int
    leader_epoch: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer: tuple[int, int, int]
    records: tuple[Record, ...]

    @property
    def control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def horizon(self) -> int | None:
        return self.base_timestamp if self.attributes & HORIZON else None

    @property
    def marker(self) -> int | None:
        """ABORT or COMMIT; None when an earlier compaction has emptied it."""
        return struct.unpack(">hh", self.records[0].key or b"")[1] if self.records else None


def batches_of(data: bytes) -> list[Batch]:
    return [
        Batch(
            one.base_offset,
            one.last_offset,
            one.leader_epoch,
            one.attributes,
            one.base_timestamp,
            one.max_timestamp,
            (one.producer_id, one.producer_epoch, one.base_sequence),
            tuple(iterate(data[one.position : one.position + one.size])),
        )
        for one in batches(data)
    ]


def batches_in(directory: Path) -> list[Batch]:
    """Of every segment, checksums checked."""
    return [one for path in sorted(directory.glob("*.log")) for one in batches_of(path.read_bytes())]


def aborted_batches(log: list[Batch]) -> set[int]:
    """Base offsets of the data batches whose transaction was aborted."""
    found: set[int] = set()
    open_batches: dict[int, list[int]] = {}
    for one in log:
        producer_id = one.producer[0]
        if one.control:
            ended = open_batches.pop(producer_id, []) if one.marker is not None else []
            if one.marker == ABORT:
                found.update(ended)
        elif one.attributes & TRANSACTIONAL:
            open_batches.setdefault(producer_id, []).append(one.base)
    return found


class Pass(NamedTuple):
    """One compaction: what it may touch and what it goes by."""

    copied_before: int  # segments below are copied
    first_dirty: int  # the map knows the keys from here
    end_offset: int  # up to here
    upper: int  # where the first segment begins that must not be touched
    producers: dict[int, tuple[int, int]]  # producer id -> (last data offset or -1, epoch)
    now_ms: int
    retention_ms: int


def compacted(log: list[Batch], how: Pass) -> list[Batch]:
    """What is left of `log`."""
    aborted = aborted_batches(log)
    newest: dict[bytes, int] = {}
    for one in log:
        if not one.control and one.base not in aborted:
            for record in one.records:
                if record.key is not None and how.first_dirty <= record.offset < how.end_offset:
                    newest[record.key] = record.offset
    left: list[Batch] = []
    with_data: set[int] = set()  # producers with a batch of their current transaction still before us
    for one in log:
        if one.base >= how.copied_before:
            left.append(one)
            continue
        producer_id = one.producer[0]
        spent = False
        if one.control:
            spent = one.marker is None or producer_id not in with_data
            with_data.discard(producer_id)
        elif one.attributes & TRANSACTIONAL:
            with_data.add(producer_id)
        left += _rest(one, newest, how, spent=spent, aborted=one.base in aborted)
    return left


def _rest(one: Batch, newest: dict[bytes, int], how: Pass, *, spent: bool, aborted: bool) -> list[Batch]:
    passed = one.horizon is not None and one.horizon <= how.now_ms

    def stays(record: Record) -> bool:
        if aborted or (one.control and spent and passed):
            return False
        if one.control or record.offset >= how.end_offset:
            return True
        if record.key is None or (record.value is None and passed):
            return False
        return record.offset >= newest.get(record.key, -1)

    kept = tuple(record for record in one.records if stays(record))
    last_data, epoch = how.producers.get(one.producer[0], (None, None))
    if last_data is None:
        of_producer = False
    elif last_data >= 0:
        of_producer = last_data == one.last
    else:
        of_producer = one.control and epoch == one.producer[1]
    if not kept:
        if not of_producer and one.last + 1 != how.upper:
            return []
        bare = one.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
        return [replace(one, attributes=bare, base_timestamp=-1, records=())]
    tombstones = any(record.value is None for record in kept)
    set_horizon = one.horizon is None and (tombstones or (one.control and spent))
    if kept == one.records and not set_horizon:
        return [one]
    base_timestamp = kept[0].timestamp if one.horizon is None else one.horizon
    attributes = one.attributes
    if set_horizon:
        base_timestamp, attributes = how.now_ms + how.retention_ms, attributes | HORIZON
    largest = max(record.timestamp for record in kept)
    max_timestamp = one.max_timestamp if attributes & LOG_APPEND_TIME else largest
    return [
        replace(one, attributes=attributes, base_timestamp=base_timestamp, max_timestamp=max_timestamp, records=kept)
    ]
