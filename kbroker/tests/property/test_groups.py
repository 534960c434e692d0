"""Groups of both protocols: whatever is asked, the records that were appended tell the state that answers."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kbroker.coordinator.group.classic import SETTLED, ClassicGroup
from kbroker.coordinator.group.consumer import ConsumerGroup
from kbroker.coordinator.group.consumer_settings import ConsumerSettings
from kbroker.coordinator.group.facts import Caller
from kbroker.coordinator.group.settings import GroupSettings
from kbroker.coordinator.group.shard import GroupShard
from kbroker.coordinator.re2_engine import Re2
from kbroker.protocol.codec import encode
from kbroker.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    SyncGroupRequest,
)
from kbroker.protocol.records import ConsumerProtocolSubscription
from kbroker.tests.unit.coordinator.stage import Stage
from kbroker.tests.unit.coordinator.stage import lasting as classic_state
from kbroker.tests.unit.coordinator.world import KnownTopics
from kbroker.tests.unit.coordinator.world import lasting as consumer_state

DAY_MS = 86_400_000
METADATA = b"\x00\x01" + encode(ConsumerProtocolSubscription(topics=["t1"]), 1)
CALLER = Caller(9, "client", "/host")

groups = st.sampled_from(["a", "b", "c"])
members = st.sampled_from(["m1", "m2", "m3", "m4"])
topics = st.sampled_from(["t1", "t2"])
instances = st.sampled_from([None, None, "i1", "i2"])
lies = st.sampled_from([0, 0, 0, 0, -1, 1])  # what is added to a generation or an epoch


class BothKinds(Stage):
    """A stage whose shard knows expressions and topics that change."""

    def fresh(self) -> GroupShard:
        if not isinstance(self.topics, KnownTopics):
            self.topics = KnownTopics()  # type: ignore[assignment]
        made = ConsumerSettings(assignment_interval_ms=0)
        return GroupShard(self.settings, self.topics, Re2(), lambda group_id: made)


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.stage = BothKinds(GroupSettings(initial_rebalance_delay_ms=0))
        self.tokens = itertools.count()
        self.known: dict[str, list[str]] = {}  # ids of classic members, also of gone ones
        self.epochs: dict[tuple[str, str], int] = {}
        self.owned: dict[tuple[str, str], list[Any]] = {}

    def _who(self, group: str, index: int) -> str:
        known = ["", *self.known.get(group, [])]
        return known[index % len(known)]

    def _generation(self, group: str) -> int:
        found = self.stage.shard.groups.get(group)
        return found.generation_id if isinstance(found, ClassicGroup) else 1

    def _learn(self, group: str) -> None:
        found = self.stage.shard.groups.get(group)
        if isinstance(found, ClassicGroup):
            known = self.known.setdefault(group, [])
            known += [one for one in found.members if one not in known]

    # ---- the classic protocol ----

    @rule(
        group=groups,
        who=st.integers(0, 5),
        instance=instances,
        protocol=st.sampled_from(["range", "sticky"]),
        version=st.sampled_from([2, 9]),
    )
    def join(self, group: str, who: int, instance: str | None, protocol: str, version: int) -> None:
        token = next(self.tokens)
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            member_id=self._who(group, who),
            group_instance_id=instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.Protocol(name=name, metadata=METADATA) for name in {protocol, "range"}],
        )
        self.stage.join(token, request, version=version)
        given = getattr(self.stage.answers.get(token), "member_id", None)
        if given:
            self.known.setdefault(group, []).append(given)
        self._learn(group)

    @rule(group=groups, who=st.integers(0, 5), lie=lies, part=st.binary(max_size=3))
    def sync(self, group: str, who: int, lie: int, part: bytes) -> None:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=self._generation(group) + lie,
            member_id=self._who(group, who),
            assignments=[
                SyncGroupRequest.Assignment(member_id=one, assignment=part) for one in self.known.get(group, [])
            ],
        )
        self.stage.sync(next(self.tokens), request)

    @rule(group=groups)
    def everyone_joins_syncs_and_beats(self, group: str) -> None:
        """A newcomer and a whole rebalance, which single steps seldom make."""
        self.join(group, 0, None, "range", 2)
        found = self.stage.shard.groups.get(group)
        if isinstance(found, ClassicGroup):
            names = list(found.members)
            for one in names:
                self.join(group, self.known[group].index(one) + 1, None, "range", 9)
            self.stage.advance(1)
            for one in names:
                self.sync(group, self.known[group].index(one) + 1, 0, b"x")
            for one in names:
                self.beat(group, self.known[group].index(one) + 1, 0)

    @rule(group=groups, who=st.integers(0, 5), lie=lies)
    def beat(self, group: str, who: int, lie: int) -> None:
        request = HeartbeatRequest(
            group_id=group, generation_id=self._generation(group) + lie, member_id=self._who(group, who)
        )
        self.stage.heartbeat(next(self.tokens), request)

    @rule(group=groups, who=st.integers(0, 5), instance=instances)
    def leave(self, group: str, who: int, instance: str | None) -> None:
        one = LeaveGroupRequest.MemberIdentity(member_id=self._who(group, who), group_instance_id=instance)
        self.stage.leave(next(self.tokens), LeaveGroupRequest(group_id=group, members=[one]))

    # ---- the consumer protocol ----

    @rule(
        group=groups,
        member=members,
        epoch=st.sampled_from(["its own", "its own", "its own", 0, 0, -1, -2]),
        lie=lies,
        names=st.lists(topics, unique=True),
        regex=st.sampled_from([None, None, "t.*", "("]),
        instance=instances,
        acknowledge=st.booleans(),
    )
    def consumer_beat(
        self,
        *,
        group: str,
        member: str,
        epoch: Any,
        lie: int,
        names: list[str],
        regex: str | None,
        instance: str | None,
        acknowledge: bool,
    ) -> None:
        own = self.epochs.get((group, member), 0)
        request = ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=own + lie if epoch == "its own" else epoch
        )
        request.instance_id = instance
        if request.member_epoch == 0:
            request.rebalance_timeout_ms, request.topic_partitions = 10_000, []
            request.subscribed_topic_names, request.subscribed_topic_regex = names, regex
        elif acknowledge:
            request.topic_partitions = self.owned.get((group, member), [])
        token = next(self.tokens)
        self.stage.ask(
            token, lambda shard, one, now: shard.consumers.on_heartbeat(one, request, Caller(1, "c", "/h"), now)
        )
        answer = self.stage.answers.get(token)
        if getattr(answer, "error_code", -1) == 0 and answer is not None:
            self.epochs[group, member] = max(answer.member_epoch, 0)
            if answer.assignment is not None:
                part = ConsumerGroupHeartbeatRequest.TopicPartitions
                self.owned[group, member] = [
                    part(topic_id=one.topic_id, partitions=one.partitions) for one in answer.assignment.topic_partitions
                ]

    @rule(group=groups)
    def everyone_does_as_told(self, group: str) -> None:
        found = self.stage.shard.groups.get(group)
        if isinstance(found, ConsumerGroup):
            for member in list(found.members):
                for _ in range(2):
                    self.consumer_beat(
                        group=group,
                        member=member,
                        epoch="its own",
                        lie=0,
                        names=[],
                        regex=None,
                        instance=None,
                        acknowledge=True,
                    )

    # ---- offsets and operators ----

    @rule(group=groups, who=st.integers(0, 8), topic=topics, offset=st.integers(0, 9), lie=lies)
    def commit(self, group: str, who: int, topic: str, offset: int, lie: int) -> None:
        found = self.stage.shard.groups.get(group)
        if isinstance(found, ConsumerGroup):
            member = ("m1", "m2", "m3", "")[who % 4]
            epoch = self.epochs.get((group, member), -1) + lie
        else:
            member, epoch = self._who(group, who), self._generation(group) + lie
        partition = OffsetCommitRequest.Partition(partition_index=offset % 3, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=epoch if member else -1,
            member_id=member,
            topics=[OffsetCommitRequest.Topic(name=topic, partitions=[partition])],
        )
        self.stage.commit(next(self.tokens), request)

    @rule(group=groups, topic=topics)
    def delete_offsets(self, group: str, topic: str) -> None:
        part = OffsetDeleteRequest.Partition(partition_index=0)
        request = OffsetDeleteRequest(group_id=group, topics=[OffsetDeleteRequest.Topic(name=topic, partitions=[part])])
        self.stage.ask(next(self.tokens), lambda shard, one, now: shard.on_offset_delete(one, request))

    @rule(group=groups)
    def delete_group(self, group: str) -> None:
        self.stage.ask(next(self.tokens), lambda shard, one, now: shard.on_delete_group(one, group))

    @rule(topic=topics, partitions=st.integers(0, 4))
    def change_topic(self, topic: str, partitions: int) -> None:
        held = self.stage.topics
        assert isinstance(held, KnownTopics)
        created = [topic] if partitions and topic not in held.held else []
        if partitions:
            held.make(topic, max(partitions, held.held[topic].partitions if topic in held.held else 0))
        elif held.held.pop(topic, None) is not None:
            self.stage.carry_out(self.stage.shard.on_topics_deleted([topic]))
        self.stage.carry_out(self.stage.shard.on_topics_changed([topic], created, self.stage.now_ms))

    @rule(ms=st.sampled_from([1, 3_000, 3_000, 12_000, 50_000, 8 * DAY_MS]))
    def time_passes(self, ms: int) -> None:
        self.stage.advance(ms)

    @rule()
    def elected_anew(self) -> None:
        self.stage.reload()

    @invariant()
    def the_log_tells_the_state(self) -> None:
        for again in (self.stage.read_log(), self.stage.loaded()):
            self._are_alike(again, self.stage.shard)

    def _are_alike(self, again: GroupShard, live: GroupShard) -> None:
        assert again.offsets.__dict__ == live.offsets.__dict__
        for group_id in again.groups.keys() - live.groups.keys():
            raise AssertionError(f"{group_id} is in the log only")
        for group_id, group in live.groups.items():
            told = again.groups.get(group_id)
            if isinstance(group, ConsumerGroup):
                assert consumer_state(again)[group_id] == consumer_state(live)[group_id]
            elif told is None:
                assert isinstance(group, ClassicGroup)
                assert group.generation_id == 0 or group.state_name not in SETTLED, "an empty group is not in the log"
            elif group.state_name in SETTLED:
                assert classic_state(told) == classic_state(group)


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
