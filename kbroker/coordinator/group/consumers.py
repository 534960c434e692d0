"""The consumer groups of a shard: which of them an event is about, and what the group then decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kbroker.coordinator.group import consumer_records as records
from kbroker.coordinator.group import heartbeat
from kbroker.coordinator.group.consumer import ConsumerGroup
from kbroker.coordinator.group.consumer_settings import ConsumerSettings
from kbroker.coordinator.group.expressions import Expressions
from kbroker.coordinator.group.facts import Caller, Topics
from kbroker.coordinator.group.group import Group
from kbroker.coordinator.group.member import LEAVING, LEAVING_FOR_A_WHILE, NOTHING, Member, Owned, State
from kbroker.coordinator.group.metadata_hash import MetadataHashes
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
    ) -> None:
        self._groups = groups
        self._around = Surroundings(topics, MetadataHashes(topics), expressions, settings)

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
        heartbeat.check_request(request, caller.api_version, self._around.settings(request.group_id))
        if request.member_epoch in (LEAVING, LEAVING_FOR_A_WHILE):
            return heartbeat.on_leave(self._existing(request.group_id), request, token, self._around)
        step = Step()
        group = self._joined(request.group_id, step) if request.member_epoch == 0 else self._existing(request.group_id)
        step.add(heartbeat.on_heartbeat(group, heartbeat.Beat(request, caller, now_ms), token, self._around))
        return step

    def _existing(self, group_id: str) -> ConsumerGroup:
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            raise GroupIdNotFoundError(f"Consumer group {group_id} not found.")
        return group

    def _joined(self, group_id: str, step: Step) -> ConsumerGroup:
        """Whoever joins makes the group, or takes the place of an empty one of the classic protocol."""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if group is not None:
            if not group.is_empty:
                raise GroupIdNotFoundError(f"Group {group_id} is not a consumer group.")
            step.records += group.tombstones()
        return ConsumerGroup(group_id)

    def on_loaded(self, now_ms: int) -> Step:
        """Everyone has a whole session from now on: nobody could reach a coordinator that was being loaded."""
        step = Step()
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup):
                group.stale_topics = True
                session_ms = self._around.settings(group.group_id).session_timeout_ms
                for one in group.members.values():
                    step.arm(Timer(heartbeat.SESSION, group.group_id, one.member_id), now_ms + session_ms)
                    if one.state == State.UNREVOKED_PARTITIONS:
                        timer = Timer(heartbeat.REBALANCE, group.group_id, one.member_id)
                        step.arm(timer, now_ms + one.rebalance_timeout_ms)
        return step

    def on_timer(self, timer: Timer, now_ms: int) -> Step:
        group = self._groups.get(timer.group)
        if isinstance(group, ConsumerGroup):
            if timer.kind == heartbeat.SESSION:
                return heartbeat.on_session_expired(group, timer.member, self._around)
            if timer.kind == heartbeat.REBALANCE:
                return heartbeat.on_rebalance_expired(group, timer.member, self._around)
        return Step()

    def on_topics_changed(self, changed: Iterable[str], created: Iterable[str], now_ms: int) -> Step:
        """Groups look at their topics again with the next heartbeat; expressions are tried on new names at once."""
        names, fresh = set(changed), set(created)
        for name in names:
            self._around.hashes.forget(name)
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
            more = self._around.expressions.matching(pattern, fresh) - held.topics
            if more:
                found[pattern] = held._replace(
                    topics=held.topics | more, version=self._around.topics.version(), timestamp=now_ms
                )
                step.records.append(records.expression_record(group.group_id, pattern, found[pattern]))
        if found != group.expressions:
            names = group.topic_names() | {name for one in found.values() for name in one.topics}
            step.records.append(records.epoch_record(group.group_id, group.epoch + 1, self._around.hashes.of(names)))

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
                assignor_name=preferred_assignor(group.members.values(), self._around.settings(group_id)),
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
            topic = self._around.topics.find_id(topic_id)
            if topic is not None:
                named.append(
                    ConsumerGroupDescribeResponse.TopicPartitions(
                        topic_id=topic_id, topic_name=topic.name, partitions=sorted(held)
                    )
                )
        return ConsumerGroupDescribeResponse.Assignment(topic_partitions=named)
