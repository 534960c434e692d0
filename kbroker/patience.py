"""What the control loop does before it sleeps: it may stay awake for a moment, for a request that will come at once.

To be woken takes as long as many an answer, and longer on a processor that has gone to sleep as well. A producer that
was just told its batch is in the transaction often ends it next; so behind such an answer the loop lingers. It holds
neither the GIL nor the processor meanwhile: whoever else wants one has it. Where requests come in time less often than
not, it soon no longer waits.
"""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable
from typing import Any

LINGER_US = 250  # longer than a client takes that has nothing else to do
SHORTEST_US = 50  # a wait that a timer would end sooner is none
TRUST_MAX = 16  # how much oftener in vain than not it may wait before it gives up
TRY_AGAIN = 32  # and of so many chances one is taken then


class Patience:
    """Whether to linger. `wait` waits so many microseconds for a request, and says whether there is one to `serve`."""

    def __init__(self, wait: Callable[[int], bool], serve: Callable[[], None]) -> None:
        self._wait = wait
        self._serve = serve
        self._expected = False
        self._trust = TRUST_MAX
        self._passed = 0

    def expect(self) -> None:
        """Whoever was just answered is likely to ask for more at once."""
        self._expected = True

    def before_sleep(self, timeout: float | None) -> bool:
        """At most until the next timer, in seconds. True: somebody was served, and the loop has not slept."""
        if not self._expected:
            return False
        self._expected = False
        wait_us = LINGER_US if timeout is None else min(LINGER_US, int(timeout * 1_000_000))
        if wait_us < SHORTEST_US or not self._is_worth_it():
            return False
        came = self._wait(wait_us)
        self._trust = min(self._trust + 1, TRUST_MAX) if came else max(self._trust - 1, 0)
        if came:
            self._serve()
        return came

    def _is_worth_it(self) -> bool:
        if self._trust:
            return True
        self._passed = (self._passed + 1) % TRY_AGAIN
        return self._passed == 0


class PatientSelector(selectors.DefaultSelector):
    """Tells when the loop is about to sleep; if there was something to do instead, it does not."""

    def __init__(self) -> None:
        super().__init__()
        self._before_sleep: Callable[[float | None], bool] | None = None

    def ask(self, before_sleep: Callable[[float | None], bool]) -> None:
        """Before each sleep from now on; not on a machine where nobody gets on while this loop is awake."""
        if processors() > 1:
            self._before_sleep = before_sleep

    def ask_nobody(self) -> None:
        self._before_sleep = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
        awake = timeout is not None and timeout <= 0
        if not awake and self._before_sleep is not None and self._before_sleep(timeout):
            timeout = 0
        return super().select(timeout)


def processors() -> int:
    """Those that this process may run on."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
