"""When the control loop stays awake for a request, and when it does not."""

from __future__ import annotations

import asyncio
import socket

from kbroker._core.clock import BrokerClock
from kbroker._core.core import Core
from kbroker.patience import LINGER_US, TRUST_MAX, TRY_AGAIN, Patience, PatientSelector
from kbroker.tests.unit.net.harness import request

LONG_US = 20_000_000


class Waits:
    def __init__(self, *, comes: bool) -> None:
        self.comes = comes
        self.waited: list[int] = []
        self.served = 0

    def serve(self) -> None:
        self.served += 1

    def __call__(self, microseconds: int) -> bool:
        self.waited.append(microseconds)
        return self.comes


def sleeps(patience: Patience, times: int) -> None:
    for _ in range(times):
        patience.expect()
        patience.before_sleep(None)


def test_nobody_is_waited_for_who_is_not_expected() -> None:
    waits = Waits(comes=True)
    patience = Patience(waits, waits.serve)
    assert not patience.before_sleep(None)
    patience.expect()
    assert patience.before_sleep(None)
    assert not patience.before_sleep(None)
    assert waits.waited == [LINGER_US]
    assert waits.served == 1


def test_a_timer_is_not_kept_waiting() -> None:
    waits = Waits(comes=True)
    patience = Patience(waits, waits.serve)
    patience.expect()
    patience.before_sleep(0.0001)
    assert waits.waited == [100]


def test_a_wait_that_a_timer_ends_at_once_is_none() -> None:
    waits = Waits(comes=False)
    patience = Patience(waits, waits.serve)
    for _ in range(2 * TRUST_MAX):
        patience.expect()
        assert not patience.before_sleep(0.00001)
    assert waits.waited == []
    sleeps(patience, 1)
    assert waits.waited == [LINGER_US]


def test_who_never_comes_is_soon_waited_for_only_now_and_then() -> None:
    waits = Waits(comes=False)
    patience = Patience(waits, waits.serve)
    sleeps(patience, TRUST_MAX + 10 * TRY_AGAIN)
    assert len(waits.waited) == TRUST_MAX + 10
    assert waits.served == 0


def test_who_comes_less_often_than_not_is_given_up() -> None:
    waits = Waits(comes=False)
    patience = Patience(waits, waits.serve)
    for number in range(300):
        waits.comes = number % 3 == 0
        sleeps(patience, 1)
    assert len(waits.waited) < 150


def test_who_comes_again_is_trusted_again() -> None:
    waits = Waits(comes=False)
    patience = Patience(waits, waits.serve)
    sleeps(patience, TRUST_MAX + TRY_AGAIN - 1)
    waits.waited.clear()
    waits.comes = True
    sleeps(patience, 50)
    assert len(waits.waited) == 50


def test_a_loop_tells_before_it_sleeps_and_only_then() -> None:
    selector = PatientSelector()
    told: list[float | None] = []

    def before_sleep(timeout: float | None) -> bool:
        told.append(timeout)
        return len(told) == 1

    async def story() -> None:
        selector.ask(before_sleep)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert told == []
        await asyncio.sleep(0.001)
        assert len(told) > 1
        assert all(one is not None and 0 < one <= 0.001 for one in told)

    loop = asyncio.SelectorEventLoop(selector)
    try:
        loop.run_until_complete(story())
    finally:
        loop.close()


def test_a_core_lingers_until_something_is_posted() -> None:
    core = Core(BrokerClock(), node_id=1)
    port = core.listen("127.0.0.1", 0)
    core.start()
    try:
        assert not core.linger(0)
        assert not core.linger(1_000)
        with socket.create_connection(("127.0.0.1", port), 30) as client:
            client.sendall(request(1))
            assert core.linger(LONG_US)
            assert core.linger(0)
            assert len(core.take()) == 1
            assert not core.linger(0)
    finally:
        core.close()
    assert not core.linger(LONG_US)
