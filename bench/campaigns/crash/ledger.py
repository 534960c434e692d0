"""What the broker owes: every record sent, where it was acknowledged or seen, and what may be gone.

One Shelf per partition of one incarnation of a topic. Its lock is held for moments; whatever breaks the bargain is
raised as Broken, by whoever notices.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from bench.campaigns.crash.topics import Topic
from kbroker._core.record.records import Record

FAITHFUL = "faithful"  # so begin the names of those who send again what was not answered
NAME = "id"  # the header that names a record: tombstones have no value to carry it


class Broken(AssertionError):  # noqa: N818 - says what is wrong
    """The broker did not keep its side."""


def named(identity: str, key: bytes | None, value: bytes | None, timestamp: int) -> Record:
    return Record(timestamp=timestamp, key=key, value=value, headers=((NAME, identity.encode()),))


def name_of(record: Record) -> str:
    if len(record.headers) != 1 or record.headers[0][0] != NAME or record.headers[0][1] is None:
        raise Broken(f"the record at {record.offset} has no name: {record.headers}")
    return record.headers[0][1].decode()


@dataclass
class Shelf:
    topic: Topic
    partition: int
    sent: dict[str, Record] = field(default_factory=dict)
    owed: dict[int, str] = field(default_factory=dict)  # acknowledged, or seen by a consumer
    places: dict[str, int] = field(default_factory=dict)  # where a record stood when it was first told
    hidden: set[str] = field(default_factory=set)  # of transactions that are open or were aborted
    waiting: set[str] = field(default_factory=set)  # sent, never answered: there or not
    start: int = 0  # the largest log start offset that anyone was told
    end: int = 0  # the log cannot end before it
    doomed_below: dict[bytes, int] = field(default_factory=dict)  # a tombstone of the key may have been there
    delete_wanted: int = 0  # the largest offset that DeleteRecords was asked for
    left: set[int] | None = None  # what the last judgement found
    left_end: int = 0  # and where the log ended then
    retention_ms: int = -1
    retention_bytes: int = -1
    delete_retention_ms: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.retention_ms = self.topic.limit("retention.ms")
        self.retention_bytes = self.topic.limit("retention.bytes")
        self.delete_retention_ms = min(
            [int(each) for each in self.topic.alterable.get("delete.retention.ms", ())]
            or [self.topic.limit("delete.retention.ms")]
        )

    @property
    def label(self) -> str:
        return f"{self.topic.name}-{self.partition}"

    def send(self, records: Iterable[Record]) -> None:
        with self.lock:
            for record in records:
                name = name_of(record)
                self.sent[name] = record
                self.waiting.add(name)

    def acknowledge(self, records: Iterable[Record], base_offset: int) -> None:
        with self.lock:
            for offset, record in enumerate(records, base_offset):
                self.place(name_of(record), offset)

    def place(self, name: str, offset: int) -> None:
        """The record is told to stand there: it stays there, alone."""
        known = self.places.setdefault(name, offset)
        if known != offset:
            raise Broken(f"{self.label}: {name} stood at {known} and is now told at {offset}")
        if self.owed.setdefault(offset, name) != name:
            raise Broken(f"{self.label}: {self.owed[offset]} and {name} are both told at {offset}")
        self.waiting.discard(name)
        self.end = max(self.end, offset + 1)

    def see(self, record: Record) -> None:
        """A consumer got it."""
        name = name_of(record)
        with self.lock:
            sent = self.sent.get(name)
            if sent is None:
                raise Broken(f"{self.label}: nobody sent what stands at {record.offset}: {name}")
            if sent[1:] != record[1:]:
                raise Broken(f"{self.label}: {name} at {record.offset} is not what was sent: {record} for {sent}")
            self.place(name, record.offset)

    def told_start(self, offset: int) -> None:
        with self.lock:
            self.start = max(self.start, offset)
            self.end = max(self.end, offset)

    # ---- what may be gone ----

    def may_be_trimmed(self, start: int, bytes_left: int) -> None:
        """Whether the log may begin at `start`."""
        if start <= self.delete_wanted or not any(self.delete_wanted <= offset < start for offset in self.owed):
            return
        if self.retention_bytes < 0 and self.retention_ms < 0:
            raise Broken(f"{self.label}: the log starts at {start}, and nobody deleted past {self.delete_wanted}")
        if self.retention_bytes >= 0 and bytes_left < self.retention_bytes:
            raise Broken(f"{self.label}: {bytes_left} bytes are left, {self.retention_bytes} were to be kept")
        if self.retention_ms >= 0:
            young = int(time.time() * 1000) - self.retention_ms
            gone = [offset for offset in self.owed if self.delete_wanted <= offset < start]
            if self.topic.compacted:  # what compaction takes out of a segment does not keep it young
                doomed = self._doomed()
                needed = {
                    offset
                    for key, offset in self.newest().items()
                    if key not in doomed and offset >= self.doomed_below.get(key, 0)
                }
                gone = [at for at in gone if at in needed and self.sent[self.owed[at]].value is not None]
            for offset in gone:
                if self.sent[self.owed[offset]].timestamp > young:
                    raise Broken(f"{self.label}: the record at {offset} is too young to go; the log starts at {start}")

    def newest(self) -> dict[bytes, int]:
        """Of every key the last offset that was ever told; what was not committed does not count."""
        found: dict[bytes, int] = {}
        for offset, name in self.owed.items():
            key = self.sent[name].key
            if key is not None and name not in self.hidden and offset > found.get(key, -1):
                found[key] = offset
        return found

    def _doomed(self) -> set[bytes | None]:
        """Keys with a tombstone that was not answered yet: it may be there, or gone together with what it deleted."""
        return {self.sent[name].key for name in self.waiting if self.sent[name].value is None}

    def write_off(self, end: int) -> None:
        """What nobody will send again is in the log below `end` by now, or never will be."""
        for name in [name for name in self.waiting if not name.startswith(FAITHFUL)]:
            self.waiting.discard(name)
            key = self.sent[name].key
            if self.sent[name].value is None and key is not None:
                self.doomed_below[key] = end

    def may_be_compacted(self, served: set[int], start: int) -> None:
        """Whether what is missing was replaced: the newest of each key is there, unless it is an old tombstone."""
        newest = self.newest()
        doomed = self._doomed()
        old = int(time.time() * 1000) - self.delete_retention_ms
        for key, offset in newest.items():
            if offset in served or offset < start:
                continue
            record = self.sent[self.owed[offset]]
            if key in doomed or offset < self.doomed_below.get(key, 0):
                continue
            if record.value is not None:
                raise Broken(f"{self.label}: the newest record of {key!r}, at {offset}, is gone")
            if record.timestamp > old:
                raise Broken(f"{self.label}: the tombstone of {key!r}, at {offset}, is gone too early")
        for offset in served:
            name = self.owed[offset]
            mine = self.sent[name].key
            if mine is None or name in self.hidden:
                continue
            last = newest.get(mine, offset)
            if last > offset and last not in served and last >= start and self.sent[self.owed[last]].value is None:
                raise Broken(f"{self.label}: {mine!r} was deleted at {last}, and is served at {offset}")


class Ledger:
    """All shelves of an era, and what is owed of topics and settings."""

    def __init__(self) -> None:
        self.shelves: dict[tuple[str, int], Shelf] = {}
        self.settings: dict[tuple[str, str], set[str]] = {}  # what DescribeConfigs may say
        self.altered = 0

    def add(self, topic: Topic) -> None:
        for partition in range(topic.partitions):
            self.shelves[topic.name, partition] = Shelf(topic, partition)

    def forget(self, topic: str) -> None:
        for key in [key for key in self.shelves if key[0] == topic]:
            del self.shelves[key]

    @property
    def acknowledged(self) -> int:
        return sum(len(shelf.owed) for shelf in self.shelves.values())
