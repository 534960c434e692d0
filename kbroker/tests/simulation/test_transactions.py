"""A hundred seeds of the simulation; `make transactions` runs as many as asked for."""

from __future__ import annotations

from itertools import permutations, product

import pytest

from kbroker.coordinator.step import Step
from kbroker.coordinator.txn.answers import ANSWERS, Do, Ends
from kbroker.coordinator.txn.shard import ABORTS, EXPIRY, Markers, Producer, TransactionShard
from kbroker.coordinator.txn.transaction import State
from kbroker.protocol.messages import InitProducerIdResponse
from kbroker.tests.simulation.transactions import PLACES, Partition, Write, run
from kbroker.tests.unit.coordinator.txn_stage import Stage

SEEDS_PER_TEST = 10
STEPS_OF_AN_END = range(len(PLACES) + 3)  # no marker, one after the other, a completion that is lost, one that is not


@pytest.mark.parametrize("first", range(0, 100, SEEDS_PER_TEST))
def test_transactions_hold_under_troubled_producers_and_crashes(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        run(seed)


def _objects(seeds: int = 60) -> bool:
    for seed in range(seeds):
        try:
            run(seed)
        except AssertionError:
            return True
    return False


def test_it_objects_when_a_restart_forgets_what_was_about_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransactionShard, "on_loaded", lambda shard, now_ms: shard._arm(Step(), now_ms, ABORTS, EXPIRY))
    assert _objects()


def test_it_objects_when_a_fence_keeps_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbroker.coordinator.txn.shard.MAX_EPOCH", -1)
    assert _objects()


def test_it_objects_when_an_end_can_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    row = ANSWERS[State.PREPARE_COMMIT]
    monkeypatch.setitem(ANSWERS, State.PREPARE_COMMIT, row._replace(init=Do.FENCE))
    assert _objects()


def test_it_objects_when_an_open_transaction_is_simply_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ANSWERS, State.ONGOING, ANSWERS[State.ONGOING]._replace(init=Do.BUMP))
    assert _objects()


def test_it_objects_when_an_abort_is_told_as_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    row = ANSWERS[State.COMPLETE_ABORT]
    monkeypatch.setitem(ANSWERS, State.COMPLETE_ABORT, row._replace(end_again=Ends(Do.SAME, Do.SAME)))
    assert _objects()


class Ending:
    """One transaction in every partition, and its end, which is broken off."""

    def __init__(self, version: int) -> None:
        self.stage = Stage()
        self.partitions = {place: Partition() for place in PLACES}
        answer = self.stage.init("a")
        self.who = Producer("a", answer.producer_id, answer.producer_epoch)
        for place in PLACES:
            self.stage.add(self.who, [place], version)
            assert self.partitions[place].write(Write(self.who.producer_id, self.who.epoch, 0))

    def work(self, steps: int, order: tuple[tuple[str, int], ...]) -> None:
        """So many steps of the end, then a crash."""
        for errand in list(self.stage.errands):
            assert isinstance(errand, Markers)
            for place in order[:steps]:
                self.partitions[place].mark(errand.producer_id, errand.epoch, commit=errand.commit)
            if steps > len(order):
                kept = len(self.stage.log)
                self.stage.finish(errand)
                if steps == len(order) + 1:
                    del self.stage.log[kept:]
        self.stage.reload()


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("cause", ["commit", "abort", "takeover", "timeout"])
def test_a_crash_at_every_step_of_an_end_and_again(cause: str, version: int) -> None:
    for order in permutations(PLACES):
        for first, second in product(STEPS_OF_AN_END, repeat=2):
            ending = Ending(version)
            stage = ending.stage
            if cause == "takeover":
                stage.init("a")
            elif cause == "timeout":
                stage.advance(75_000)
            else:
                stage.end(ending.who, commit=cause == "commit", version=version)
            for steps in (first, second, len(PLACES) + 2):
                ending.work(steps, order)
            commit = cause == "commit"
            assert stage.shard.transactions["a"].state == (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
            assert not stage.errands
            for partition in ending.partitions.values():
                assert not partition.open
                assert [fate for _, fate in partition.ended] == [commit]
            answer = stage.init("a")
            assert isinstance(answer, InitProducerIdResponse)
            assert not ending.partitions[PLACES[0]].write(Write(ending.who.producer_id, ending.who.epoch - 1, 1))
            assert ending.partitions[PLACES[0]].write(Write(answer.producer_id, answer.producer_epoch, 1))
