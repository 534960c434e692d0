"""What a shard's decision consists of. The edge carries it out; see runtime.py for the order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from kbroker.protocol.message import Message, Struct

NO_PRODUCER = -1
ERRAND = object()  # in place of a token: the answer is for the edge itself


class Record(NamedTuple):
    """One record of an internal topic; no value: a tombstone."""

    key: Message
    value: Message | None


class Reply(NamedTuple):
    """The answer to a request that was given to the shard as `token`."""

    token: object
    answer: Struct | Exception | bytes | tuple[Any, ...]  # bytes: a whole reply, from the short way; a tuple: an errand


class Producing(NamedTuple):
    """Whose transaction a step's records belong to; `guard` says that its coordinator was asked about it."""

    producer_id: int
    epoch: int
    guard: int = 0


class Timer(NamedTuple):
    """What a timer is for. There is at most one of each; arming it again moves it."""

    kind: str
    group: str
    member: str = ""


class Step:
    """Records to append, replies to give once they are committed, timers to arm (a deadline) or to disarm (None).

    Its records stand or fall together, in one batch; those of a `divisible` step need not, and may be many. Those of a
    `producer` belong to its transaction. An errand is what the edge does once the records are committed.
    """

    __slots__ = ("divisible", "producer", "records", "replies", "timers")

    def __init__(
        self,
        records: Iterable[Record] = (),
        replies: Iterable[Reply] = (),
        timers: Iterable[tuple[Timer, int | None]] = (),
        *,
        divisible: bool = False,
    ) -> None:
        self.records = [*records]
        self.replies = [*replies]
        self.timers = [*timers]
        self.divisible = divisible
        self.producer: Producing | None = None

    def reply(self, token: object, answer: Struct | Exception) -> None:
        self.replies.append(Reply(token, answer))

    def errand(self, errand: Any) -> None:
        self.replies.append(Reply(ERRAND, errand))

    def arm(self, timer: Timer, at_ms: int) -> None:
        self.timers.append((timer, at_ms))

    def disarm(self, timer: Timer) -> None:
        self.timers.append((timer, None))

    def add(self, other: Step) -> None:
        self.records += other.records
        self.replies += other.replies
        self.timers += other.timers
