"""A group of the consumer protocol (KIP-848): its members, the target, and who owns what.

Three epochs: the group's rises with every change of members, subscriptions or topics; the target's says for which group
epoch the partitions were shared out; a member's says how far it has come. `apply` alone writes; heartbeat.py decides.

    Empty        nobody is in it
    Assigning    the target is older than the group
    Reconciling  a member has not reached the target
    Stable       everyone has
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kbroker.coordinator.group import consumer_records as records
from kbroker.coordinator.group.group import PartitionCheck
from kbroker.coordinator.group.java_order import record_order
from kbroker.coordinator.group.member import LEAVING, NOTHING, NOTHING_OWNED, Assignment, Expression, Member, State
from kbroker.coordinator.step import Record
from kbroker.errors import (
    IllegalGenerationError,
    KafkaError,
    NonEmptyGroupError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnsupportedVersionError,
)
from kbroker.protocol.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

EMPTY, ASSIGNING, RECONCILING, STABLE = "Empty", "Assigning", "Reconciling", "Stable"
FIRST_EPOCH = 1
NO_TARGET = -1
MEMBER_EPOCHS_FROM = 9  # version of OffsetCommit


class ConsumerGroup:
    kind = "consumer"
    protocol_type = "consumer"

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.target_epoch = FIRST_EPOCH
        self.target_timestamp = 0
        self.members: dict[str, Member] = {}
        self.targets: dict[str, Assignment] = {}
        self.expressions: dict[str, Expression] = {}
        self.instances: dict[str, str] = {}  # instance id -> member id
        self.owners: dict[tuple[bytes, int], str] = {}  # partition -> member id
        self.subscribers: Counter[str] = Counter()  # topic name -> members that name it
        self.expression_users: Counter[str] = Counter()  # pattern -> members
        self.classic_count = 0  # members that speak the classic protocol
        self.classic_protocols: Counter[str] = Counter()  # name -> how many of those speak it
        self.stale_topics = False  # not lasting: the topics may have changed since the hash was taken
        self.is_partial = False  # not lasting: it was a classic group, and left partitions unread
        self.awaited: set[str] = set()  # not lasting: classic members that were told to join again

    # ---- what every group is asked ----

    @property
    def state_name(self) -> str:
        if not self.members:
            return EMPTY
        if self.epoch > self.target_epoch:
            return ASSIGNING
        return STABLE if self.is_settled else RECONCILING

    @property
    def is_settled(self) -> bool:
        """Everyone has what the newest target gives it."""
        return self.epoch == self.target_epoch and all(
            one.is_reconciled_to(self.target_epoch) for one in self.members.values()
        )

    @property
    def is_empty(self) -> bool:
        return not self.members

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, api_version: int, *, transactional: bool = False
    ) -> PartitionCheck | None:
        """A member that is behind may still commit what it has had since then or longer (KIP-1251)."""
        if epoch < 0 and not self.members:
            return None
        if transactional and epoch < 0 and not member_id and instance_id is None:
            return None
        member = self.member(member_id)
        if not transactional and member.classic is None and api_version < MEMBER_EPOCHS_FROM:
            raise UnsupportedVersionError(
                f"OffsetCommit version {MEMBER_EPOCHS_FROM} or later must be used by members of a consumer group."
            )
        if epoch == member.epoch:
            return None
        stale = StaleMemberEpochError if member.classic is None else IllegalGenerationError
        if epoch > member.epoch:
            raise stale(f"Epoch {epoch} is newer than the member's, {member.epoch}.")

        def check(topic_id: bytes, partition: int) -> KafkaError | None:
            since = member.assigned_epoch(topic_id, partition)
            return None if since is not None and since <= epoch else stale()

        return check

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if epoch != member.epoch:
            stale = StaleMemberEpochError if member.classic is None else IllegalGenerationError
            raise stale(f"Epoch {epoch} is not the member's, {member.epoch}.")

    def check_delete(self) -> None:
        if self.members:
            raise NonEmptyGroupError()

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.subscribers or any(topic in one.topics for one in self.expressions.values())

    def idle_since_ms(self, committed_ms: int) -> int | None:
        return committed_ms

    def tombstones(self) -> list[Record]:
        return records.group_tombstones(self.group_id, record_order(self.members), list(self.expressions))

    # ---- reading ----

    def member(self, member_id: str) -> Member:
        found = self.members.get(member_id)
        if found is None:
            raise UnknownMemberIdError(f"Member {member_id} is not a member of group {self.group_id}.")
        return found

    def static_member(self, instance_id: str) -> Member | None:
        member_id = self.instances.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target_of(self, member: Member) -> Assignment:
        """A static member that comes back under a new id inherits."""
        member_id = member.member_id
        if member.instance_id is not None:
            member_id = self.instances.get(member.instance_id, member_id)
        return self.targets.get(member_id, NOTHING)

    def is_owned(self, topic_id: bytes, partition: int) -> bool:
        return (topic_id, partition) in self.owners

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether someone of the classic protocol who speaks these may come in: all others of it must speak one."""
        return protocol_type == self.protocol_type and any(
            self.classic_protocols[name] == self.classic_count for name in names
        )

    def is_ahead_of(self, member: Member) -> bool:
        """Whether there is a target, or could be one, that a member of the classic protocol must join again for.

        Members of the consumer protocol make it with a heartbeat. Where there are none it is made by whoever joins.
        """
        newest = self.epoch if self.classic_count == len(self.members) else self.target_epoch
        return newest > member.epoch

    def is_to_come(self, member: Member) -> bool:
        """Whether a member of the classic protocol gets any further by joining again."""
        if member.state == State.UNRELEASED_PARTITIONS:
            return not any(
                self.is_owned(topic_id, partition)
                for topic_id, partitions in self.targets.get(member.member_id, NOTHING).items()
                for partition in partitions.difference(member.assigned.get(topic_id, ()))
            )
        return member.state == State.UNREVOKED_PARTITIONS

    def topic_names(self, without: Iterable[Member] = (), plus: Member | None = None) -> set[str]:
        """All that members subscribe to; after some have gone and one has come or changed."""
        names = Counter(self.subscribers)
        users = Counter(self.expression_users)
        for one in without:
            names.subtract(one.topics)
            users.subtract([one.expression])
        if plus is not None:
            names.update(plus.topics)
            users.update([plus.expression])
        found = {name for name, count in names.items() if count > 0}
        for pattern, resolved in self.expressions.items():
            if users[pattern] > 0:
                found |= resolved.topics
        return found

    # ---- what lasts ----

    def apply(self, record: Record) -> None:
        key, value = record
        match key:
            case ConsumerGroupMetadataKey():
                if isinstance(value, ConsumerGroupMetadataValue):
                    self.epoch = value.epoch
                    self.metadata_hash = value.metadata_hash
            case ConsumerGroupMemberMetadataKey(member_id=member_id):
                assert value is None or isinstance(value, ConsumerGroupMemberMetadataValue)
                self._apply_member(member_id, value)
            case ConsumerGroupTargetAssignmentMetadataKey():
                if isinstance(value, ConsumerGroupTargetAssignmentMetadataValue):
                    self.target_epoch = value.assignment_epoch
                    self.target_timestamp = value.assignment_timestamp
                else:
                    self.target_epoch, self.target_timestamp = NO_TARGET, 0
            case ConsumerGroupTargetAssignmentMemberKey(member_id=member_id):
                assert value is None or isinstance(value, ConsumerGroupTargetAssignmentMemberValue)
                self._apply_target(member_id, value)
            case ConsumerGroupCurrentMemberAssignmentKey(member_id=member_id):
                assert value is None or isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
                self._apply_current(member_id, value)
            case ConsumerGroupRegularExpressionKey(regular_expression=pattern):
                if isinstance(value, ConsumerGroupRegularExpressionValue):
                    self.expressions[pattern] = Expression(frozenset(value.topics), value.version, value.timestamp)
                else:
                    self.expressions.pop(pattern, None)

    def _apply_member(self, member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> None:
        if value is None:
            self._put(member_id, None)
            return
        held = self.members.get(member_id) or Member(member_id)
        self._put(
            member_id,
            held._replace(
                instance_id=value.instance_id,
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                topics=frozenset(value.subscribed_topic_names),
                expression=value.subscribed_topic_regex or "",
                rebalance_timeout_ms=value.rebalance_timeout_ms,
                assignor=value.server_assignor,
                classic=value.classic_member_metadata,
            ),
        )

    def _apply_target(self, member_id: str, value: ConsumerGroupTargetAssignmentMemberValue | None) -> None:
        if value is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = {one.topic_id: frozenset(one.partitions) for one in value.topic_partitions}

    def _apply_current(self, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None) -> None:
        held = self.members.get(member_id)
        if value is None:
            if held is not None:
                gone = held._replace(
                    epoch=LEAVING, previous_epoch=LEAVING, assigned=NOTHING_OWNED, revoking=NOTHING_OWNED
                )
                self._put(member_id, gone)
            return
        self._put(
            member_id,
            (held or Member(member_id))._replace(
                epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                state=records.state_of(value.state),
                assigned=records.owned_of(value.assigned_partitions, value.member_epoch),
                revoking=records.owned_of(value.partitions_pending_revocation, value.member_epoch),
            ),
        )

    def _put(self, member_id: str, member: Member | None) -> None:
        """The one place where a member changes: what is counted over members changes with it."""
        before = self.members.pop(member_id, None) if member is None else self.members.get(member_id)
        if before is not None:
            self._uncount(before)
        if member is None:
            return
        self.members[member_id] = member
        self.subscribers.update(member.topics)
        if member.expression:
            self.expression_users[member.expression] += 1
        if member.instance_id is not None:
            self.instances[member.instance_id] = member_id
        if member.classic is not None:
            self.classic_count += 1
            self.classic_protocols.update(one.name for one in member.classic.supported_protocols)
        for owned in (member.assigned, member.revoking):
            for topic_id, partitions in owned.items():
                for partition in partitions:
                    self.owners[topic_id, partition] = member_id

    def _uncount(self, member: Member) -> None:
        for topic in member.topics:
            self.subscribers[topic] -= 1
            if not self.subscribers[topic]:
                del self.subscribers[topic]
        if member.expression:
            self.expression_users[member.expression] -= 1
            if not self.expression_users[member.expression]:
                del self.expression_users[member.expression]
        if member.instance_id is not None and self.instances.get(member.instance_id) == member.member_id:
            del self.instances[member.instance_id]
        if member.classic is not None:
            self.classic_count -= 1
            self.classic_protocols.subtract(one.name for one in member.classic.supported_protocols)
            self.classic_protocols = +self.classic_protocols
        for owned in (member.assigned, member.revoking):
            for topic_id, partitions in owned.items():
                for partition in partitions:
                    if self.owners.get((topic_id, partition)) == member.member_id:
                        del self.owners[topic_id, partition]
