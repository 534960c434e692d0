"""How a shard has a member's regular expression tried on topic names. The edge gives it an engine: re2_engine.py."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kbroker.errors import InvalidRegularExpressionError


class Expressions(Protocol):
    def check(self, pattern: str) -> None:
        """InvalidRegularExpressionError unless the pattern can be read."""
        ...

    def matching(self, pattern: str, names: Iterable[str]) -> frozenset[str]:
        """Those that the pattern matches from end to end; none if it cannot be read."""
        ...


class NoExpressions:
    """Where there is no engine every pattern is refused."""

    def check(self, pattern: str) -> None:
        raise InvalidRegularExpressionError("This broker has no engine for regular expressions.")

    def matching(self, pattern: str, names: Iterable[str]) -> frozenset[str]:
        return frozenset()
