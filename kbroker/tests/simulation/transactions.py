"""Transactions under producers that crash, stall, ask twice and are fenced, and a broker that crashes at any step.

    python -m kbroker.tests.simulation.transactions --seeds 10000      many, the first failure is told with its seed
    python -m kbroker.tests.simulation.transactions --seed 42          one again

The coordinator's shard decides; its log, and the partitions that producers write to, are lists. A partition takes what
the coordinator verified and what has the newest epoch that it knows of; a marker raises that epoch. The broker may
crash between any two of: a decision, the commit of its record, each single marker, the completion. Records that were
not committed may be lost then.

What must hold: a transaction whose commit was acknowledged is committed in every partition it wrote to; one whose abort
was acknowledged, or that was fenced, is aborted in every one; no partition says commit where another says abort; no two
producers hold one id and epoch, and no producer id is dealt twice; a shard made from the log is the live one; when
everyone has come to rest no transaction is open in any partition.
"""

from __future__ import annotations

import random
import sys
from typing import Any, NamedTuple

from kbroker.coordinator.step import Step
from kbroker.coordinator.txn.settings import TransactionSettings
from kbroker.coordinator.txn.shard import Found, Markers, Overdue, Producer
from kbroker.coordinator.txn.transaction import PREPARED, Place, State, is_exhausted
from kbroker.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    KafkaError,
    ProducerFencedError,
)
from kbroker.protocol.messages import EndTxnResponse, InitProducerIdResponse
from kbroker.tests.simulation.seeds import main
from kbroker.tests.unit.coordinator.txn_stage import Stage

PLACES: list[Place] = [("t", 0), ("t", 1), ("u", 0)]
IDS = ("a", "b")
STEPS = 220
TIMEOUT_MS = 30_000
WAITS = (ConcurrentTransactionsError,)
FENCES = (ProducerFencedError, InvalidProducerIdMappingError)


class Write(NamedTuple):
    """A batch in a partition."""

    producer_id: int
    epoch: int
    transaction: int  # which of the world's


