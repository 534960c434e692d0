"""Deadlines by name. Moving one costs a dictionary entry: a group's members move theirs with every heartbeat."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
SPARE_ENTRIES = 64  # which a heap may hold in vain however small it is


class Entry(Generic[K]):
    """A place in the heap. Without a name it counts no more: a name may be long, and its time far away."""

    __slots__ = ("at_ms", "deadline_ms", "name")

    def __init__(self, at_ms: int, name: K) -> None:
        self.at_ms = at_ms  # where it stands in the heap
        self.deadline_ms = at_ms  # then or later
        self.name: K | None = name


class Timers(Generic[K]):
    """The heap holds one entry a name, at or before its deadline; one that comes up too early goes back in."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Entry[K]]] = []
        self._entries: dict[K, Entry[K]] = {}  # the one of each name that counts
        self._count = 0  # so that entries are never compared

    def __len__(self) -> int:
        return len(self._entries)

    def deadlines(self) -> dict[K, int]:
        return {name: entry.deadline_ms for name, entry in self._entries.items()}

    def arm(self, name: K, at_ms: int) -> None:
        standing = self._entries.get(name)
        if standing is None:
            self._push(name, at_ms)
        elif at_ms < standing.at_ms:
            standing.name = None
            self._push(name, at_ms)
        else:
            standing.deadline_ms = at_ms

    def disarm(self, name: K) -> None:
        standing = self._entries.pop(name, None)
        if standing is not None:
            standing.name = None
            if len(self._heap) > 2 * len(self._entries) + SPARE_ENTRIES:
                self._heap = [place for place in self._heap if place[2].name is not None]
                heapq.heapify(self._heap)

    def disarm_all(self, belongs: Callable[[K], bool]) -> None:
        for name in [one for one in self._entries if belongs(one)]:
            self.disarm(name)

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
        name = heapq.heappop(self._heap)[2].name
        assert name is not None
        del self._entries[name]
        return name

    def _push(self, name: K, at_ms: int) -> None:
        self._count += 1
        entry = self._entries[name] = Entry(at_ms, name)
        heapq.heappush(self._heap, (at_ms, self._count, entry))

    def _settle(self, now_ms: int | None) -> None:
        """Makes the first entry one that counts. Those that were moved go back in when they come up."""
        while self._heap:
            at_ms, _, entry = self._heap[0]
            name = entry.name
            if name is None:
                heapq.heappop(self._heap)
                continue
            if entry.deadline_ms > at_ms and (now_ms is None or at_ms <= now_ms):
                heapq.heappop(self._heap)
                self._push(name, entry.deadline_ms)
            else:
                return
