"""A transaction shard on a stage: its log is a list, its clock is a number, its answers are kept by token.

Records go through the bytes of the log and back before they are applied. Errands wait until somebody runs them, so that
everything between an end and its completion can be looked at, and a crash can come at any step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kbroker.coordinator.frames import TRANSACTION, decode_record, encode_record
from kbroker.coordinator.step import ERRAND, Record, Step, Timer
from kbroker.coordinator.timers import Timers
from kbroker.coordinator.txn.settings import TransactionSettings
from kbroker.coordinator.txn.shard import Markers, NeedsProducerIdError, Overdue, Producer, TransactionShard, Wish
from kbroker.coordinator.txn.transaction import Place
from kbroker.errors import KafkaError

START_MS = 1_000_000_000_000


class Stage:
    def __init__(self, settings: TransactionSettings | None = None, level: int = 2, first_id: int = 100) -> None:
        self.settings = settings or TransactionSettings()
        self.level = level
        self.now_ms = START_MS
        self.log: list[tuple[bytes, bytes | None]] = []
        self.timers: Timers[Timer] = Timers()
        self.errands: list[Any] = []
        self.steps: list[Step] = []
        self.next_id = first_id
        self.shard = self.read_log()
        self._follower, self._followed = self.read_log(), 0
        self._answer: Any = None
        self.carry_out(self.shard.on_loaded(self.now_ms))

    # ---- requests ----

    def ask(self, event: Callable[[TransactionShard, object, int], Step]) -> Any:
        """The answer; a KafkaError is one, too."""
        self._answer = None
        try:
            self.carry_out(event(self.shard, "token", self.now_ms))
        except KafkaError as error:
            return error
        return self._answer

    def new_id(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    def _with_id(self, event: Callable[[TransactionShard, object, int, int | None], Step]) -> Any:
        answer = self.ask(lambda shard, token, now: event(shard, token, now, None))
        if isinstance(answer, NeedsProducerIdError):
            made = self.new_id()
            answer = self.ask(lambda shard, token, now: event(shard, token, now, made))
        return answer

    def init(self, transactional_id: str, timeout_ms: int = 60_000, expected: tuple[int, int] | None = None) -> Any:
        wish = Wish(transactional_id, timeout_ms, expected)
        return self._with_id(lambda shard, token, now, new_id: shard.on_init_producer(token, wish, new_id, now))

    def add(self, who: Producer, places: list[Place], version: int = 2) -> Any:
        return self.ask(lambda shard, token, now: shard.on_add(token, who, places, version, now))

    def verify(self, who: Producer, places: list[Place]) -> Any:
        return self.ask(lambda shard, token, now: shard.on_verify(token, who, places))

    def end(self, who: Producer, *, commit: bool, version: int = 2) -> Any:
        return self._with_id(
            lambda shard, token, now, new_id: shard.on_end(
                token, who, commit=commit, client_version=version, new_id=new_id, now_ms=now
            )
        )

    # ---- what the edge does ----

    def carry_out(self, step: Step) -> None:
        self.steps.append(step)
        for record in step.records:
            key, value = encode_record(record)
            self.log.append((key, value))
            self.shard.apply(_decoded(key, value))
        for timer, at_ms in step.timers:
            if at_ms is None:
                self.timers.disarm(timer)
            else:
                self.timers.arm(timer, at_ms)
        for token, answer in step.replies:
            if token is ERRAND:
                self.errands.append(answer)
            else:
                assert self._answer is None, f"answered before: {answer}"
                self._answer = answer

    def finish(self, errand: Any) -> None:
        """An errand is done: every marker is written, or there is a producer id."""
        self.errands.remove(errand)
        if isinstance(errand, Markers):
            self.carry_out(self.shard.on_markers_written(errand, self.now_ms))
        elif isinstance(errand, Overdue):
            self.carry_out(self.shard.on_overdue(errand.transactional_id, self.new_id(), self.now_ms))

    def finish_all(self) -> None:
        while self.errands:
            self.finish(self.errands[0])

    def advance(self, by_ms: int) -> None:
        """Lets time pass; each timer goes off at its own time."""
        until_ms = self.now_ms + by_ms
        while (next_ms := self.timers.next_ms()) is not None and next_ms <= until_ms:
            self.now_ms = max(self.now_ms, next_ms)
            due = self.timers.next_due(self.now_ms)
            assert due is not None
            self.carry_out(self.shard.on_timer(due, self.now_ms))
        self.now_ms = until_ms

    # ---- the log ----

    def read_log(self) -> TransactionShard:
        shard = TransactionShard(self.settings, lambda: self.level)
        for key, value in self.log:
            shard.apply(_decoded(key, value))
        return shard

    def reload(self) -> None:
        """What an election does: errands are forgotten, and the shard is made from the log."""
        self.timers, self.errands = Timers(), []
        self.shard = self.read_log()
        self._follower, self._followed = self.read_log(), len(self.log)
        self.carry_out(self.shard.on_loaded(self.now_ms))

    def check_replay(self) -> None:
        """A shard made from the log is the live one. It is made as the log grows, and anew with each reload."""
        for key, value in self.log[self._followed :]:
            self._follower.apply(_decoded(key, value))
        self._followed = len(self.log)
        assert self._follower.transactions == self.shard.transactions
        assert self._follower.open_ids == self.shard.open_ids


def _decoded(key: bytes, value: bytes | None) -> Record:
    record = decode_record(TRANSACTION, key, value)
    assert record is not None
    return record
