"""Those who are at work when the broker dies: producers, readers and administrators, each a thread with a seed."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.campaigns.crash.ledger import Broken, Ledger, Shelf, name_of, named
from bench.campaigns.crash.talk import DUPLICATE, EARLIEST, NOT_LEADER, OUT_OF_ORDER, OUT_OF_RANGE, Gone, Talk
from bench.campaigns.crash.topics import MAYFLIES, Topic
from kbroker._core.record.records import Record, batches, build_batch, iterate

CODECS = range(5)
AHEAD_MAX = 5  # batches on their way, as an idempotent producer may have
MAYFLY = {"internal.segment.bytes": "8000", "index.interval.bytes": "200", "retention.ms": "-1"}


class Shift:
    """One cycle's threads. The first that finds the broker broken keeps what it found."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.over = threading.Event()
        self.stopping = False  # a clean stop was asked for: that nobody leads here any more is no mistake then
        self.broken: BaseException | None = None
        self._threads: list[threading.Thread] = []

    def add(self, work: Callable[[Talk], None]) -> None:
        self._threads.append(threading.Thread(target=self._run, args=(work,), daemon=True))

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """After the broker's end: everyone notices, and what broke is raised here."""
        self.over.set()
        for thread in self._threads:
            thread.join()
        if self.broken is not None:
            raise self.broken

    def _run(self, work: Callable[[Talk], None]) -> None:
        try:
            talk = Talk(self.port)
        except Gone:
            return
        try:
            while not self.over.is_set():
                work(talk)
        except Gone:
            return
        except BaseException as problem:
            self.broken = self.broken or problem
        finally:
            talk.close()


class Sending:
    """Makes records that have a name, a key if their topic has keys, and contents of all sizes."""

    def __init__(self, shelf: Shelf, who: str, chance: random.Random) -> None:
        self.shelf, self.who, self.chance = shelf, who, chance
        self._serial = 0

    def records(self) -> list[Record]:
        now = int(time.time() * 1000)
        return [self._record(now) for _ in range(self.chance.choice((1, 1, 1, 2, 3, 5, 12)))]

    def _record(self, now: int) -> Record:
        keys = self.shelf.topic.keys
        key = b"key-%d" % self.chance.randrange(keys) if keys else None
        value: bytes | None = self.chance.randbytes(self.chance.randrange(60)) * self.chance.randrange(1, 4)
        if keys and self.chance.random() < 0.08:
            value = None
        self._serial += 1
        return named(f"{self.who}:{self._serial}", key, value, now)

    def pause(self) -> None:
        time.sleep(self.shelf.topic.pace_s + self.chance.random() * 0.07)  # the load's pace; nothing is waited for


class Feeder(Sending):
    """A producer without an id: what is not answered when the broker dies is never sent again."""

    def __init__(self, shift: Shift, shelf: Shelf, who: str, chance: random.Random) -> None:
        super().__init__(shelf, who, chance)
        self._shift = shift
        self._codec = chance.choice(CODECS)
        self._ahead = chance.randint(1, AHEAD_MAX)

    def __call__(self, talk: Talk) -> None:
        sent = [self.records() for _ in range(self._ahead)]
        for records in sent:
            self.shelf.send(records)
            talk.send_batch(self.shelf.topic.name, self.shelf.partition, build_batch(records, codec=self._codec))
        for records in sent:
            answer = talk.receive_produced()
            if answer.error_code == NOT_LEADER and self._shift.stopping:
                raise Gone
            if answer.error_code:
                raise Broken(f"{self.shelf.label}: a batch was answered with error {answer.error_code}")
            self.shelf.acknowledge(records, answer.base_offset)
            self.shelf.told_start(answer.log_start_offset)
        self.pause()


@dataclass
class Pending:
    sequence: int
    records: list[Record]
    batch: bytes


