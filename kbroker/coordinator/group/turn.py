"""A member's turn with its group: from what it asks for now to the group's epoch, the target and its own next state.

The order of the records is Kafka's: the member, its expression, the group's epoch, targets, the target's epoch, the
member's own state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from kbroker.coordinator.group import consumer_records as records
from kbroker.coordinator.group import pace
from kbroker.coordinator.group.assignors import ASSIGNORS
from kbroker.coordinator.group.assignors.spec import Wish
from kbroker.coordinator.group.consumer import ConsumerGroup
from kbroker.coordinator.group.consumer_settings import ConsumerSettings
from kbroker.coordinator.group.expressions import Expressions
from kbroker.coordinator.group.facts import Topics
from kbroker.coordinator.group.java_order import member_order
from kbroker.coordinator.group.member import NOTHING, Assignment, Expression, Member
from kbroker.coordinator.group.metadata_hash import MetadataHashes
from kbroker.coordinator.group.rebalance import Rebalances
from kbroker.coordinator.group.reconcile import Reported, Situation, reconciled
from kbroker.coordinator.step import Step


class Surroundings(NamedTuple):
    """What every decision may look at."""

    topics: Topics
    hashes: MetadataHashes
    expressions: Expressions
    settings: Callable[[str], ConsumerSettings]  # of a group
    rebalances: Rebalances  # of groups that go back to the classic protocol


class Turn:
    """`before` is the member as the group has it, or as it would be if it had just come."""

    def __init__(self, group: ConsumerGroup, before: Member, now_ms: int, step: Step, around: Surroundings) -> None:
        self._group = group
        self._before = before
        self._now_ms = now_ms
        self._step = step
        self._around = around
        self._settings = around.settings(group.group_id)
        self._expressions = dict(group.expressions)
        self.changed = False  # the member asks for something else than before
        self.epoch = group.epoch  # as it is afterwards, as are the next two
        self.target_epoch = group.target_epoch
        self.target_timestamp = group.target_timestamp

    def take(self, member: Member, reported: Reported) -> Member:
        """The member asks for this now and says what it owns; how it is afterwards. What changed is in the step."""
        self.epoch = self._ask(member)
        target = self._group.target_of(member)
        if self.epoch > self.target_epoch and self._may_assign():
            target = self._assign(self.epoch, member)
            self.target_epoch, self.target_timestamp = self.epoch, self._now_ms
        return self._move(member, target, reported)

    def hand_over(self, member: Member, reported: Reported) -> Member:
        """The same in a group that ends with it: there is no new target, and none at all for other wishes."""
        self._ask(member)
        if self.changed:
            return member
        return self._move(member, self._group.target_of(member), reported)

    def interval_ms(self, member: Member) -> int:
        """How soon the member shall come again, being now as it is."""
        settled = self.epoch == self.target_epoch and member.is_reconciled_to(self.target_epoch)
        age_ms = self._now_ms - self.target_timestamp
        return pace.interval_ms(self._settings.heartbeat_interval_ms, age_ms, settled=settled)

    def _ask(self, member: Member) -> int:
        before = self._before
        if member != before:
            self._step.records.append(records.member_record(self._group.group_id, member))
        self.changed = member.topics != before.topics or member.expression != before.expression
        return self._next_epoch(member, changed=self.changed)

    def _move(self, member: Member, target: Assignment, reported: Reported) -> Member:
        group, target_epoch = self._group, self.target_epoch
        if not self.changed and member.is_reconciled_to(target_epoch):
            return member
        wanted = topic_ids(member, self._expressions, self._around.topics)
        moved = reconciled(member, Situation(target_epoch, target, wanted, group.is_owned, reported, self.changed))
        if moved != member:
            self._step.records.append(records.current_record(group.group_id, moved))
        return moved

    def _next_epoch(self, member: Member, *, changed: bool) -> int:
        group = self._group
        changed = self._resolve(member) or changed or group.is_partial
        if not changed and not group.stale_topics:
            return group.epoch
        group.stale_topics = False
        names = group.topic_names([self._before], member)
        names.update(name for one in self._expressions.values() for name in one.topics)
        metadata_hash = self._around.hashes.of(names)
        if not changed and metadata_hash == group.metadata_hash:
            return group.epoch
        self._step.records.append(records.epoch_record(group.group_id, group.epoch + 1, metadata_hash))
        return group.epoch + 1

    # ---- expressions ----

    def _resolve(self, member: Member) -> bool:
        """Tries those expressions on all topics for which it is time. Whether one matches others than it did."""
        group, users, old = self._group, self._group.expression_users, self._before.expression
        if not users and not member.expression:
            return False
        patterns = {one for one in users if one != old or users[one] > 1}
        if old and old not in patterns and member.expression != old:
            self._step.records.append(records.expression_tombstone(group.group_id, old))
            self._expressions.pop(old, None)
        if member.expression:
            patterns.add(member.expression)
            if member.expression not in self._expressions:
                self._around.expressions.check(member.expression)
        due = [one for one in sorted(patterns) if self._is_due(one)]
        names = list(self._around.topics.names()) if due else []
        changed = False
        for pattern in due:
            matching = self._around.expressions.matching(pattern, names)
            held = self._expressions.get(pattern)
            changed = changed or held is None or matching != held.topics
            resolved = Expression(matching, self._around.topics.version(), self._now_ms)
            self._expressions[pattern] = resolved
            self._step.records.append(records.expression_record(group.group_id, pattern, resolved))
        return changed

    def _is_due(self, pattern: str) -> bool:
        held = self._expressions.get(pattern)
        if held is None or self._group.stale_topics:
            return True
        return self._now_ms > held.timestamp + self._settings.expression_refresh_ms

    # ---- the target ----

    def _may_assign(self) -> bool:
        """Not more often than every so often: members that come together get one target, not one each."""
        last_ms, interval_ms = self._group.target_timestamp, self._settings.assignment_interval_ms
        return not last_ms or not interval_ms or self._now_ms >= last_ms + interval_ms

    def _assign(self, epoch: int, member: Member) -> Assignment:
        """A target for everyone, as records; this member's share of it."""
        group = self._group
        members = dict(group.members)
        if member.instance_id is not None:
            members.pop(group.instances.get(member.instance_id, ""), None)
        members[member.member_id] = member
        held = {**group.targets, member.member_id: group.target_of(member)}
        targets = share_out(members, held, self._expressions, self._around.topics, self._settings)
        for member_id in member_order(targets):
            if targets[member_id] != group.targets.get(member_id):
                self._step.records.append(records.target_record(group.group_id, member_id, targets[member_id]))
        self._step.records.append(records.target_epoch_record(group.group_id, epoch, self._now_ms))
        return targets[member.member_id]


