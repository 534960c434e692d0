"""What a shard's decision consists of. The edge carries it out; see runtime.py for the order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kbroker.protocol.message import Message, Struct

NO_PRODUCER = -1


class Record(NamedTuple):
    """One record of an internal topic; no value: a tombstone."""

    key: Message
    value: Message | None


class Reply(NamedTuple):
    """The answer to a request that was given to the shard as `token`."""

    token: object
    answer: Struct | Exception


class Timer(NamedTuple):
    """What a timer is for. There is at most one of each; arming it again moves it."""

    kind: str
    group: str
    member: str = ""


class Step:
    """Records to append, replies to give once they are committed, timers to arm (a deadline) or to disarm (None).

    Its records stand or fall together, in one batch; those of a `divisible` step need not, and may be many.
    """

    __slots__ = ("divisible", "records", "replies", "timers")

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

    def reply(self, token: object, answer: Struct | Exception) -> None:
        self.replies.append(Reply(token, answer))

    def arm(self, timer: Timer, at_ms: int) -> None:
        self.timers.append((timer, at_ms))

    def disarm(self, timer: Timer) -> None:
        self.timers.append((timer, None))

    def add(self, other: Step) -> None:
        self.records += other.records
        self.replies += other.replies
        self.timers += other.timers
