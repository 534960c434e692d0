"""Deadlines against a model: a dictionary that is searched."""

from __future__ import annotations

import weakref

from hypothesis import given
from hypothesis import strategies as st

from kbroker.coordinator.timers import SPARE_ENTRIES, Timers

NAMES = st.sampled_from("abcdef")
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("arm"), NAMES, st.integers(0, 50)),
        st.tuples(st.just("disarm"), NAMES, st.just(0)),
        st.tuples(st.just("pass"), st.just(""), st.integers(0, 20)),
    )
)


@given(EVENTS)
def test_due_names_are_those_of_a_model(events: list[tuple[str, str, int]]) -> None:
    timers: Timers[str] = Timers()
    model: dict[str, int] = {}
    now = 0
    for what, name, number in events:
        if what == "arm":
            timers.arm(name, now + number)
            model[name] = now + number
        elif what == "disarm":
            timers.disarm(name)
            model.pop(name, None)
        else:
            now += number
            expected = sorted(one for one, at_ms in model.items() if at_ms <= now)
            due = timers.due(now)
            assert sorted(due) == expected
            deadlines = [model.pop(one) for one in due]
            assert deadlines == sorted(deadlines)
        assert len(timers) == len(model)
        next_ms = timers.next_ms()
        assert (next_ms is None) == (not model)
        if next_ms is not None:
            assert next_ms == min(model.values())


def test_moving_a_deadline_a_thousand_times_leaves_one_entry() -> None:
    timers: Timers[str] = Timers()
    for at_ms in range(1000):
        timers.arm("heartbeat", 45_000 + at_ms)
    assert timers.due(45_998) == []
    assert timers.due(45_999) == ["heartbeat"]
    assert timers.due(99_999) == []


def test_names_that_were_disarmed_are_forgotten_at_once_and_their_places_soon() -> None:
    class Name:
        pass

    timers: Timers[Name] = Timers()
    kept = [Name() for _ in range(100)]
    for one in kept:
        timers.arm(one, 1_000_000)
    alive: weakref.WeakSet[Name] = weakref.WeakSet()
    for _ in range(5_000):
        name = Name()
        alive.add(name)
        timers.arm(name, 1_800_000)
        timers.arm(name, 1_700_000)
        timers.disarm(name)
    del name
    assert not alive
    assert len(timers._heap) <= 2 * len(kept) + SPARE_ENTRIES + 2
    assert timers.due(2_000_000) == kept


def test_all_names_of_one_kind_are_disarmed_together() -> None:
    timers: Timers[tuple[str, int]] = Timers()
    for number in range(500):
        timers.arm(("gone", number), number)
        timers.arm(("here", number), number)
    timers.disarm_all(lambda name: name[0] == "gone")
    assert timers.due(1_000) == [("here", number) for number in range(500)]
