"""Deadlines by name. Moving one costs a dictionary entry: a group's members move theirs with every heartbeat."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Timers(Generic[K]):
    """The heap holds one entry a name, at or before its deadline; one that comes up too early goes back in."""

    def __init__(self) -> None:
        self._deadlines: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._entries: dict[K, int] = {}  # where the name's entry that counts stands
        self._count = 0  # so that names are never compared

    def __len__(self) -> int:
        return len(self._deadlines)

    def arm(self, name: K, at_ms: int) -> None:
        self._deadlines[name] = at_ms
        standing = self._entries.get(name)
        if standing is None or at_ms < standing:
            self._push(name, at_ms)

    def disarm(self, name: K) -> None:
        self._deadlines.pop(name, None)

    def next_ms(self) -> int | None:
        """When to look again; nothing is due before."""
        self._settle(None)
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> list[K]:
        """The names whose deadline has come, the earliest first. They are disarmed."""
        found: list[K] = []
        while (name := self.next_due(now_ms)) is not None:
            found.append(name)
        return found

    def next_due(self, now_ms: int) -> K | None:
        """The name whose deadline came first, if it has come. It is disarmed."""
        self._settle(now_ms)
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        name = heapq.heappop(self._heap)[2]
        del self._entries[name], self._deadlines[name]
        return name

    def _push(self, name: K, at_ms: int) -> None:
        self._count += 1
        self._entries[name] = at_ms
        heapq.heappush(self._heap, (at_ms, self._count, name))

    def _settle(self, now_ms: int | None) -> None:
        """Makes the first entry one that counts. Those that were moved go back in when they come up."""
        while self._heap:
            at_ms, _, name = self._heap[0]
            deadline = self._deadlines.get(name)
            if self._entries.get(name) != at_ms:  # an earlier entry took its place
                heapq.heappop(self._heap)
            elif deadline is None:
                heapq.heappop(self._heap)
                del self._entries[name]
            elif deadline > at_ms and (now_ms is None or at_ms <= now_ms):
                heapq.heappop(self._heap)
                self._push(name, deadline)
            else:
                return
