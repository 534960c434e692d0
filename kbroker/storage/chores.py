"""What is to be done from time to time, and what of it is due. It is told the time and does nothing by itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

Work = Callable[[], Awaitable[None]]
FAR_MS = 1 << 62


@dataclass(slots=True)
class Chore:
    name: str  # completes "… failed"
    work: Work
    due_ms: int
    every_ms: int | None  # None: once


class Chores:
    """Those that wait. What is due is handed out and waits again when it is done: it is never done twice at once."""

    def __init__(self) -> None:
        self._waiting: list[Chore] = []

    def every(self, name: str, every_ms: int, work: Work, *, first_ms: int) -> None:
        """At `first_ms`, and from then on `every_ms` after it was begun; 0 does not spin."""
        self._waiting.append(Chore(name, work, first_ms, max(1, every_ms)))

    def once(self, name: str, at_ms: int, work: Work) -> None:
        self._waiting.append(Chore(name, work, at_ms, None))

    def wait_ms(self, now_ms: int) -> int:
        """How long nothing is due, if nobody moves the clock."""
        return max(0, min((one.due_ms for one in self._waiting), default=FAR_MS) - now_ms)

    def due(self, now_ms: int) -> list[Chore]:
        """What is to be done now, the longest due first. However long nobody asked, each is due once."""
        found = sorted((one for one in self._waiting if one.due_ms <= now_ms), key=lambda one: one.due_ms)
        self._waiting = [one for one in self._waiting if one.due_ms > now_ms]
        for one in found:
            one.due_ms = now_ms + (one.every_ms or 0)
        return found

    def done(self, chore: Chore) -> None:
        """It waits again, if it is of those that come again."""
        if chore.every_ms is not None:
            self._waiting.append(chore)
