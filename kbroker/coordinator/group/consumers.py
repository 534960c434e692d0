"""The consumer groups of a shard: which of them an event is about, and what the group then decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kbroker.coordinator.group import consumer_records as records
from kbroker.coordinator.group import fencing, heartbeat, migration
from kbroker.coordinator.group.classic import ClassicGroup
from kbroker.coordinator.group.consumer import ConsumerGroup
from kbroker.coordinator.group.consumer_settings import ConsumerSettings
from kbroker.coordinator.group.expressions import Expressions
from kbroker.coordinator.group.facts import Caller, Topics
from kbroker.coordinator.group.group import Group
from kbroker.coordinator.group.member import LEAVING, LEAVING_FOR_A_WHILE, NOTHING, Member, Owned, State
from kbroker.coordinator.group.member_timers import REBALANCE, SESSION, timer
from kbroker.coordinator.group.metadata_hash import MetadataHashes
from kbroker.coordinator.group.rebalance import Rebalances
from kbroker.coordinator.group.turn import Surroundings, preferred_assignor
from kbroker.coordinator.step import Record, Step, Timer
from kbroker.errors import GroupIdNotFoundError
from kbroker.protocol.messages import ConsumerGroupDescribeResponse, ConsumerGroupHeartbeatRequest
from kbroker.protocol.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)

CONSUMER_KEYS = (
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupRegularExpressionKey,
)

CONSUMER_MEMBER, CLASSIC_MEMBER = 1, 0
Described = ConsumerGroupDescribeResponse.DescribedGroup


class ConsumerGroups:
    def __init__(
        self,
        groups: dict[str, Group],
        topics: Topics,
        expressions: Expressions,
        settings: Callable[[str], ConsumerSettings],
        rebalances: Rebalances,
    ) -> None:
        self._groups = groups
        self.around = Surroundings(topics, MetadataHashes(topics), expressions, settings, rebalances)

    # ---- what lasts ----

    def apply(self, record: Record) -> None:
        assert isinstance(record.key, CONSUMER_KEYS)
        group_id = record.key.group_id
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                return  # the end of what is not known
            group = self._groups[group_id] = ConsumerGroup(group_id)
        if isinstance(record.key, ConsumerGroupMetadataKey) and record.value is None:
            del self._groups[group_id]
        else:
            group.apply(record)

    # ---- events ----

    def on_heartbeat(self, token: object, request: ConsumerGroupHeartbeatRequest, caller: Caller, now_ms: int) -> Step:
        heartbeat.check_request(request, caller.api_version, self.around.settings(request.group_id))
        if request.member_epoch in (LEAVING, LEAVING_FOR_A_WHILE):
            return heartbeat.on_leave(self._existing(request.group_id), request, token, self.around, now_ms)
        held = self._groups.get(request.group_id)
        beat = heartbeat.Beat(request, caller, now_ms)
        if request.member_epoch != 0:
            return heartbeat.on_heartbeat(self._existing(request.group_id), beat, token, self.around)
        if held is None or isinstance(held, ConsumerGroup):
            return heartbeat.on_heartbeat(held or ConsumerGroup(request.group_id), beat, token, self.around)
        return self._join_classic(held, beat, token)

    def _existing(self, group_id: str) -> ConsumerGroup:
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            raise GroupIdNotFoundError(f"Consumer group {group_id} not found.")
        return group

    def _join_classic(self, held: Group, beat: heartbeat.Beat, token: object) -> Step:
        """Whoever joins takes the place of a classic group that is empty, or brings all its members along."""
        if not isinstance(held, ClassicGroup):
            raise GroupIdNotFoundError(f"Group {held.group_id} is not a consumer group.")
        if held.is_empty:
            group, step = ConsumerGroup(held.group_id), Step(held.tombstones())
        else:
            migration.check_upgrade(held, self.around)
            group, made = migration.upgraded(held, self.around)
            step = Step(made)
        decided = heartbeat.on_heartbeat(group, beat, token, self.around)
        self.around.rebalances.give_away(step, held)
        self._begin_sessions(step, group, beat.now_ms)
        step.add(decided)
        return step

    def _begin_sessions(self, step: Step, group: ConsumerGroup, now_ms: int) -> None:
        session_ms = self.around.settings(group.group_id).session_timeout_ms
        for one in group.members.values():
            own_ms = session_ms if one.classic is None else one.classic.session_timeout_ms
            step.arm(timer(SESSION, group, one.member_id), now_ms + own_ms)

    def on_loaded(self, now_ms: int) -> Step:
        """Everyone has a whole session from now on: nobody could reach a coordinator that was being loaded."""
        step = Step()
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup):
                group.stale_topics = True
                self._begin_sessions(step, group, now_ms)
                for one in group.members.values():
                    if one.state == State.UNREVOKED_PARTITIONS and one.classic is None:
                        step.arm(timer(REBALANCE, group, one.member_id), now_ms + one.rebalance_timeout_ms)
        return step

    def on_timer(self, due: Timer, now_ms: int) -> Step:
        group = self._groups.get(due.group)
        return fencing.on_timer(group, due, self.around, now_ms) if isinstance(group, ConsumerGroup) else Step()

    def on_topics_changed(self, changed: Iterable[str], created: Iterable[str], now_ms: int) -> Step:
        """Groups look at their topics again with the next heartbeat; expressions are tried on new names at once."""
        names, fresh = set(changed), set(created)
        for name in names:
            self.around.hashes.forget(name)
        step = Step()
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup):
                if fresh and group.expressions:
                    self._match(group, fresh, now_ms, step)
                if any(group.is_subscribed(name) for name in names):
                    group.stale_topics = True
        return step

    def _match(self, group: ConsumerGroup, fresh: set[str], now_ms: int, step: Step) -> None:
        found = dict(group.expressions)
        for pattern, held in group.expressions.items():
            more = self.around.expressions.matching(pattern, fresh) - held.topics
            if more:
                found[pattern] = held._replace(
                    topics=held.topics | more, version=self.around.topics.version(), timestamp=now_ms
                )
                step.records.append(records.expression_record(group.group_id, pattern, found[pattern]))
        if found != group.expressions:
            names = group.topic_names() | {name for one in found.values() for name in one.topics}
            step.records.append(records.epoch_record(group.group_id, group.epoch + 1, self.around.hashes.of(names)))

    # ---- describing ----

    def on_describe(self, token: object, group_id: str) -> Step:
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            raise GroupIdNotFoundError(
                f"Group {group_id} not found." if group is None else f"Group {group_id} is not a consumer group."
            )
        step = Step()
        step.reply(
            token,
            Described(
                group_id=group_id,
                group_state=group.state_name,
                group_epoch=group.epoch,
                assignment_epoch=group.target_epoch,
                assignor_name=preferred_assignor(group.members.values(), self.around.settings(group_id)),
                members=[self._member(group, one) for one in group.members.values()],
            ),
        )
        return step

    def _member(self, group: ConsumerGroup, member: Member) -> ConsumerGroupDescribeResponse.Member:
        owned = {
            topic_id: {**member.assigned.get(topic_id, {}), **member.revoking.get(topic_id, {})}
            for topic_id in {**member.assigned, **member.revoking}
        }
        target = {
            topic_id: dict.fromkeys(ones, 0) for topic_id, ones in group.targets.get(member.member_id, NOTHING).items()
        }
        return ConsumerGroupDescribeResponse.Member(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=member.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topics),
            subscribed_topic_regex=member.expression,
            assignment=self._named(owned),
            target_assignment=self._named(target),
            member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
        )

    def _named(self, owned: Owned) -> ConsumerGroupDescribeResponse.Assignment:
        named = []
        for topic_id, held in owned.items():
            topic = self.around.topics.find_id(topic_id)
            if topic is not None:
                named.append(
                    ConsumerGroupDescribeResponse.TopicPartitions(
                        topic_id=topic_id, topic_name=topic.name, partitions=sorted(held)
                    )
                )
        return ConsumerGroupDescribeResponse.Assignment(topic_partitions=named)
