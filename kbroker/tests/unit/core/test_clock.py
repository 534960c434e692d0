import pytest

from kbroker._core.clock import BrokerClock


def test_a_held_clock_moves_only_when_advanced() -> None:
    clock = BrokerClock()
    clock.hold(wall=1_000)
    mono = clock.monotonic_ms()
    assert clock.now_ms() == 1_000
    clock.advance(250)
    assert clock.now_ms() == 1_250
    assert clock.monotonic_ms() == mono + 250


def test_a_running_clock_can_be_set_ahead() -> None:
    clock = BrokerClock()
    before = clock.now_ms()
    clock.advance(86_400_000)
    assert clock.now_ms() >= before + 86_400_000


def test_time_does_not_run_backwards() -> None:
    with pytest.raises(ValueError, match="backwards"):
        BrokerClock().advance(-1)
