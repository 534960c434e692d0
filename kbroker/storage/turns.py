"""Whose turn it is at a partition's old segments: one of retention, the cleaner and a move at a time, from any thread.

An append, a read or a deletion of the whole partition asks nobody: the log itself sees to those.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

Key = tuple[str, int]


class Turns:
    def __init__(self) -> None:
        self._taken: set[Key] = set()
        self._lock = Lock()

    @contextmanager
    def at(self, key: Key) -> Iterator[bool]:
        """True: the segments are yours until the block ends. False: somebody works on them; come back later."""
        mine = self.take(key)
        try:
            yield mine
        finally:
            if mine:
                self.give_back(key)

    def take(self, key: Key) -> bool:
        with self._lock:
            mine = key not in self._taken
            if mine:
                self._taken.add(key)
        return mine

    def give_back(self, key: Key) -> None:
        with self._lock:
            self._taken.discard(key)

    def is_taken(self, key: Key) -> bool:
        return key in self._taken
