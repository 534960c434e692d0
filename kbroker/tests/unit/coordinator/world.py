"""A shard without an edge: topics that a test makes, records applied at once and kept, timers that a test lets run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kbroker.coordinator.frames import GROUP, decode_record, encode_record
from kbroker.coordinator.group.classic import SETTLED, ClassicGroup
from kbroker.coordinator.group.consumer import ConsumerGroup
from kbroker.coordinator.group.consumer_settings import ConsumerSettings
from kbroker.coordinator.group.facts import Caller, TopicFacts
from kbroker.coordinator.group.settings import GroupSettings
from kbroker.coordinator.group.shard import GroupShard
from kbroker.coordinator.re2_engine import Re2
from kbroker.coordinator.step import NO_PRODUCER, Step, Timer
from kbroker.errors import KafkaError
from kbroker.protocol.messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kbroker.tests.unit.coordinator.boards import Logged, last_of_each_key
from kbroker.tests.unit.coordinator.stage import lasting as classic_lasting

Request = ConsumerGroupHeartbeatRequest
Response = ConsumerGroupHeartbeatResponse
HOST = Caller(1, "client", "/host")
AT_ONCE = "token"  # of requests that are answered in the same step


class KnownTopics:
    def __init__(self) -> None:
        self.held: dict[str, TopicFacts] = {}
        self.rack: list[str] = []
        self._version = 0

    def make(self, name: str, partitions: int) -> bytes:
        self._version += 1
        known = self.held.get(name)
        topic_id = (
            known.topic_id if known is not None else name.encode()[:8].ljust(8, b".") + self._version.to_bytes(8, "big")
        )
        self.held[name] = TopicFacts(name, topic_id, partitions)
        return topic_id

    def find(self, name: str) -> TopicFacts | None:
        return self.held.get(name)

    def find_id(self, topic_id: bytes) -> TopicFacts | None:
        return next((one for one in self.held.values() if one.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        return list(self.held)

    def racks(self, name: str) -> Sequence[Sequence[str]]:
        return [self.rack] * self.held[name].partitions

    def version(self) -> int:
        return self._version


class World:
    """One shard over one log. Every record goes through its bytes, as it would on disk."""

    def __init__(self, settings: ConsumerSettings | None = None) -> None:
        self.settings = settings or ConsumerSettings(assignment_interval_ms=0)
        self.topics = KnownTopics()
        self.now_ms = 1_000_000
        self.log: list[Logged] = []
        self.timers: dict[Timer, int] = {}
        self.told: Callable[[object, Any], None] | None = None  # called with answers to requests that had to wait
        self.shard = self.fresh()

    def fresh(self) -> GroupShard:
        settings = GroupSettings(initial_rebalance_delay_ms=0)
        return GroupShard(settings, self.topics, Re2(), lambda group_id: self.settings)

    def do(self, step: Step) -> list[Any]:
        for record in step.records:
            encoded = encode_record(record)
            self.log.append((*encoded, NO_PRODUCER))
            decoded = decode_record(GROUP, *encoded)
            assert decoded == record
            self.shard.apply(decoded)
        for timer, at_ms in step.timers:
            if at_ms is None:
                self.timers.pop(timer, None)
            else:
                self.timers[timer] = at_ms
        for token, answer in step.replies:
            if token is not AT_ONCE and self.told is not None:
                self.told(token, answer)
        return [answer for token, answer in step.replies if token is AT_ONCE]

    def beat(self, request: Request, caller: Caller = HOST) -> Response | KafkaError:
        try:
            (answer,) = self.do(self.shard.consumers.on_heartbeat(AT_ONCE, request, caller, self.now_ms))
        except KafkaError as error:
            return error
        assert isinstance(answer, Response)
        return answer

    def pass_time(self, ms: int) -> None:
        """Timers that come due on the way run in their order, each at its time."""
        end = self.now_ms + ms
        while due := sorted((at_ms, timer) for timer, at_ms in self.timers.items() if at_ms <= end):
            self.now_ms, timer = due[0][0], due[0][1]
            del self.timers[timer]
            self.do(self.shard.on_timer(timer, self.now_ms))
        self.now_ms = end

    def change_topic(self, name: str, partitions: int) -> bytes:
        """Makes it, or lets it grow; none: deletes it."""
        created = [] if name in self.topics.held else [name]
        topic_id = self.topics.make(name, partitions) if partitions else self.topics.held.pop(name).topic_id
        self.do(self.shard.on_topics_changed([name], created if partitions else [], self.now_ms))
        return topic_id

    def reload(self) -> None:
        """The coordinator starts again from its log."""
        self.shard = self.loaded()
        self.timers.clear()
        self.do(self.shard.on_loaded(self.now_ms))

    def read_log(self) -> GroupShard:
        return self._replayed(self.log)

    def loaded(self) -> GroupShard:
        """As an election makes it."""
        return self._replayed(last_of_each_key(self.log))

    def _replayed(self, log: list[Logged]) -> GroupShard:
        shard = self.fresh()
        for key, value, _ in log:
            record = decode_record(GROUP, key, value)
            assert record is not None
            shard.apply(record)
        return shard

    def group(self, group_id: str = "g") -> ConsumerGroup | None:
        found = self.shard.groups.get(group_id)
        return found if isinstance(found, ConsumerGroup) else None


def lasting(shard: GroupShard) -> dict[str, Any]:
    """What a shard knows that must be the same after its log is read again."""
    return {
        group_id: classic_lasting(group)
        if isinstance(group, ClassicGroup)
        else {name: held for name, held in vars(group).items() if name not in ("stale_topics", "awaited", "is_partial")}
        for group_id, group in shard.groups.items()
        if not isinstance(group, ClassicGroup) or group.state in SETTLED
    }