@dataclass
class Faithful:
    """An idempotent producer that outlives the kills. What was not answered it sends again, and its last batch too."""

    shelf: Shelf
    who: str
    producer: tuple[int, int] | None = None
    sequence: int = 0
    pending: list[Pending] = field(default_factory=list)
    last: Pending | None = None
    last_offset: int = -1
    again: int = 0  # batches that were sent twice and stand once

    def work(self, shift: Shift, chance: random.Random) -> Callable[[Talk], None]:
        sending = Sending(self.shelf, self.who, chance)
        sending._serial = self.sequence
        resumed = False

        def turn(talk: Talk) -> None:
            nonlocal resumed
            if self.producer is None:
                self.producer = talk.producer_id()
            if not resumed:
                self._resume(talk, shift)
                resumed = True
            for _ in range(chance.randint(1, AHEAD_MAX)):
                self._send_new(talk, sending, chance)
            while self.pending:
                self._settle(talk, shift, self.pending[0])
            sending.pause()

        return turn

    def _send_new(self, talk: Talk, sending: Sending, chance: random.Random) -> None:
        assert self.producer is not None
        records = sending.records()
        batch = build_batch(
            records,
            codec=chance.choice(CODECS),
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            base_sequence=self.sequence,
        )
        self.pending.append(Pending(self.sequence, records, batch))
        self.sequence += len(records)
        self.shelf.send(records)
        talk.send_batch(self.shelf.topic.name, self.shelf.partition, batch)

    def _settle(self, talk: Talk, shift: Shift, one: Pending) -> None:
        answer = talk.receive_produced()
        if answer.error_code == NOT_LEADER and shift.stopping:
            raise Gone
        if answer.error_code:
            raise Broken(f"{self.shelf.label}: sequence {one.sequence} was answered with error {answer.error_code}")
        self.shelf.acknowledge(one.records, answer.base_offset)
        self.shelf.told_start(answer.log_start_offset)
        self.pending.remove(one)
        self.last, self.last_offset = one, answer.base_offset

    def _is_there(self, one: Pending) -> bool:
        return all(name_of(record) in self.shelf.places for record in one.records)

    def _resume(self, talk: Talk, shift: Shift) -> None:
        """The broker knows the newest batch that it has of this producer; older ones it may not know any more."""
        vague = self.shelf.topic.compacted or self.shelf.retention_ms >= 0  # one may have come and gone unseen
        sent = list(self.pending)
        if self.last is not None and self.last_offset >= self.shelf.start:
            sent.insert(0, self.last)
        newest = max((place for place, one in enumerate(sent) if self._is_there(one)), default=-1)
        for place, one in enumerate(sent):
            known = self._is_there(one)
            talk.send_batch(self.shelf.topic.name, self.shelf.partition, one.batch)
            answer = talk.receive_produced()
            if answer.error_code == NOT_LEADER and shift.stopping:
                raise Gone
            if answer.error_code in (OUT_OF_ORDER, DUPLICATE) and (place < newest if known else vague):
                pass
            elif answer.error_code:
                raise Broken(
                    f"{self.shelf.label}: sequence {one.sequence}, sent again, was answered with error "
                    f"{answer.error_code}; it is {'' if known else 'not '}in the log"
                )
            else:
                self.shelf.acknowledge(one.records, answer.base_offset)
                self.last, self.last_offset = one, answer.base_offset
                self.again += known
            if one in self.pending:
                self.pending.remove(one)


class Reader:
    """Reads from any offset: what it gets begins there, ascends, was sent, and stays."""

    def __init__(self, shelves: Sequence[Shelf], chance: random.Random) -> None:
        self._shelves, self._chance = shelves, chance

    def __call__(self, talk: Talk) -> None:
        shelf = self._chance.choice(self._shelves)
        offset = self._chance.randint(shelf.start, shelf.end)
        read_from(talk, shelf, offset, self._chance.choice((1, 5_000, 60_000)))
        time.sleep(0.005)  # the load's pace


def read_from(talk: Talk, shelf: Shelf, offset: int, max_bytes: int) -> None:
    answer = talk.fetch(shelf.topic.name, shelf.partition, offset, max_bytes)
    if answer.error_code == NOT_LEADER:
        raise Gone
    if answer.error_code == OUT_OF_RANGE:
        start, _ = talk.offset(shelf.topic.name, shelf.partition, EARLIEST)
        shelf.told_start(start)
        if offset < start:
            return
    if answer.error_code:
        raise Broken(f"{shelf.label}: a fetch at {offset} was answered with error {answer.error_code}")
    shelf.told_start(answer.log_start_offset)
    data = answer.records or b""
    heads = batches(data, partial_tail=True)
    if heads and heads[0].last_offset < offset:
        raise Broken(f"{shelf.label}: a fetch at {offset} begins with the batch that ends at {heads[0].last_offset}")
    if heads and not shelf.topic.compacted and heads[0].base_offset > offset:
        raise Broken(f"{shelf.label}: a fetch at {offset} begins with the batch at {heads[0].base_offset}")
    for record in iterate(data, control=False, partial_tail=True):
        shelf.see(record)


class Trimmer:
    """DeleteRecords, now and then, of a part of what is there."""

    def __init__(self, shelves: Sequence[Shelf], chance: random.Random) -> None:
        self._shelves = [shelf for shelf in shelves if shelf.topic.trims]
        self._chance = chance
        self.done = 0

    def __call__(self, talk: Talk) -> None:
        shelf = self._chance.choice(self._shelves)
        with shelf.lock:
            offset = shelf.start + int((shelf.end - shelf.start) * self._chance.random() ** 3)
            shelf.delete_wanted = max(shelf.delete_wanted, offset)
        shelf.told_start(talk.delete_records(shelf.topic.name, shelf.partition, offset))
        self.done += 1
        time.sleep(self._chance.random() * 0.3)  # the load's pace


