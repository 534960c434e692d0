"""What happened in a run, as its clients saw it.

A client writes one JSON line for each thing it does, before it does it and after: so its last line tells how far it
had come when it was killed. `read` folds the lines of one client into operations.

    {"event": "taken", "id": "w1", "asked": ns, "at": ns}         a transactional id is this client's from now on
    {"event": "begin", "op": 7, "at": ns}            a transaction, or a send or poll outside of one
    {"event": "send", "partition": "q-0", "value": "w1-7-0"}      {"event": "sent", "value": "w1-7-0", "offset": 12}
    {"event": "seen", "life": 3, "partition": "q-0", "records": [[11, "w2-4-1"]], "at": ns}
    {"event": "committing", "at": ns}                {"event": "aborting"}
    {"event": "end", "outcome": "ok" | "failed" | "unknown", "at": ns}

A reader's `life` changes when it is given partitions anew: from one life to the next it may go back or ahead.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from sys import intern
from typing import Any


class Outcome(Enum):
    OK = "ok"
    FAILED = "failed"  # it can have had no effect
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Send:
    partition: str
    value: str
    offset: int | None = None  # None: nobody told


@dataclass(slots=True, frozen=True)
class Seen:
    partition: str
    offset: int
    value: str
    life: int
    at: int


@dataclass(slots=True, frozen=True)
class Reign:
    """A transactional id in one client's hands, from some moment between these two until another's begins."""

    id: str
    asked: int
    begun: int


@dataclass(slots=True)
class Operation:
    process: str
    number: int
    began: int
    transactional: bool
    outcome: Outcome = Outcome.UNKNOWN
    committing: int | None = None  # when the commit was asked for
    ended: int | None = None
    sends: list[Send] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    reign: Reign | None = None

    def __str__(self) -> str:
        return f"{self.process}/{self.number}"


def read(process: str, lines: Iterable[str], *, transactional: bool) -> Iterator[Operation]:
    """The operations of one client. The last line may be torn: the client was killed while it wrote."""
    now: Operation | None = None
    reign: Reign | None = None
    for line in lines:
        try:
            told = json.loads(line)
        except json.JSONDecodeError:
            break
        if told["event"] == "begin":
            if now is not None:
                yield _closed(now)
            now = Operation(process, told["op"], told["at"], transactional, reign=reign)
        elif told["event"] == "taken":
            reign = Reign(told["id"], told["asked"], told["at"])
        elif now is not None:
            _fold(now, told)
    if now is not None:
        yield _closed(now)


def _fold(now: Operation, told: dict[str, Any]) -> None:
    match told["event"]:
        case "send":
            now.sends.append(Send(intern(told["partition"]), intern(told["value"])))
        case "sent":
            next(send for send in now.sends if send.value == told["value"]).offset = told["offset"]
        case "seen":
            partition = intern(told["partition"])
            now.seen += [Seen(partition, at, intern(value), told["life"], told["at"]) for at, value in told["records"]]
        case "committing":
            now.committing = told["at"]
        case "end":
            now.outcome, now.ended = Outcome(told["outcome"]), told["at"]


def _closed(operation: Operation) -> Operation:
    """A transaction that nobody asked to commit cannot have happened, whatever became of its client."""
    if operation.transactional and operation.committing is None and operation.outcome is Outcome.UNKNOWN:
        operation.outcome = Outcome.FAILED
    return operation


@dataclass(slots=True)
class Copy:
    """One topic made from another by transactions that move a group's offsets."""

    source: str
    target: str
    committed: dict[str, int]  # the group's offsets when all was over


@dataclass(slots=True)
class History:
    operations: list[Operation]
    final: dict[str, list[tuple[int, str]]]  # what each partition held for read_committed when all was over
    copies: list[Copy] = field(default_factory=list)
    mistakes: list[str] = field(default_factory=list)  # what the broker itself says went wrong
    hanging: dict[str, tuple[int, int]] = field(default_factory=dict)  # a partition's last stable offset, below its end
