"""A hundred seeds of the simulation; `make transactions` runs as many as asked for."""

from __future__ import annotations

import pytest

from kbroker.coordinator.step import Step
from kbroker.coordinator.txn.answers import ANSWERS, Do, Ends
from kbroker.coordinator.txn.shard import ABORTS, EXPIRY, TransactionShard
from kbroker.coordinator.txn.transaction import State
from kbroker.tests.simulation.transactions import run

SEEDS_PER_TEST = 10


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
