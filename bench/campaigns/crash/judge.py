"""Everything a restarted broker serves, held against the ledger.

lost        acknowledged or once seen, not deleted, not old, not replaced, and not there
invented    served, and nobody sent it, or not like this
twice       one record at two offsets, or one offset with two records
order       offsets that do not ascend, a gap where nothing may be gone, a fetch that begins elsewhere
back        a log start that was higher before, a record that was gone before, an end that was further on
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bench.campaigns.crash.ledger import Broken, Ledger, Shelf
from bench.campaigns.crash.load import Mayfly, read_from
from bench.campaigns.crash.talk import EARLIEST, LATEST, OUT_OF_RANGE, Talk
from bench.campaigns.crash.topics import CLIENTS, INTERNAL, MAYFLIES
from kbroker._core.record.records import BatchHeader, Record, batches, iterate

LOOKED_UP = 3  # offsets and timestamps per partition that are asked for out of order


@dataclass
class Found:
    """What a partition served from its start to its end."""

    start: int
    end: int
    records: list[Record]
    stamps: list[tuple[int, int]]  # offset and timestamp of every record, the markers of transactions too
    heads: list[BatchHeader]
    bytes: int


def judge(talk: Talk, ledger: Ledger, flies: list[Mayfly], chance: random.Random) -> int:
    """How many records were looked at."""
    _judge_topics(talk.topic_ids(), ledger, flies)
    for (topic, name), maybe in ledger.settings.items():
        told = talk.settings(topic)[name]
        if told not in maybe:
            raise Broken(f"{topic}: {name} is {told}, and {' or '.join(sorted(maybe))} was set")
        ledger.settings[topic, name] = {told}
    return sum(_judge_partition(talk, shelf, chance) for shelf in list(ledger.shelves.values()))


def _judge_topics(found: dict[str, bytes], ledger: Ledger, flies: list[Mayfly]) -> None:
    for fly in flies:
        fly.settle(found.get(fly.name))
    owed = {topic for topic, _ in ledger.shelves}
    if missing := owed - found.keys():
        raise Broken(f"topics are gone: {sorted(missing)}")
    if strange := found.keys() - owed - {*MAYFLIES, *INTERNAL, CLIENTS}:
        raise Broken(f"nobody created {sorted(strange)}")


def _judge_partition(talk: Talk, shelf: Shelf, chance: random.Random) -> int:
    with shelf.lock:  # others may go on writing: what is owed now must be there
        owed, told_start, told_end = dict(shelf.owed), shelf.start, shelf.end
    found = _read(talk, shelf)
    with shelf.lock:
        if found.start < told_start:
            raise Broken(f"{shelf.label}: the log starts at {found.start}, and has started at {told_start}")
        if found.end < told_end:
            raise Broken(f"{shelf.label}: the log ends at {found.end}, and has reached {told_end}")
        _judge_order(shelf, found)
        served = {record.offset for record in found.records}
        for record in found.records:
            shelf.see(record)
        if shelf.left is not None and (back := {at for at in served if at < shelf.left_end} - shelf.left):
            raise Broken(f"{shelf.label}: {len(back)} records came back, the first at {min(back)}")
        shelf.may_be_trimmed(found.start, found.bytes)
        if shelf.topic.compacted:
            shelf.may_be_compacted(served, found.start)
        else:
            lost = [at for at in owed if at >= found.start and at not in served]
            if lost:
                raise Broken(f"{shelf.label}: {len(lost)} acknowledged records are gone, the first at {min(lost)}")
        shelf.write_off(found.end)
        shelf.left, shelf.left_end = served, found.end
        shelf.told_start(found.start)
        shelf.end = max(shelf.end, found.end)
    _look_up(talk, shelf, found, chance)
    return len(found.records)


def _read(talk: Talk, shelf: Shelf) -> Found:
    name, partition = shelf.topic.name, shelf.partition
    start, _ = talk.offset(name, partition, EARLIEST)
    end, _ = talk.offset(name, partition, LATEST)
    position = start
    records: list[Record] = []
    stamps: list[tuple[int, int]] = []
    heads: list[BatchHeader] = []
    size = 0
    while position < end:
        answer = talk.fetch(name, partition, position)
        before = start
        if answer.error_code == OUT_OF_RANGE:
            start, _ = talk.offset(name, partition, EARLIEST)
        if before < start:  # retention went on meanwhile
            position = start
            records, stamps, heads, size = [], [], [], 0
            end = max(end, start)
            continue
        if answer.error_code:
            raise Broken(f"{shelf.label}: a fetch at {position} was answered with error {answer.error_code}")
        data = answer.records or b""
        more = batches(data, partial_tail=True)
        if not more:
            raise Broken(f"{shelf.label}: nothing is served at {position}, and the log ends at {end}")
        whole = data[: more[-1].position + more[-1].size]
        records += [record for record in iterate(whole, control=False) if record.offset >= start]
        stamps += [(record.offset, record.timestamp) for record in iterate(whole) if record.offset >= start]
        heads += more
        size += len(whole)
        position = more[-1].last_offset + 1
    return Found(start, max(end, position), records, stamps, heads, size)


def _judge_order(shelf: Shelf, found: Found) -> None:
    before = None
    for head in found.heads:
        if before is not None and head.base_offset <= before.last_offset:
            raise Broken(
                f"{shelf.label}: the batch at {head.base_offset} follows one that ends at {before.last_offset}"
            )
        due = found.start if before is None else before.last_offset + 1
        if not shelf.topic.compacted and head.base_offset > due:
            raise Broken(f"{shelf.label}: the batch at {head.base_offset} stands where {due} was due")
        before = head
    offsets = [record.offset for record in found.records]
    if any(one >= other for one, other in pairwise(offsets)):
        raise Broken(f"{shelf.label}: offsets do not ascend")


def look_through(talk: Talk, ledger: Ledger, index: Path) -> None:
    """Has the broker use an index that was harmed: segments are read from their beginning without one."""
    topic, _, partition = index.parent.name.rpartition("-")
    shelf = ledger.shelves.get((topic, int(partition)))
    if shelf is None or not shelf.left:
        return
    base = int(index.name[:20])
    end = min((at for path in index.parent.glob("*.log") if (at := int(path.name[:20])) > base), default=shelf.left_end)
    if held := sorted(offset for offset in shelf.left if base < offset < end):
        for offset in (held[-1], held[len(held) // 2]):
            read_from(talk, shelf, offset, 1)
            talk.offset(topic, shelf.partition, shelf.sent[shelf.owed[offset]].timestamp)


def _look_up(talk: Talk, shelf: Shelf, found: Found, chance: random.Random) -> None:
    """Through the indexes: by offset, and by time where nothing else changes the answer meanwhile."""
    if not found.records:
        return
    for _ in range(LOOKED_UP):
        read_from(talk, shelf, chance.randrange(found.start, found.end), 20_000)
    if shelf.topic.compacted or shelf.retention_ms >= 0 or shelf.retention_bytes >= 0 or shelf.topic.name == CLIENTS:
        return
    for _ in range(LOOKED_UP):
        wanted = chance.choice(found.records).timestamp + chance.choice((0, 0, 1))
        due = next((stamp for stamp in found.stamps if stamp[1] >= wanted), (-1, -1))
        told = talk.offset(shelf.topic.name, shelf.partition, wanted)
        if told != due:
            raise Broken(f"{shelf.label}: {wanted} is first reached at {due}, and {told} is told")
