"""Warnings that a client can cause as often as it likes: one line per minute for events that are alike.

Threads     one: the control loop.
Bounded by  KEYS_MAX kinds of events; past it the kind that was logged longest ago is forgotten.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any

from kbroker.observe.logging import BrokerLog

INTERVAL_S = 60.0
KEYS_MAX = 1024


class _Kind:
    __slots__ = ("logged_at", "skipped")

    def __init__(self, logged_at: float) -> None:
        self.logged_at = logged_at
        self.skipped = 0


class Repeats:
    """Writes warnings to a log and skips those that were written within the last minute."""

    def __init__(self, log: BrokerLog, now: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._now = now
        self._kinds: dict[Hashable, _Kind] = {}  # the one that was logged longest ago comes first

    def warning(self, event: str, alike: Hashable, *, count: int = 1, **fields: Any) -> None:
        """Logs `event`, unless one with the same `event` and `alike` was logged less than a minute ago.

        The field `count` of the line is the number of such events since the previous line, this one included.
        """
        key, now = (event, alike), self._now()
        kind = self._kinds.get(key)
        if kind is not None:
            if now - kind.logged_at < INTERVAL_S:
                kind.skipped += count
                return
            count += kind.skipped
            del self._kinds[key]
        elif len(self._kinds) >= KEYS_MAX:
            del self._kinds[next(iter(self._kinds))]
        self._kinds[key] = _Kind(now)
        self._log.warning(event, **fields, count=count)
