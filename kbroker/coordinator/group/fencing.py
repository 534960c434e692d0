"""Members leave a consumer group or are put out of it, and what they had is free."""

from __future__ import annotations

from kbroker.coordinator.group import consumer_records as records
from kbroker.coordinator.group.consumer import ConsumerGroup
from kbroker.coordinator.group.member import Member, State
from kbroker.coordinator.group.member_timers import JOIN, REBALANCE, SESSION, SYNC, disarm
from kbroker.coordinator.group.migration import downgrade, may_downgrade
from kbroker.coordinator.group.turn import Surroundings
from kbroker.coordinator.step import Step, Timer


def fence(group: ConsumerGroup, members: list[Member], around: Surroundings, now_ms: int) -> Step:
    """If only members of the classic protocol are left, the group goes back to theirs."""
    step = Step()
    if may_downgrade(group, members, around):
        downgrade(step, group, around, now_ms, without=members)
        return step
    for one in members:
        step.records += records.member_tombstones(group.group_id, one.member_id)
    for pattern in sorted({one.expression for one in members if one.expression}):
        if group.expression_users[pattern] == sum(one.expression == pattern for one in members):
            step.records.append(records.expression_tombstone(group.group_id, pattern))
    names = group.topic_names(members)
    step.records.append(records.epoch_record(group.group_id, group.epoch + 1, around.hashes.of(names)))
    for one in members:
        disarm(step, group, one.member_id)
    return step


def on_timer(group: ConsumerGroup, timer: Timer, around: Surroundings, now_ms: int) -> Step:
    """A late timer is not an error."""
    member = group.members.get(timer.member)
    if timer.kind == JOIN:
        group.awaited.discard(timer.member)
    if member is None or not _is_over(timer.kind, member):
        return Step()
    return fence(group, [member], around, now_ms)


def _is_over(kind: str, member: Member) -> bool:
    """Only who still has not given up what it should is late with that, and only the classic protocol has joins."""
    if kind == REBALANCE:
        return member.state == State.UNREVOKED_PARTITIONS
    if kind in (JOIN, SYNC):
        return member.classic is not None
    return kind == SESSION
