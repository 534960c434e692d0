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
    """Whether to linger. `wait` waits so many microseconds for a request, and says whether there is one to `serve`."""

    def __init__(self, wait: Callable[[int], bool], serve: Callable[[], None]) -> None:
        self._wait = wait
        self._serve = serve
        self._expected = False
        self._trust = TRUST_MAX
        self._passed = 0

    def expect(self) -> None:
        """What was just asked is followed by another request of its client, once it is answered."""
        self._expected = True

    def before_sleep(self, timeout: float | None) -> bool:
        """At most until the next timer, in seconds. True: somebody was served, and the loop has not slept."""
        if not self._expected:
            return False
        self._expected = False
        if not self._trust:
            self._passed += 1
            if self._passed < TRY_AGAIN:
                return False
            self._passed = 0
        if not self._wait(LINGER_US if timeout is None else min(LINGER_US, int(timeout * 1_000_000))):
            self._trust = max(self._trust - 1, 0)
            return False
        self._trust = min(self._trust + 2, TRUST_MAX)
        self._serve()
        return True


class PatientSelector(selectors.DefaultSelector):
    """Tells when the loop is about to sleep; if there was something to do instead, it does not."""

    def __init__(self) -> None:
        super().__init__()
        self.before_sleep: Callable[[float | None], bool] | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
        awake = timeout is not None and timeout <= 0
        if not awake and self.before_sleep is not None and self.before_sleep(timeout):
            timeout = 0
        return super().select(timeout)