class Partition:
    """What a partition's log and its producer state know of transactions."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.open: dict[int, list[Write]] = {}  # by producer id
        self.ended: list[tuple[Write, bool]] = []

    def write(self, write: Write) -> bool:
        if write.epoch < self.epochs.get(write.producer_id, -1):
            return False
        self.epochs[write.producer_id] = write.epoch
        self.open.setdefault(write.producer_id, []).append(write)
        return True

    def mark(self, producer_id: int, epoch: int, *, commit: bool) -> None:
        assert epoch >= self.epochs.get(producer_id, -1), "a marker below the epoch of what it ends"
        self.epochs[producer_id] = epoch
        self.ended += [(one, commit) for one in self.open.pop(producer_id, [])]


class Client:
    """A producer: one transaction after the other, as clients do it."""

    def __init__(self, world: World, transactional_id: str, version: int) -> None:
        self.world, self.transactional_id, self.version = world, transactional_id, version
        self.who: Producer | None = None
        self.transaction: int | None = None
        self.wanted: bool | None = None  # how it is ending: its answer has not come

    def turn(self) -> None:
        rng = self.world.rng
        if self.who is None:
            self.init()
        elif self.wanted is not None:
            self.end(self.wanted)
        elif self.transaction is None or rng.random() < 0.6:
            self.write(rng.choice(PLACES))
        else:
            self.end(rng.random() < 0.6)

    def init(self, expected: tuple[int, int] | None = None) -> None:
        answer = self.world.ask("init", self.transactional_id, TIMEOUT_MS, expected)
        if isinstance(answer, InitProducerIdResponse):
            self.world.given(answer.producer_id, answer.producer_epoch, again=expected is not None)
            self.who = Producer(self.transactional_id, answer.producer_id, answer.producer_epoch)
            self.forget()
        elif answer is not None:
            assert isinstance(answer, (*WAITS, *FENCES)), answer

    def forget(self) -> None:
        self.transaction, self.wanted = None, None

    def write(self, place: Place) -> None:
        assert self.who is not None
        if self.version < 2:
            if not self.took(self.world.ask("add", self.who, [place], 0)):
                return
            if self.world.rng.random() < 0.1:
                return  # added, and nothing written
            answer = self.world.ask("verify", self.who, [place])
        else:
            answer = self.world.ask("add", self.who, [place], 2)
        if self.took(answer) and isinstance(answer, Found) and answer.codes[place] == 0:
            if self.transaction is None:
                self.transaction = self.world.begin()
            write = Write(self.who.producer_id, self.who.epoch, self.transaction)
            if not self.world.partitions[place].write(write):
                self.gone()
            else:
                self.world.written[self.transaction].add(place)

    def took(self, answer: Any) -> bool:
        if isinstance(answer, FENCES):
            self.gone()
        assert answer is None or isinstance(answer, (Found, *WAITS, *FENCES)), answer
        return isinstance(answer, Found)

    def gone(self) -> None:
        """Fenced: whatever was open is aborted. It tries to go on from where it was, or begins anew."""
        if self.transaction is not None and self.wanted is None:
            self.world.expect(self.transaction, commit=False)
        who, self.who = self.who, None
        self.forget()
        if who is not None and self.world.rng.random() < 0.3:
            self.init((who.producer_id, who.epoch))

    def end(self, commit: bool) -> None:
        assert self.who is not None
        self.wanted = commit
        answer = self.world.ask("end", self.who, commit=commit, version=self.version)
        if isinstance(answer, EndTxnResponse):
            if self.world.rng.random() < 0.1:
                return  # the answer is lost, and it asks again
            if self.transaction is not None:
                self.world.expect(self.transaction, commit=commit)
            if self.version >= 2:
                if (answer.producer_id, answer.producer_epoch) != self.who[1:]:
                    self.world.given(answer.producer_id, answer.producer_epoch, again=True)
                self.who = Producer(self.transactional_id, answer.producer_id, answer.producer_epoch)
            self.forget()
        elif isinstance(answer, FENCES):
            self.gone()
        elif isinstance(answer, InvalidTxnStateError):
            # Nothing was open, or it timed out before its commit came.
            if self.transaction is not None:
                self.world.expect(self.transaction, commit=False)
            self.who = None
            self.forget()


class World:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.stage = Stage(TransactionSettings(), level=2, first_id=100)
        self.partitions = {place: Partition() for place in PLACES}
        self.written: list[set[Place]] = []  # of each transaction, where it wrote
        self.expected: dict[int, bool] = {}  # what was acknowledged
        self.holders: dict[tuple[int, int], int] = {}
        self.clients: list[Client] = []
        self.left: dict[Markers, list[Place]] = {}  # markers that are not written yet
        self.calm = False

    # ---- what clients do ----

    def begin(self) -> int:
        self.written.append(set())
        return len(self.written) - 1

    def expect(self, transaction: int, *, commit: bool) -> None:
        assert self.expected.setdefault(transaction, commit) == commit, "acknowledged both ways"

    def given(self, producer_id: int, epoch: int, *, again: bool) -> None:
        """No two producers may hold one id and epoch; one may be told its own twice."""
        count = self.holders.get((producer_id, epoch), 0)
        assert again or not count, f"{producer_id}/{epoch} was given to two producers"
        assert epoch <= 32_766, "a producer was told the epoch that fences"
        self.holders[producer_id, epoch] = count + 1

    def ask(self, verb: str, *arguments: Any, **more: Any) -> Any:
        """The answer, or None: the broker crashed on the way, after the record was committed or before."""
        kept = len(self.stage.log)
        answer = getattr(self.stage, verb)(*arguments, **more)
        if not self.calm and self.rng.random() < 0.03:
            if self.rng.random() < 0.5:
                del self.stage.log[kept:]  # never committed, so nobody was told of it
            self.crash()
            return None
        assert not isinstance(answer, Exception) or isinstance(answer, KafkaError), answer
        return answer

    # ---- what the broker does ----

    def crash(self) -> None:
        self.left.clear()
        self.stage.reload()

    def work(self) -> None:
        """One marker, or one completion, or one other errand."""
        if not self.stage.errands:
            return
        errand = self.rng.choice(self.stage.errands)
        if isinstance(errand, Overdue):
            self.stage.finish(errand)
            return
        left = self.left.setdefault(errand, sorted(errand.places))
        if left:
            place = left.pop(self.rng.randrange(len(left)))
            self.partitions[place].mark(errand.producer_id, errand.epoch, commit=errand.commit)
        else:
            del self.left[errand]
            kept = len(self.stage.log)
            self.stage.finish(errand)
            if not self.calm and self.rng.random() < 0.1:
                if self.rng.random() < 0.5:
                    del self.stage.log[kept:]
                self.crash()

    def jump(self) -> None:
        """So many epochs later: they are used up soon."""
        for transactional_id, one in list(self.stage.shard.transactions.items()):
            if one.state in (State.EMPTY, State.COMPLETE_COMMIT) and not is_exhausted(one.epoch + 5):
                later = one._replace(epoch=32_764)
                self.stage.carry_out(Step([later.record(transactional_id, 2)]))
                for client in self.clients:
                    if client.transactional_id == transactional_id:
                        client.who = None
                        client.forget()

    def trouble(self) -> None:
        chance = self.rng.random()
        if chance < 0.04:
            self.crash()
        elif chance < 0.10:
            self.stage.advance(self.rng.choice([1, 500, 10_000, 40_000]))
        elif chance < 0.13 and self.clients:
            self.clients.remove(self.rng.choice(self.clients))  # it crashed
        elif chance < 0.18:
            self.clients.append(Client(self, self.rng.choice(IDS), self.rng.choice([0, 2, 2])))
        elif chance < 0.19:
            self.jump()

    def run(self) -> None:
        for _ in range(STEPS):
            self.trouble()
            if self.clients and self.rng.random() < 0.7:
                self.rng.choice(self.clients).turn()
            for _ in range(self.rng.randrange(3)):
                self.work()
            self.stage.check_replay()
            self.check()

    def rest(self) -> None:
        """Nobody produces any more: what is open becomes too old."""
        self.calm = True
        self.clients.clear()
        for _ in range(4):
            self.stage.advance(TIMEOUT_MS + 10_001)
            while self.stage.errands:
                self.work()
        self.stage.check_replay()
        self.check()
        assert not self.stage.shard.open_ids
        for one in self.stage.shard.transactions.values():
            assert one.state not in PREPARED, one
        for place, partition in self.partitions.items():
            assert not partition.open, f"a transaction is open for ever in {place}"
        for transaction, places in enumerate(self.written):
            for place in places:
                fates = [fate for one, fate in self.partitions[place].ended if one.transaction == transaction]
                assert fates, "written and never ended"

    def check(self) -> None:
        fates: dict[int, bool] = {}
        for partition in self.partitions.values():
            for write, commit in partition.ended:
                known = fates.setdefault(write.transaction, commit)
                assert known == commit, "torn: committed in one partition and aborted in another"
        for transaction, commit in self.expected.items():
            assert fates.get(transaction, commit) == commit, f"acknowledged as {commit}, ended as {not commit}"


def run(seed: int) -> None:
    world = World(seed)
    world.run()
    world.rest()


if __name__ == "__main__":
    sys.exit(main("transactions", "troubled producers and a crashing broker", run))
