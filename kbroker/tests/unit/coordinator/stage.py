"""A group shard on a stage: its answers are kept by token, and it can be made anew from its log."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kbroker.coordinator.frames import GROUP, encode_record
from kbroker.coordinator.group.classic import SETTLED, ClassicGroup
from kbroker.coordinator.group.consumer_settings import ConsumerSettings
from kbroker.coordinator.group.facts import Caller, TopicFacts
from kbroker.coordinator.group.settings import GroupSettings
from kbroker.coordinator.group.shard import GroupShard
from kbroker.coordinator.step import Step
from kbroker.errors import KafkaError, NotCoordinatorError
from kbroker.tests.unit.coordinator.boards import Boards

LATEST = 9


class StageTopics:
    """Topics by name; an id is its name's first bytes."""

    def __init__(self, **partitions: int) -> None:
        self.partitions = partitions

    def find(self, name: str) -> TopicFacts | None:
        count = self.partitions.get(name)
        return None if count is None else TopicFacts(name, topic_id(name), count)

    def find_id(self, wanted: bytes) -> TopicFacts | None:
        return next((self.find(name) for name in self.partitions if topic_id(name) == wanted), None)

    def names(self) -> Iterable[str]:
        return list(self.partitions)

    def racks(self, name: str) -> list[list[str]]:
        return [[] for _ in range(self.partitions[name])]

    def version(self) -> int:
        return 1


def topic_id(name: str) -> bytes:
    return name.encode()[:16].ljust(16, b"\x01")


class Stage(Boards[GroupShard]):
    KIND = GROUP

    def __init__(
        self, settings: GroupSettings | None = None, consumer: ConsumerSettings | None = None, **partitions: int
    ) -> None:
        super().__init__()
        self.settings = settings or GroupSettings()
        self.consumer = consumer or ConsumerSettings(assignment_interval_ms=0)
        self.topics = StageTopics(**partitions)
        self.answers: dict[object, Any] = {}
        self.open: set[object] = set()
        self.told: Callable[[object, Any], None] | None = None  # called with each answer
        self._uniques = 0
        self.begin(self.fresh())

    # ---- requests ----

    def ask(self, token: object, event: Callable[[GroupShard, object, int], Step]) -> Any:
        """The answer, if it was given at once."""
        assert token not in self.open
        assert token not in self.answers
        self.open.add(token)
        try:
            step = event(self.shard, token, self.now_ms)
        except KafkaError as error:
            self.tell(token, error)
        else:
            self.carry_out(step)
        return self.answers.get(token)

    def join(self, token: object, request: Any, *, version: int = LATEST, client_id: str = "client") -> Any:
        self._uniques += 1
        unique = str(self._uniques)
        caller = Caller(version, client_id, "/host")
        return self.ask(token, lambda shard, one, now: shard.on_join_group(one, request, caller, unique, now))

    def sync(self, token: object, request: Any) -> Any:
        return self.ask(token, lambda shard, one, now: shard.on_sync_group(one, request, Caller(LATEST), now))

    def heartbeat(self, token: object, request: Any) -> Any:
        return self.ask(token, lambda shard, one, now: shard.on_heartbeat(one, request, Caller(LATEST), now))

    def leave(self, token: object, request: Any) -> Any:
        return self.ask(token, lambda shard, one, now: shard.on_leave_group(one, request, Caller(LATEST), now))

    def consume(self, token: object, request: Any) -> Any:
        caller = Caller(1, "client", "/host")
        return self.ask(token, lambda shard, one, now: shard.consumers.on_heartbeat(one, request, caller, now))

    def commit(self, token: object, request: Any, *, version: int = LATEST) -> Any:
        return self.ask(token, lambda shard, one, now: shard.on_offset_commit(one, request, Caller(version), now))

    # ---- what the edge does ----

    def tell(self, token: object, answer: Any) -> None:
        assert token in self.open, f"{token} was answered before: {answer}"
        self.open.discard(token)
        self.answers[token] = answer
        if self.told is not None:
            self.told(token, answer)

    # ---- the log ----

    def fresh(self) -> GroupShard:
        return GroupShard(self.settings, self.topics, consumer_settings=lambda group_id: self.consumer)

    def reload(self) -> None:
        """What an election does: whoever waits is sent away, and the shard is made from the log."""
        for token in list(self.open):
            self.tell(token, NotCoordinatorError())
        self.begin(self.loaded())

    def check_replay(self) -> None:
        """A shard made from the log is the live one, but for who is on the way into a generation."""
        read, loaded = self.read_log(), self.loaded()
        assert set(read.groups) == set(self.shard.groups)
        assert set(loaded.groups) <= set(self.shard.groups)
        for again in (read, loaded):
            assert again.offsets.__dict__ == self.shard.offsets.__dict__
            for group_id, group in self.shard.groups.items():
                if group_id not in again.groups:
                    assert is_bare(group), f"{group_id} is still in the log"
                    assert not self.shard.offsets.of_group(group_id)
                elif isinstance(group, ClassicGroup) and group.state_name in SETTLED:
                    assert lasting(again.groups[group_id]) == lasting(group)

    def group(self, group_id: str) -> ClassicGroup:
        group = self.shard.groups[group_id]
        assert isinstance(group, ClassicGroup)
        return group


def is_bare(group: object) -> bool:
    """Nobody ever joined it: once its offsets are gone as well, nothing of it is left in the log."""
    return isinstance(group, ClassicGroup) and not group.members and group.generation_id == 0


def lasting(group: object) -> Any:
    """What of a classic group its record tells."""
    assert isinstance(group, ClassicGroup)
    if is_bare(group):
        return (group.state, 0)
    record = group.generation() if group.members else None
    return (
        group.state,
        group.generation_id,
        group.protocol_type,
        group.protocol_name,
        group.leader_id,
        group.since_ms,
        group.subscribed,
        group.static_ids,
        None if record is None else encode_record(record),
    )
