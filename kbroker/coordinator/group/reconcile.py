"""One member's way to its target: what it keeps, what it must give up first, what it gets.

A partition is given to a member only when nobody owns it, and counts as owned until its owner has said, by a heartbeat
without it, that it let go. So it never has two owners.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from kbroker.coordinator.group.member import NOTHING_OWNED, Assignment, Member, Owned, State
from kbroker.errors import FencedMemberEpochError

Reported = Iterable[tuple[bytes, Iterable[int]]] | None
"""What the member says it owns; None: it said nothing."""


class Situation(NamedTuple):
    target_epoch: int
    target: Assignment
    subscribed: Collection[bytes]  # topic ids
    is_owned: Callable[[bytes, int], bool]  # by anyone in the group
    reported: Reported
    subscription_changed: bool = False


def reconciled(member: Member, now: Situation) -> Member:
    """The member as it is after this heartbeat; the same object when nothing moved."""
    if member.state == State.STABLE:
        if member.epoch != now.target_epoch:
            return _next(member, now, member.epoch)
        return _narrowed(member, now) if now.subscription_changed else member
    if member.state == State.UNREVOKED_PARTITIONS and _still_has(now.reported, member.revoking):
        return _narrowed(member, now) if now.subscription_changed else member
    if member.state == State.UNKNOWN:
        if now.reported is None or any(True for _ in now.reported):
            raise FencedMemberEpochError("This member's state is not known here: give up all partitions and rejoin.")
        return _next(member, now, now.target_epoch)
    return _next(member, now, member.epoch)


def _still_has(reported: Reported, given_up: Owned) -> bool:
    if reported is None:
        return True
    return any(one in given_up[topic_id] for topic_id, held in reported if topic_id in given_up for one in held)


def _narrowed(member: Member, now: Situation) -> Member:
    """There is no new target, but a topic it reads is no longer among those it asked for: that is given up at once."""
    dropped = {topic_id: held for topic_id, held in member.assigned.items() if topic_id not in now.subscribed}
    if not dropped:
        return member
    kept = {topic_id: held for topic_id, held in member.assigned.items() if topic_id in now.subscribed}
    revoking = {topic_id: dict(held) for topic_id, held in member.revoking.items()}
    for topic_id, held in dropped.items():
        revoking.setdefault(topic_id, {}).update(held)
    if _still_has(now.reported, revoking):
        return member.moved(member.epoch, State.UNREVOKED_PARTITIONS, kept, revoking)
    return member.moved(member.epoch, member.state, kept, member.revoking)


def _next(member: Member, now: Situation, epoch: int) -> Member:
    kept: dict[bytes, dict[int, int]] = {}
    revoking: dict[bytes, dict[int, int]] = {}
    gained: dict[bytes, list[int]] = {}
    waits = False
    for topic_id in {**now.target, **member.assigned}:
        target = now.target.get(topic_id, frozenset()) if topic_id in now.subscribed else frozenset()
        held = member.assigned.get(topic_id, {})
        being_given_up = member.revoking.get(topic_id, {})
        keep = {one: since for one, since in held.items() if one in target}
        drop = {one: since for one, since in held.items() if one not in target}
        wanted = [one for one in sorted(target) if one not in keep]
        free = [one for one in wanted if one in being_given_up or not now.is_owned(topic_id, one)]
        waits = waits or len(free) < len(wanted)
        if keep:
            kept[topic_id] = keep
        if drop:
            revoking[topic_id] = drop
        if free:
            gained[topic_id] = free
    if revoking and _still_has(now.reported, revoking):
        return member.moved(epoch, State.UNREVOKED_PARTITIONS, kept, revoking)
    for topic_id, partitions in gained.items():
        kept.setdefault(topic_id, {}).update(dict.fromkeys(partitions, now.target_epoch))
    state = State.UNRELEASED_PARTITIONS if waits else State.STABLE
    return member.moved(now.target_epoch, state, kept, NOTHING_OWNED)
