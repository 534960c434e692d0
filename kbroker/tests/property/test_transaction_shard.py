"""Replay equals live: whatever was asked of a transaction shard, one made from its log is the same, and answers alike.

Only one thing is not in the log, and is not in Kafka's: the epoch before the current one. Who goes on from that after a
reload is fenced instead of being told its answer again; so whoever goes on here does it from the current one.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.coordinator.step import Step
from kbroker.coordinator.txn.shard import Found, Overdue, Producer
from kbroker.errors import KafkaError
from kbroker.protocol.messages import EndTxnResponse, InitProducerIdResponse
from kbroker.tests.unit.coordinator.txn_stage import Stage

PAST_EVERY_TIMEOUT_MS = 75_000
SOON_MS = 5_000
LATE_EPOCH = 32_764

IDS = st.sampled_from("ab")
BEHIND = st.sampled_from([0, 0, 0, 0, -1])  # how far the producer's epoch is behind what it was told
PLACES = st.lists(st.tuples(st.sampled_from("tu"), st.integers(0, 1)), min_size=1, max_size=2)
VERSIONS = st.sampled_from([0, 2])
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("init"), IDS, st.booleans()),
        st.tuples(st.just("add"), IDS, BEHIND, PLACES, VERSIONS),
        st.tuples(st.just("verify"), IDS, BEHIND, PLACES),
        st.tuples(st.just("end"), IDS, BEHIND, st.booleans(), VERSIONS),
        st.tuples(st.just("written")),
        st.tuples(st.just("wait"), st.sampled_from([1, PAST_EVERY_TIMEOUT_MS])),
        st.tuples(st.just("epochs"), IDS),
    ),
    max_size=30,
)


class Told:
    """A shard, and what its producers were told."""

    def __init__(self) -> None:
        self.stage = Stage()
        self.known: dict[str, tuple[int, int]] = {}

    def happen(self, verb: str, *how: Any) -> object:
        """The answer, in a form that compares."""
        match verb, *how:
            case "init", who, goes_on:
                return self._hear(who, self.stage.init(who, expected=self._current(who) if goes_on else None))
            case "add", who, behind, places, version:
                return self._hear(who, self.stage.add(self._claim(who, behind), places, version))
            case "verify", who, behind, places:
                return self._hear(who, self.stage.verify(self._claim(who, behind), places))
            case "end", who, behind, commit, version:
                return self._hear(who, self.stage.end(self._claim(who, behind), commit=commit, version=version))
            case ("written",):
                self.stage.finish_all()
            case "wait", by_ms:
                self._wait(by_ms)
            case "epochs", who:
                self._use_up(who)
        return None

    def _claim(self, who: str, behind: int) -> Producer:
        producer_id, epoch = self.known.get(who, (7, 0))
        return Producer(who, producer_id, epoch + behind)

    def _current(self, who: str) -> tuple[int, int] | None:
        one = self.stage.shard.transactions.get(who)
        return None if one is None else (one.producer_id, one.epoch)

    def _hear(self, who: str, answer: Any) -> object:
        if isinstance(answer, InitProducerIdResponse | EndTxnResponse):
            self.known[who] = (answer.producer_id, answer.producer_epoch)
            return self.known[who]
        if isinstance(answer, Found):
            return answer.codes
        assert isinstance(answer, KafkaError), answer
        return answer.code

    def _wait(self, by_ms: int) -> None:
        """Whoever is overdue gets its producer id soon."""
        for passed in range(0, by_ms, SOON_MS):
            self.stage.advance(min(SOON_MS, by_ms - passed))
            for one in sorted(one for one in self.stage.errands if isinstance(one, Overdue)):
                self.stage.finish(one)

    def _use_up(self, who: str) -> None:
        """Epochs are soon at their end; only a new producer can find itself there."""
        for _ in range(2):
            self.stage.init(who)
            self.stage.finish_all()
        if self.stage.shard.transactions[who].epoch < LATE_EPOCH:
            later = self.stage.shard.transactions[who]._replace(epoch=LATE_EPOCH)
            self.stage.carry_out(Step([later.record(who, self.stage.level)]))
            self.known[who] = (later.producer_id, LATE_EPOCH)

    def facts(self) -> object:
        """All but when it happened: a reload sets the clocks of timers anew."""
        return {
            who: one._replace(start_ms=min(one.start_ms, 0), update_ms=0)
            for who, one in self.stage.shard.transactions.items()
        }


@settings(deadline=None)
@given(events=EVENTS)
def test_a_shard_made_from_its_log_is_the_live_one(events: list[tuple[Any, ...]]) -> None:
    live = Told()
    for event in events:
        live.happen(*event)
        for again in (live.stage.read_log(), live.stage.loaded()):
            assert again.transactions == live.stage.shard.transactions
            assert again.open_ids == live.stage.shard.open_ids


@settings(deadline=None)
@given(events=EVENTS)
def test_a_shard_that_is_read_again_after_each_event_answers_the_same(events: list[tuple[Any, ...]]) -> None:
    live, reloaded = Told(), Told()
    for event in events:
        reloaded.stage.reload()
        assert reloaded.happen(*event) == live.happen(*event)
        assert reloaded.facts() == live.facts()
        assert set(reloaded.stage.errands) == set(live.stage.errands)
