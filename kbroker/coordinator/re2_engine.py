"""RE2 for members' regular expressions: time linear in the text, whatever the pattern.

A client's pattern never reaches Python's `re`, which some patterns keep busy for years. The engine is loaded with the
first pattern.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from kbroker.errors import InvalidRegularExpressionError

MAX_MEMORY_BYTES = 1 << 20  # for one compiled pattern
KEPT_PATTERNS = 256


class Re2:
    def check(self, pattern: str) -> None:
        _compiled(pattern)

    def matching(self, pattern: str, names: Iterable[str]) -> frozenset[str]:
        try:
            compiled = _compiled(pattern)
        except InvalidRegularExpressionError:
            return frozenset()  # what another engine took before
        return frozenset(name for name in names if compiled.fullmatch(name) is not None)


@lru_cache(maxsize=KEPT_PATTERNS)
def _compiled(pattern: str) -> Any:
    try:
        import re2
    except ImportError:
        raise InvalidRegularExpressionError(
            "Regular expressions need the package google-re2, which is not installed at this broker."
        ) from None
    options = re2.Options()
    options.max_mem = MAX_MEMORY_BYTES
    options.log_errors = False
    options.never_capture = True  # nobody asks what a group matched, and to know it costs the square of their number
    try:
        return re2.compile(pattern, options)
    except re2.error as problem:
        raise InvalidRegularExpressionError(
            f"SubscribedTopicRegex {pattern!r} is not a regular expression of RE2: {problem}"
        ) from None
