"""What the control loop does before it sleeps: it may stay awake for a moment, for a request that will come at once.

To be woken takes as long as many an answer, and longer on a processor that has gone to sleep as well. A producer that
was just told its batch is in the transaction ends it next; so after such an answer the loop lingers. It holds neither
the GIL nor the processor meanwhile: whoever else wants one has it. Where nobody comes in time, it soon no longer waits.
"""

from __future__ import annotations

import selectors
from collections.abc import Callable
from typing import Any

LINGER_US = 250  # longer than a client takes that has nothing else to do
TRUST_MAX = 16  # so often in a row nobody may come before it is given up
TRY_AGAIN = 32  # and of so many chances one is taken then


class Patience:
    """Whether to linger. `wait` waits so many microseconds for a request, and says whether there is one."""

    def __init__(self, wait: Callable[[int], bool]) -> None:
        self._wait = wait
        self._expected = False
        self._trust = TRUST_MAX
        self._passed = 0

    def expect(self) -> None:
        """What was just asked is followed by another request of its client, once it is answered."""
        self._expected = True

    def before_sleep(self, timeout: float | None) -> None:
        """At most until the next timer, in seconds."""
        if not self._expected:
            return
        self._expected = False
        if not self._trust:
            self._passed += 1
            if self._passed < TRY_AGAIN:
                return
            self._passed = 0
        if self._wait(LINGER_US if timeout is None else min(LINGER_US, int(timeout * 1_000_000))):
            self._trust = min(self._trust + 2, TRUST_MAX)
        else:
            self._trust = max(self._trust - 1, 0)


class PatientSelector(selectors.DefaultSelector):
    """Tells when the loop is about to sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.before_sleep: Callable[[float | None], None] | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
        if self.before_sleep is not None and (timeout is None or timeout > 0):
            self.before_sleep(timeout)
        return super().select(timeout)