def topic_ids(member: Member, expressions: Mapping[str, Expression], topics: Topics) -> frozenset[bytes]:
    """Of all existing topics that the member subscribes to."""
    names = member.topics
    if member.expression and member.expression in expressions:
        names = names | expressions[member.expression].topics
    return frozenset(topic.topic_id for name in names if (topic := topics.find(name)) is not None)


def share_out(
    members: Mapping[str, Member],
    held: Mapping[str, Assignment],
    expressions: Mapping[str, Expression],
    topics: Topics,
    settings: ConsumerSettings,
) -> dict[str, Assignment]:
    ids: dict[tuple[frozenset[str], str], frozenset[bytes]] = {}
    wishes = {}
    for one in members.values():
        subscription = (one.topics, one.expression)
        if subscription not in ids:
            ids[subscription] = topic_ids(one, expressions, topics)
        wishes[one.member_id] = Wish(ids[subscription], held.get(one.member_id, NOTHING), one.instance_id)
    partitions = {}
    for topic_id in frozenset[bytes]().union(*ids.values()):
        topic = topics.find_id(topic_id)
        assert topic is not None, topic_id
        partitions[topic_id] = topic.partitions
    return ASSIGNORS[preferred_assignor(members.values(), settings)](wishes, partitions)


def preferred_assignor(members: Iterable[Member], settings: ConsumerSettings) -> str:
    """What most of those who care asked for; of two that as many did, the one that the settings name first."""
    votes = Counter(one.assignor for one in members)
    return max(settings.assignors, key=votes.__getitem__)
