"""An answer that comes later: what a handler returns when a coordinator has taken the request.

It is what a task and a future would be, without either: thousands of commits a second wait for the same append.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any


class Later:
    """Settled once, with a response or an exception; whoever asks with then() is told once, now or when it is settled.

    One thread: the control loop.
    """

    __slots__ = ("_answer", "_then")

    def __init__(self) -> None:
        self._answer: Any = None
        self._then: Callable[[Any], None] | None = None

    @property
    def settled(self) -> bool:
        return self._answer is not None

    def settle(self, answer: Any) -> None:
        assert self._answer is None, "a request is answered once"
        self._answer = answer
        if self._then is not None:
            self._then(answer)

    def then(self, tell: Callable[[Any], None]) -> None:
        if self._answer is not None:
            tell(self._answer)
        else:
            self._then = tell


def gather(parts: Sequence[Later], combine: Callable[[list[Any]], Any]) -> Later:
    """One answer made of several, in their order, when all are there. Exceptions among them are for `combine`."""
    whole = Later()
    answers: list[Any] = [None] * len(parts)
    missing = len(parts)

    def take(index: int, answer: Any) -> None:
        nonlocal missing
        answers[index] = answer
        missing -= 1
        if not missing:
            whole.settle(combine(answers))

    if not parts:
        whole.settle(combine([]))
    for index, part in enumerate(parts):
        part.then(partial(take, index))
    return whole
