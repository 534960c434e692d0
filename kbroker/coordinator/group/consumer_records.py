"""The records of a consumer group, with their fields in the order and form that Kafka writes them.

3  group epoch, and the hash of what is known of its topics    7  a member's target
5  a member and its subscription                               8  a member's own state: what it has, what it gives up
6  the target's epoch                                          16 a regular expression and the topics it matches
"""

from __future__ import annotations

from kbroker.coordinator.group.java_order import topic_order
from kbroker.coordinator.group.member import Assignment, Expression, Member, Owned, State
from kbroker.coordinator.step import Record
from kbroker.protocol.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

TopicPartitions = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> Record:
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return Record(ConsumerGroupMetadataKey(group_id=group_id), value)


def member_record(group_id: str, member: Member) -> Record:
    return Record(
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topics),
            subscribed_topic_regex=member.expression,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.assignor,
            classic_member_metadata=member.classic,
        ),
    )


def target_record(group_id: str, member_id: str, target: Assignment) -> Record:
    return Record(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                ConsumerGroupTargetAssignmentMemberValue.TopicPartition(
                    topic_id=topic_id, partitions=sorted(target[topic_id])
                )
                for topic_id in topic_order(target)
            ]
        ),
    )


def target_epoch_record(group_id: str, epoch: int, timestamp: int) -> Record:
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp)
    return Record(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def current_record(group_id: str, member: Member) -> Record:
    return Record(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state,
            assigned_partitions=_written(member.assigned),
            partitions_pending_revocation=_written(member.revoking),
        ),
    )


def expression_record(group_id: str, pattern: str, resolved: Expression) -> Record:
    return Record(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern),
        ConsumerGroupRegularExpressionValue(
            topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp
        ),
    )


def expression_tombstone(group_id: str, pattern: str) -> Record:
    return Record(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern), None)


def member_tombstones(group_id: str, member_id: str) -> list[Record]:
    return [
        Record(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        Record(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        Record(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group_id: str, member_ids: list[str], patterns: list[str]) -> list[Record]:
    """The end of a group and of all that is in it, in an order in which every record finds what it ends."""
    return [
        *(
            Record(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=one), None)
            for one in member_ids
        ),
        *(Record(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=one), None) for one in member_ids),
        Record(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(Record(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=one), None) for one in member_ids),
        *(expression_tombstone(group_id, one) for one in patterns),
        Record(ConsumerGroupPartitionMetadataKey(group_id=group_id), None),
        Record(ConsumerGroupMetadataKey(group_id=group_id), None),
    ]


def _written(owned: Owned) -> list[TopicPartitions]:
    written = []
    for topic_id in topic_order(owned):
        partitions = sorted(owned[topic_id])
        epochs = [owned[topic_id][one] for one in partitions]
        written.append(TopicPartitions(topic_id=topic_id, partitions=partitions, assignment_epochs=epochs))
    return written


def owned_of(written: list[TopicPartitions], member_epoch: int) -> dict[bytes, dict[int, int]]:
    """Records from before assignments had epochs of their own give them the member's."""
    owned: dict[bytes, dict[int, int]] = {}
    for one in written:
        epochs = one.assignment_epochs
        if epochs is None or len(epochs) != len(one.partitions):
            epochs = [max(member_epoch, 0)] * len(one.partitions)
        owned[one.topic_id] = dict(zip(one.partitions, epochs, strict=True))
    return owned


def state_of(value: int) -> State:
    return State(value) if value in _STATES else State.UNKNOWN


_STATES = frozenset(State)
