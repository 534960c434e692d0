"""What the stages of both coordinators stand on: a log that is a list, a clock that is a number, timers and steps.

Records go through the bytes of the log and back before they are applied.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from kbroker.coordinator.frames import decode_record, encode_record
from kbroker.coordinator.runtime import Shard
from kbroker.coordinator.step import NO_PRODUCER, Record, Step, Timer
from kbroker.coordinator.timers import Timers

START_MS = 1_000_000_000_000

S = TypeVar("S", bound=Shard)
Logged = tuple[bytes, bytes | None, int]  # key, value, producer id


def last_of_each_key(log: list[Logged]) -> list[Logged]:
    """What a coordinator reads of its log: what is in a transaction counts whatever comes behind it."""
    last = {key: index for index, (key, _, producer_id) in enumerate(log) if producer_id == NO_PRODUCER}
    return [one for index, one in enumerate(log) if one[2] != NO_PRODUCER or last[one[0]] == index]


class Boards(Generic[S]):
    KIND: str  # of its records
    shard: S

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.log: list[Logged] = []
        self.timers: Timers[Timer] = Timers()
        self.steps: list[Step] = []

    def tell(self, token: object, answer: Any) -> None:
        """What a step replies."""
        raise NotImplementedError

    def carry_out(self, step: Step, producer_id: int = NO_PRODUCER) -> None:
        self.steps.append(step)
        for record in step.records:
            key, value = encode_record(record)
            self.log.append((key, value, producer_id))
            self.shard.apply(self._decoded(key, value), producer_id)
        for timer, at_ms in step.timers:
            if at_ms is None:
                self.timers.disarm(timer)
            else:
                self.timers.arm(timer, at_ms)
        for token, answer in step.replies:
            self.tell(token, answer)

    def advance(self, by_ms: int) -> None:
        """Lets time pass; each timer goes off at its own time."""
        until_ms = self.now_ms + by_ms
        while (next_ms := self.timers.next_ms()) is not None and next_ms <= until_ms:
            self.now_ms = max(self.now_ms, next_ms)
            due = self.timers.next_due(self.now_ms)
            assert due is not None
            self.carry_out(self.shard.on_timer(due, self.now_ms))
        self.now_ms = until_ms

    def fresh(self) -> S:
        """A shard that has read nothing."""
        raise NotImplementedError

    def read_log(self) -> S:
        """A shard that has read every record."""
        return self.replayed(self.fresh(), self.log)

    def loaded(self) -> S:
        """A shard as an election makes it."""
        return self.replayed(self.fresh(), last_of_each_key(self.log))

    def replayed(self, shard: S, log: list[Logged]) -> S:
        for key, value, producer_id in log:
            shard.apply(self._decoded(key, value), producer_id)
        return shard

    def begin(self, shard: S) -> None:
        """An election: this shard answers from now on."""
        self.timers = Timers()
        self.shard = shard
        self.carry_out(shard.on_loaded(self.now_ms))

    def _decoded(self, key: bytes, value: bytes | None) -> Record:
        record = decode_record(self.KIND, key, value)
        assert record is not None
        return record
