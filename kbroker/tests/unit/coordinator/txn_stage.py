"""A transaction shard on a stage.

Errands wait until somebody runs them, so that
everything between an end and its completion can be looked at, and a crash can come at any step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kbroker.coordinator.frames import TRANSACTION
from kbroker.coordinator.step import ERRAND, Step
from kbroker.coordinator.txn.settings import TransactionSettings
from kbroker.coordinator.txn.shard import Markers, NeedsProducerIdError, Overdue, Producer, TransactionShard, Wish
from kbroker.coordinator.txn.transaction import Place
from kbroker.errors import KafkaError
from kbroker.tests.unit.coordinator.boards import Boards


class Stage(Boards[TransactionShard]):
    KIND = TRANSACTION

    def __init__(self, settings: TransactionSettings | None = None, level: int = 2, first_id: int = 100) -> None:
        super().__init__()
        self.settings = settings or TransactionSettings()
        self.level = level
        self.errands: list[Any] = []
        self.next_id = first_id
        self._follower, self._followed = self.fresh(), 0
        self._answer: Any = None
        self.begin(self.fresh())

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

    def tell(self, token: object, answer: Any) -> None:
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

    # ---- the log ----

    def fresh(self) -> TransactionShard:
        return TransactionShard(self.settings, lambda: self.level)

    def reload(self) -> None:
        """What an election does: errands are forgotten, and the shard is made from the log."""
        self.errands = []
        self.begin(self.loaded())
        self._follower, self._followed = self.read_log(), len(self.log)

    def check_replay(self) -> None:
        """A shard made from the log is the live one. It is made as the log grows, and anew with each reload."""
        self.replayed(self._follower, self.log[self._followed :])
        self._followed = len(self.log)
        assert self._follower.transactions == self.shard.transactions
        assert self._follower.open_ids == self.shard.open_ids