class Mover:
    """AlterReplicaLogDirs: partitions go to and fro, and some are called back half-way."""

    def __init__(self, shelves: Sequence[Shelf], directories: Sequence[str], chance: random.Random) -> None:
        self._shelves, self._directories, self._chance = shelves, directories, chance

    def __call__(self, talk: Talk) -> None:
        shelf = self._chance.choice(self._shelves)
        talk.move(shelf.topic.name, shelf.partition, self._chance.choice(self._directories))
        time.sleep(self._chance.random() * 0.1)  # the load's pace


class Alterer:
    """Changes settings of topics that are being written to."""

    def __init__(self, ledger: Ledger, topics: Sequence[Topic], chance: random.Random) -> None:
        self._ledger, self._chance = ledger, chance
        self._topics = [topic for topic in topics if topic.alterable]

    def __call__(self, talk: Talk) -> None:
        topic = self._chance.choice(self._topics)
        name = self._chance.choice(sorted(topic.alterable))
        value = self._chance.choice(topic.alterable[name])
        setting, settings = (topic.name, name), self._ledger.settings
        if setting not in settings:  # nobody has set it: it is what the broker has
            settings[setting] = {str(talk.settings(topic.name)[name])}
        settings[setting].add(value)
        talk.alter(topic.name, name, value)
        settings[setting] = {value}
        self._ledger.altered += 1
        time.sleep(self._chance.random() * 0.4)  # the load's pace


@dataclass
class Mayfly:
    """A topic that is created, written to, deleted and created again under the same name."""

    ledger: Ledger
    name: str
    topic_id: bytes | None = None
    doubt: str = ""  # "creation" or "deletion", when it was not answered
    lives: int = 0

    def work(self, chance: random.Random) -> Callable[[Talk], None]:
        def turn(talk: Talk) -> None:
            if self.topic_id is None:
                self._create(talk)
            for partition in range(2):
                shelf = self.ledger.shelves[self.name, partition]
                sending = Sending(shelf, f"{self.name}.{self.lives}.{partition}.{chance.getrandbits(40)}", chance)
                for _ in range(chance.randrange(12)):
                    self._feed(talk, shelf, sending)
            if chance.random() < 0.5:
                shelf = self.ledger.shelves[self.name, chance.randrange(2)]
                offset = chance.randint(shelf.start, shelf.end)
                shelf.delete_wanted = max(shelf.delete_wanted, offset)
                shelf.told_start(talk.delete_records(self.name, shelf.partition, offset))
            if chance.random() < 0.4:
                self.doubt = "deletion"
                talk.delete_topic(self.name)
                self._is_gone()
            time.sleep(chance.random() * 0.1)  # the load's pace

        return turn

    def _feed(self, talk: Talk, shelf: Shelf, sending: Sending) -> None:
        records = sending.records()
        shelf.send(records)
        talk.send_batch(self.name, shelf.partition, build_batch(records))
        answer = talk.receive_produced()
        if answer.error_code == NOT_LEADER:
            raise Gone
        if answer.error_code:
            raise Broken(f"{shelf.label}: a batch was answered with error {answer.error_code}")
        shelf.acknowledge(records, answer.base_offset)
        shelf.told_start(answer.log_start_offset)

    def _create(self, talk: Talk) -> None:
        self.doubt = "creation"
        self._is_there(talk.create_topic(self.name, 2, MAYFLY))

    def _is_there(self, topic_id: bytes) -> None:
        self.topic_id, self.doubt = topic_id, ""
        self.lives += 1
        self.ledger.add(Topic(self.name, MAYFLY))

    def _is_gone(self) -> None:
        self.topic_id, self.doubt = None, ""
        self.ledger.forget(self.name)

    def settle(self, found: bytes | None) -> None:
        """After a restart: what was answered holds, what was not happened whole or not at all."""
        if self.doubt == "creation" and found is not None:
            return self._is_there(found)
        if self.doubt == "deletion" and found is None:
            return self._is_gone()
        self.doubt = ""
        if found != self.topic_id:
            raise Broken(
                f"{self.name} has the id {found and found.hex()}, and {self.topic_id and self.topic_id.hex()} is owed"
            )
        return None


def mayflies(ledger: Ledger) -> list[Mayfly]:
    return [Mayfly(ledger, name) for name in MAYFLIES]
