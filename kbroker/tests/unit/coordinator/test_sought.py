"""How many clients are behind the questions where a group's coordinator is."""

from __future__ import annotations

from kbroker.coordinator.group.sought import ASKERS_MAX, GROUPS_MAX, MOMENT_MS, REMEMBERED_MS, Sought

NOW_MS = 1_000_000


def asked(*questions: tuple[str, int]) -> Sought:
    sought = Sought()
    for who, after_ms in questions:
        sought.note("g", who, NOW_MS + after_ms)
    return sought


def test_nobody_asked() -> None:
    assert Sought().clients("g", NOW_MS) == 0


def test_connections_that_ask_in_the_same_moment_are_so_many_clients() -> None:
    sought = asked(("a", 0), ("b", 5), ("a", 6), ("c", MOMENT_MS - 1))
    assert sought.clients("g", NOW_MS + MOMENT_MS) == 3


def test_a_connection_that_asks_later_may_be_a_client_that_asked_before() -> None:
    assert asked(("a", 0), ("b", MOMENT_MS)).clients("g", NOW_MS + MOMENT_MS) == 1


def test_of_several_moments_the_busiest_counts() -> None:
    sought = asked(("a", 0), ("b", 50), ("c", 51), ("d", 120))
    assert sought.clients("g", NOW_MS + 120) == 2


def test_what_is_long_ago_is_forgotten() -> None:
    sought = asked(("a", 0), ("b", 0))
    assert sought.clients("g", NOW_MS + REMEMBERED_MS - 1) == 2
    assert sought.clients("g", NOW_MS + REMEMBERED_MS) == 0


def test_a_clock_that_was_set_back_does_not_bring_old_questions_back() -> None:
    assert asked(("a", 0), ("b", 0)).clients("g", NOW_MS - 1) == 0


def test_groups_are_told_apart_and_forgotten_one_by_one() -> None:
    sought = asked(("a", 0))
    sought.note("other", "b", NOW_MS)
    assert sought.clients("g", NOW_MS) == 1
    sought.forget("g")
    assert sought.clients("g", NOW_MS) == 0
    assert sought.clients("other", NOW_MS) == 1


def test_what_is_remembered_has_a_bound() -> None:
    sought = Sought()
    for number in range(2 * ASKERS_MAX):
        sought.note("g", str(number), NOW_MS)
    assert sought.clients("g", NOW_MS) == ASKERS_MAX
    for number in range(GROUPS_MAX):
        sought.note(f"g{number}", "a", NOW_MS)
    assert sought.clients("g", NOW_MS) == 0
