"""Deadlines against a model: a dictionary that is searched."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kbroker.coordinator.timers import Timers

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
