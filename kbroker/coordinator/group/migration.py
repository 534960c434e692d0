"""A group goes over from one protocol to the other while members are in it.

Up, when the first member of the consumer protocol joins: members of the classic protocol stay as they are and are
served out of the consumer group (mixed.py). Down, when the last one is gone: those who are left make a generation among
themselves. Either way the log first ends the one group and then tells the other whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from kbroker.coordinator.group import consumer_records as records
from kbroker.coordinator.group import embedded
from kbroker.coordinator.group.classic import CONSUMER, STABLE, ClassicGroup
from kbroker.coordinator.group.classic import Member as ClassicMember
from kbroker.coordinator.group.consumer import ConsumerGroup
from kbroker.coordinator.group.facts import Topics
from kbroker.coordinator.group.java_order import member_order, record_order
from kbroker.coordinator.group.member import NOTHING, ClassicMetadata, ClassicProtocol, Member, State
from kbroker.coordinator.group.member_timers import disarm
from kbroker.coordinator.group.turn import Surroundings
from kbroker.coordinator.step import Record, Step
from kbroker.errors import GroupIdNotFoundError
from kbroker.protocol.codec import DecodeError

Place = tuple[bytes, int]  # topic id, partition

# Assignors whose data only remembers what they assigned: librdkafka's goes with the assignment, and Kafka refuses it.
FORGETFUL = ("sticky", "cooperative-sticky")

# ---- up ----


def check_upgrade(group: ClassicGroup, around: Surroundings) -> None:
    """GroupIdNotFoundError unless the group may go over."""
    settings = around.settings(group.group_id)
    if not settings.may_upgrade:
        raise _not_upgraded(group, f"group.consumer.migration.policy is {settings.migration_policy}")
    if group.protocol_type != CONSUMER:
        raise _not_upgraded(group, f"its members speak {group.protocol_type}, not {CONSUMER}")
    if len(group.members) > settings.max_size:
        raise _not_upgraded(group, f"it has more than group.consumer.max.size={settings.max_size} members")


def _not_upgraded(group: ClassicGroup, reason: str) -> GroupIdNotFoundError:
    return GroupIdNotFoundError(f"Classic group {group.group_id} cannot become a consumer group: {reason}.")


def upgraded(group: ClassicGroup, around: Surroundings) -> tuple[ConsumerGroup, list[Record]]:
    """The consumer group that takes its place, for now known to nobody, and the records that bring it about."""
    members = {}
    owners: set[Place] = set()
    assigned_first = sorted(group.members.values(), key=lambda one: not one.assignment)
    for one in assigned_first:
        try:
            members[one.member_id] = _upgraded_member(group, one, owners, around)
        except DecodeError as problem:
            raise _not_upgraded(group, f"what member {one.member_id} told cannot be read ({problem})") from None
        for topic_id, held in members[one.member_id].assigned.items():
            for place in ((topic_id, partition) for partition in held):
                if place in owners:
                    raise _not_upgraded(group, "a partition was assigned to two members")
                owners.add(place)
    order = record_order(members)
    group_id, generation = group.group_id, group.generation_id
    names = {name for one in members.values() for name in one.topics}
    made = [
        *(records.member_record(group_id, members[one]) for one in order),
        records.epoch_record(group_id, generation, around.hashes.of(names)),
        *(
            records.target_record(
                group_id, one, {topic_id: frozenset(held) for topic_id, held in members[one].assigned.items()}
            )
            for one in order
        ),
        records.target_epoch_record(group_id, generation, 0),
        *(records.current_record(group_id, members[one]) for one in order),
    ]
    converted = ConsumerGroup(group_id)
    for record in made:
        converted.apply(record)
    converted.is_partial = len(owners) < _count(names, around.topics)  # a rebalance was due
    return converted, [*group.tombstones(), *made]


def _upgraded_member(
    group: ClassicGroup, member: ClassicMember, owners: Collection[Place], around: Surroundings
) -> Member:
    """What it was assigned last is what it has: whoever waits for more is asked to join again.

    A rebalance that was broken off leaves members without assignments. Cooperative ones read on meanwhile, so then
    what it said when it joined counts, unless another has it. Kafka takes it for free, and has it read twice.
    """
    subscription = embedded.subscription_of(member.metadata(group.protocol_name) or member.protocols[0][1])
    assigned = {}
    if member.assignment:
        assignment = embedded.assignment_of(member.assignment)
        if assignment.user_data and group.protocol_name not in FORGETFUL:
            raise _not_upgraded(group, "its assignor gives members data of its own, which would be lost")
        for topic_id, partitions in embedded.by_id(assignment.assigned_partitions, around.topics).items():
            assigned[topic_id] = dict.fromkeys(partitions, group.generation_id)
    else:
        for topic_id, partitions in embedded.by_id(subscription.owned_partitions, around.topics).items():
            free = [one for one in partitions if (topic_id, one) not in owners]
            if free:
                assigned[topic_id] = dict.fromkeys(free, group.generation_id)
    return Member(
        member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMetadata(
            session_timeout_ms=member.session_timeout_ms,
            supported_protocols=[ClassicProtocol(name=name, metadata=metadata) for name, metadata in member.protocols],
        ),
        epoch=group.generation_id,
        previous_epoch=group.generation_id,
        state=State.STABLE,
        assigned=assigned,
    )


def _count(names: Iterable[str], topics: Topics) -> int:
    return sum(topic.partitions for name in names if (topic := topics.find(name)) is not None)


# ---- down ----


class Heir(NamedTuple):
    """A static member of the classic protocol that takes the place of one of the consumer protocol."""

    member: Member
    replaced: str  # member id
    changed: bool  # it subscribes to something else


def may_downgrade(group: ConsumerGroup, without: Collection[Member], around: Surroundings, more: int = 0) -> bool:
    """Whether only members of the classic protocol are left, and the group may go back. `more` come in their place."""
    left = len(group.members) - len(without)
    classic = group.classic_count - sum(one.classic is not None for one in without)
    return (
        classic == left
        and left + more > 0
        and around.settings(group.group_id).may_downgrade
        and left + more <= around.rebalances.max_size
    )


def downgrade(
    step: Step,
    group: ConsumerGroup,
    around: Surroundings,
    now_ms: int,
    *,
    without: Collection[Member] = (),
    heir: Heir | None = None,
) -> None:
    """Members keep their targets, and rebalance unless all have reached them and one was only replaced by its like.

    Kafka does not ask whether they have: then what one still reads may be given to another.
    """
    gone = {one.member_id for one in without}
    order = record_order(group.members)
    named = {one: one for one in order}
    if heir is not None:  # the records of its taking over come before: it is ended in place of the other
        named[heir.replaced] = heir.member.member_id
        gone.add(heir.replaced)
    classic = ClassicGroup(group.group_id, now_ms)
    classic.state, classic.generation_id = STABLE, group.epoch
    classic.leader_id = next((one for one in order if one not in gone), None if heir is None else heir.member.member_id)
    left = {one: member for one, member in group.members.items() if one not in gone}
    if heir is not None:
        left[heir.member.member_id] = heir.member
    for member_id in member_order(left):
        _add(classic, left[member_id])
    classic.choose()
    for one in classic.members.values():
        held = heir.replaced if heir is not None and one.member_id == heir.member.member_id else one.member_id
        version = embedded.version_of(one.metadata(classic.protocol_name))
        one.assignment = embedded.assignment_bytes(group.targets.get(held, NOTHING), around.topics, version)
        step.arm(one.session_timer, now_ms + one.session_timeout_ms)
    step.records += records.group_tombstones(group.group_id, list(named.values()), list(group.expressions))
    step.records.append(classic.generation())
    for member_id in group.members:
        disarm(step, group, member_id)
    quiet = heir is not None and not heir.changed and group.is_settled
    around.rebalances.take_over(step, classic, now_ms, rebalance=not quiet)


def _add(classic: ClassicGroup, member: Member) -> None:
    assert member.classic is not None, member.member_id
    protocols = tuple((one.name, one.metadata) for one in member.classic.supported_protocols)
    made = ClassicMember(
        classic.group_id,
        member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.classic.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=protocols,
    )
    classic.add(made, CONSUMER)


def leaves_unread(group: ClassicGroup, topics: Topics) -> bool:
    """Whether a settled group has partitions that nobody reads.

    A log that ends right after a group came back tells of a generation that was to be followed by another at once.
    """
    if group.state != STABLE or group.subscribed is None:
        return False
    try:
        parts = [embedded.assignment_of(one.assignment) for one in group.members.values() if one.assignment]
    except DecodeError:
        return False
    read = {(one.topic, index) for part in parts for one in part.assigned_partitions for index in one.partitions}
    return len({place for place in read if place[0] in group.subscribed}) < _count(group.subscribed, topics)
