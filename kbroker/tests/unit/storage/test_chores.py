"""When a chore is due."""

from kbroker.storage.chores import Chores


async def nothing() -> None:
    pass


def names(chores: Chores, now_ms: int) -> list[str]:
    """What is due, done at once."""
    found = chores.due(now_ms)
    for chore in found:
        chores.done(chore)
    return [chore.name for chore in found]


def test_a_chore_is_due_at_its_first_time_and_then_from_when_it_was_begun() -> None:
    chores = Chores()
    chores.every("a", 100, nothing, first_ms=30)
    assert names(chores, 29) == []
    assert names(chores, 35) == ["a"]
    assert names(chores, 134) == []
    assert names(chores, 135) == ["a"]


def test_a_clock_that_leaps_makes_a_chore_due_once() -> None:
    chores = Chores()
    chores.every("a", 100, nothing, first_ms=100)
    assert names(chores, 100_000) == ["a"]
    assert names(chores, 100_001) == []


def test_the_longest_due_comes_first() -> None:
    chores = Chores()
    chores.every("slow", 1000, nothing, first_ms=500)
    chores.once("now", 40, nothing)
    chores.every("quick", 10, nothing, first_ms=10)
    assert names(chores, 600) == ["quick", "now", "slow"]


def test_what_is_done_once_is_not_due_again() -> None:
    chores = Chores()
    chores.once("a", 10, nothing)
    assert names(chores, 10) == ["a"]
    assert names(chores, 10_000) == []


def test_the_wait_is_for_the_next_that_is_due() -> None:
    chores = Chores()
    chores.every("a", 100, nothing, first_ms=100)
    chores.once("b", 40, nothing)
    assert [chores.wait_ms(now) for now in (0, 39, 41)] == [40, 1, 0]
    names(chores, 41)
    assert chores.wait_ms(41) == 59


def test_an_interval_of_zero_does_not_spin() -> None:
    chores = Chores()
    chores.every("a", 0, nothing, first_ms=0)
    names(chores, 5)
    assert chores.wait_ms(5) == 1


def test_a_chore_that_takes_longer_than_its_interval_is_not_begun_twice() -> None:
    chores = Chores()
    chores.every("a", 10, nothing, first_ms=10)
    (begun,) = chores.due(10)
    assert names(chores, 500) == []
    chores.done(begun)
    assert names(chores, 500) == ["a"]
