"""Waiting for a condition, never for a while."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(condition: Callable[[], bool], limit_seconds: float) -> None:
    """Asks again until the answer is yes. The pause only spares the processor; nothing depends on its length."""
    deadline = time.monotonic() + limit_seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not so within {limit_seconds} s")
        time.sleep(0.005)
