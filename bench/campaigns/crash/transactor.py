"""Transactional producers: those who live through the kills and end what they began, and those who walk away from it.

Every transaction writes to a topic of which nothing is ever deleted, besides others: what became of a commit that was
not answered is told there. A record is hidden from readers of committed records from the moment it is sent until its
commit is asked for, and again when it turns out that it was not committed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.campaigns.crash.ledger import Broken, Shelf, name_of
from bench.campaigns.crash.load import CODECS, Sending, Shift
from bench.campaigns.crash.talk import NOT_LEADER, Gone, Talk
from bench.campaigns.transactional import RefusedError, TransactionalProducer, committed_offset

PATIENT_MS = 60_000  # longer than a cycle: only the producer's return ends its transaction
# INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED: its time was up
TIMED_OUT = {47, 48, 49, 90}


@dataclass
class Transaction:
    names: list[tuple[Shelf, str]] = field(default_factory=list)
    offset: int | None = None  # what the group is told in it
    commit_asked: bool = False

    def hide(self) -> None:
        for shelf, name in self.names:
            with shelf.lock:
                shelf.hidden.add(name)

    def show(self) -> None:
        for shelf, name in self.names:
            with shelf.lock:
                shelf.hidden.discard(name)


class Writing:
    """The records of one transaction, sent one batch after the other."""

    def __init__(self, producer: TransactionalProducer, shelves: Sequence[Shelf], chance: random.Random) -> None:
        self._producer, self._shelves, self._chance = producer, shelves, chance

    def write(self, one: Transaction, who: str) -> None:
        """The first batch goes to the first shelf."""
        chosen = [self._shelves[0], *self._chance.choices(self._shelves, k=self._chance.randrange(4))]
        for number, shelf in enumerate(chosen):
            records = Sending(shelf, f"{who}.{number}", self._chance).records()
            one.names += [(shelf, name_of(record)) for record in records]
            one.hide()
            shelf.send(records)
            place = (shelf.topic.name, shelf.partition)
            shelf.acknowledge(records, self._producer.send(place, records, self._chance.choice(CODECS)))


@dataclass
class Transactor:
    """Outlives the kills. When it comes back, what it had begun is ended: committed only if that was asked for."""

    shelves: Sequence[Shelf]
    who: str
    implicit: bool
    serial: int = 0
    offset: int = -1  # the group's, by the last transaction that was committed
    left: Transaction | None = None  # what the last kill interrupted
    committed: int = 0
    aborted: int = 0

    @property
    def group(self) -> str:
        return f"group-{self.who}"

    @property
    def place(self) -> tuple[str, int]:
        return self.shelves[0].topic.name, self.shelves[0].partition

    def producer(self, talk: Talk) -> TransactionalProducer:
        return TransactionalProducer(talk.ask, self.who, PATIENT_MS, implicit=self.implicit)

    def work(self, shift: Shift, chance: random.Random) -> Callable[[Talk], None]:
        producer: TransactionalProducer | None = None

        def turn(talk: Talk) -> None:
            nonlocal producer
            try:
                if producer is None or chance.random() < 0.05:
                    producer = self.producer(talk)
                    producer.init()
                self._one(producer, chance)
            except RefusedError as refused:
                if refused.code == NOT_LEADER and shift.stopping:
                    raise Gone from None
                raise Broken(str(refused)) from None
            Sending(self.shelves[0], self.who, chance).pause()

        return turn

    def _one(self, producer: TransactionalProducer, chance: random.Random) -> None:
        self.serial += 1
        self.left = one = Transaction()
        Writing(producer, self.shelves, chance).write(one, f"{self.who}.{self.serial}")
        if chance.random() < 0.5:
            one.offset = self.serial
            producer.commit_offset(self.group, self.place, one.offset)
        fate = chance.random()
        if fate < 0.65:
            one.commit_asked = True
            one.show()
            producer.end(commit=True)
            self._is_committed(one)
        elif fate < 0.9:
            producer.end(commit=False)
            self._is_aborted(one)
        else:
            producer.init()  # ends it as well
            self._is_aborted(one)

    def _is_committed(self, one: Transaction) -> None:
        self.left = None
        self.committed += 1
        self.offset = self.offset if one.offset is None else one.offset

    def _is_aborted(self, one: Transaction) -> None:
        one.hide()
        self.left = None
        self.aborted += 1

    def come_back(self, talk: Talk) -> None:
        """After a restart; what was interrupted is ended when this returns."""
        try:
            self.producer(talk).init()
        except RefusedError as refused:
            raise Broken(str(refused)) from None

    def learn(self, visible: set[str]) -> None:
        """What became of what was interrupted, from what readers of committed records find on the first shelf."""
        if (one := self.left) is None:
            return
        first = [name for shelf, name in one.names if shelf is self.shelves[0]]
        if one.commit_asked and any(name in visible for name in first):
            self._is_committed(one)
        else:
            self._is_aborted(one)

    def judge_offset(self, talk: Talk) -> None:
        try:
            told = committed_offset(talk.ask, self.group, self.place)
        except RefusedError as refused:
            raise Broken(str(refused)) from None
        if told != self.offset:
            raise Broken(f"{self.group} stands at {told}, and {self.offset} was the last to be committed")


class Walker:
    """Begins transactions, each under a name of its own, and walks away: the broker ends them when their time is up."""

    def __init__(self, shift: Shift, shelves: Sequence[Shelf], who: str, chance: random.Random) -> None:
        self._shift, self._shelves, self._who, self._chance = shift, shelves, who, chance
        self.left = 0

    def __call__(self, talk: Talk) -> None:
        who = f"{self._who}.{self.left}"
        implicit = self._chance.random() < 0.5
        producer = TransactionalProducer(talk.ask, who, self._chance.randrange(200, 800), implicit=implicit)
        try:
            producer.init()
            Writing(producer, self._shelves, self._chance).write(Transaction(), who)
        except RefusedError as refused:
            if refused.code == NOT_LEADER and self._shift.stopping:
                raise Gone from None
            if refused.code not in TIMED_OUT:
                raise Broken(str(refused)) from None
        self.left += 1
        for _ in range(6):
            Sending(self._shelves[0], who, self._chance).pause()
