"""ConsumerGroupHeartbeat decided: a member joins, stays, comes back or leaves. turn.py moves it towards its target."""

from __future__ import annotations

from typing import NamedTuple

from kbroker.coordinator.group import consumer_records as records
from kbroker.coordinator.group.consumer import ConsumerGroup
from kbroker.coordinator.group.consumer_settings import ConsumerSettings
from kbroker.coordinator.group.facts import Caller
from kbroker.coordinator.group.fencing import fence
from kbroker.coordinator.group.member import (
    JOINING,
    LEAVING,
    LEAVING_FOR_A_WHILE,
    NOTHING,
    NOTHING_OWNED,
    Member,
    Owned,
    State,
)
from kbroker.coordinator.group.member_timers import JOIN, REBALANCE, SESSION, SYNC, disarm, timer
from kbroker.coordinator.group.turn import Surroundings, Turn
from kbroker.coordinator.step import Step
from kbroker.errors import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupMaxSizeReachedError,
    InvalidRequestError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
)
from kbroker.protocol.messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

MEMBER_ID_FROM = 1  # version from which on the client makes the member id

Request = ConsumerGroupHeartbeatRequest
Response = ConsumerGroupHeartbeatResponse


class Beat(NamedTuple):
    """One heartbeat that is neither a leave nor malformed."""

    request: Request
    caller: Caller
    now_ms: int


def check_request(request: Request, version: int, settings: ConsumerSettings) -> None:
    """InvalidRequestError, UnsupportedAssignorError: what can be said without looking at the group."""
    epoch = request.member_epoch
    if not request.member_id and (version >= MEMBER_ID_FROM or epoch > 0 or epoch == LEAVING):
        raise InvalidRequestError("MemberId can't be empty.")
    if not request.group_id:
        raise InvalidRequestError("GroupId can't be empty.")
    if request.instance_id == "":
        raise InvalidRequestError("InstanceId can't be empty.")
    if request.rack_id == "":
        raise InvalidRequestError("RackId can't be empty.")
    if epoch == JOINING:
        if request.rebalance_timeout_ms == -1:
            raise InvalidRequestError("RebalanceTimeoutMs must be given when joining.")
        if request.topic_partitions is None or request.topic_partitions:
            raise InvalidRequestError("TopicPartitions must be empty when joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise InvalidRequestError("SubscribedTopicNames or SubscribedTopicRegex must be given when joining.")
    elif epoch == LEAVING_FOR_A_WHILE:
        if request.instance_id is None:
            raise InvalidRequestError("InstanceId can't be null when leaving for a while.")
    elif epoch < LEAVING_FOR_A_WHILE:
        raise InvalidRequestError("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in settings.assignors:
        raise UnsupportedAssignorError(
            f"ServerAssignor {request.server_assignor} is not supported; there are {', '.join(settings.assignors)}."
        )


def check_epoch(member: Member, request: Request) -> None:
    """An older epoch passes when it is the one before and the member has nothing else: its last answer was lost."""
    epoch = request.member_epoch
    if epoch in (JOINING, member.epoch):
        return
    if epoch < member.epoch and epoch == member.previous_epoch and _is_within(request, member.assigned):
        return
    raise FencedMemberEpochError(
        f"The member's epoch is {member.epoch}, not {epoch}: it must give up its partitions and rejoin."
    )


def _is_within(request: Request, assigned: Owned) -> bool:
    if request.topic_partitions is None:
        return False
    return all(
        one.topic_id in assigned and all(partition in assigned[one.topic_id] for partition in one.partitions)
        for one in request.topic_partitions
    )


def on_heartbeat(group: ConsumerGroup, beat: Beat, token: object, around: Surroundings) -> Step:
    """The group may be a new one that nobody has heard of yet: records make it."""
    request, step = beat.request, Step()
    settings = around.settings(group.group_id)
    check_place(group, request.member_id, settings)
    before = _member(group, request, step)
    member = _updated(before, beat)
    reported = request.topic_partitions
    owned = None if reported is None else [(one.topic_id, one.partitions) for one in reported]
    turn = Turn(group, before, beat.now_ms, step, around)
    decided = turn.take(member, owned)
    _time(group, decided, beat.now_ms, settings, step)
    step.reply(token, _response(before, decided, request, turn.interval_ms(decided)))
    return step


def check_place(group: ConsumerGroup, member_id: str, settings: ConsumerSettings) -> None:
    if len(group.members) >= settings.max_size and member_id not in group.members:
        raise GroupMaxSizeReachedError(f"The group has its maximum of {settings.max_size} members.")


def _member(group: ConsumerGroup, request: Request, step: Step) -> Member:
    if request.instance_id is not None:
        return _static_member(group, request, step)
    if request.member_epoch == JOINING:
        return group.members.get(request.member_id) or Member(request.member_id)
    member = group.member(request.member_id)
    check_epoch(member, request)
    return member


def _static_member(group: ConsumerGroup, request: Request, step: Step) -> Member:
    assert request.instance_id is not None
    held = group.static_member(request.instance_id)
    if request.member_epoch != JOINING:
        member = checked_instance(held, request.instance_id, request.member_id)
        check_epoch(member, request)
        return member
    if held is None:
        return group.members.get(request.member_id) or Member(request.member_id)
    if held.classic is None and held.epoch != LEAVING_FOR_A_WHILE:
        raise UnreleasedInstanceIdError(f"Instance id {request.instance_id} is owned by member {held.member_id}.")
    return replace_static_member(group, held, request.member_id, step)


def checked_instance(held: Member | None, instance_id: str, member_id: str) -> Member:
    """Whoever holds the instance, if it is this member."""
    if held is None:
        raise UnknownMemberIdError(f"Instance id {instance_id} is unknown.")
    if held.member_id != member_id:
        raise FencedInstanceIdError(f"Instance id {instance_id} belongs to member {held.member_id}.")
    return held


def replace_static_member(group: ConsumerGroup, held: Member, member_id: str, step: Step) -> Member:
    """The instance goes on under a new member id, with what it had."""
    member = held._replace(member_id=member_id, epoch=JOINING, previous_epoch=JOINING)
    step.records += records.member_tombstones(group.group_id, held.member_id)
    step.records += [
        records.member_record(group.group_id, member),
        records.target_record(group.group_id, member_id, group.targets.get(held.member_id, NOTHING)),
        records.current_record(group.group_id, member),
    ]
    disarm(step, group, held.member_id)
    return member


def _updated(member: Member, beat: Beat) -> Member:
    """Fields that are null have not changed."""
    request, caller = beat.request, beat.caller
    changes: dict[str, object] = {}
    if request.instance_id is not None:
        changes["instance_id"] = request.instance_id
    if request.rack_id is not None:
        changes["rack_id"] = request.rack_id
    if request.rebalance_timeout_ms != -1:
        changes["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.server_assignor is not None:
        changes["assignor"] = request.server_assignor
    if request.subscribed_topic_names is not None:
        changes["topics"] = frozenset(request.subscribed_topic_names)
    if request.subscribed_topic_regex is not None:
        changes["expression"] = request.subscribed_topic_regex
    if caller.client_id != member.client_id or caller.client_host != member.client_host:
        changes["client_id"], changes["client_host"] = caller.client_id, caller.client_host
    if member.classic is not None:
        changes["classic"] = None
    return member._replace(**changes) if changes else member  # type: ignore[arg-type]


# ---- leaving ----


def on_leave(group: ConsumerGroup, request: Request, token: object, around: Surroundings, now_ms: int) -> Step:
    if request.instance_id is None:
        member = group.member(request.member_id)
    else:
        held = group.static_member(request.instance_id)
        member = checked_instance(held, request.instance_id, request.member_id)
        if request.member_epoch == LEAVING_FOR_A_WHILE:
            return _leave_for_a_while(group, member, token)
    step = fence(group, [member], around, now_ms)
    step.reply(token, Response(member_id=request.member_id, member_epoch=request.member_epoch))
    return step


def _leave_for_a_while(group: ConsumerGroup, member: Member, token: object) -> Step:
    """It keeps its place and its partitions until its session ends."""
    assigned = {topic_id: dict.fromkeys(held, 0) for topic_id, held in member.assigned.items()}
    gone = member._replace(epoch=LEAVING_FOR_A_WHILE, assigned=assigned, revoking=NOTHING_OWNED)
    step = Step([records.current_record(group.group_id, gone)])
    step.reply(token, Response(member_id=member.member_id, member_epoch=LEAVING_FOR_A_WHILE))
    return step


# ---- time ----


def _time(group: ConsumerGroup, member: Member, now_ms: int, settings: ConsumerSettings, step: Step) -> None:
    step.arm(timer(SESSION, group, member.member_id), now_ms + settings.session_timeout_ms)
    held = group.members.get(member.member_id)
    if held is not None and held.classic is not None:  # it has changed its protocol
        group.awaited.discard(member.member_id)
        step.disarm(timer(JOIN, group, member.member_id))
        step.disarm(timer(SYNC, group, member.member_id))
    state, epoch = (held.state, held.epoch) if held is not None else (State.STABLE, JOINING)
    if member.state == State.UNREVOKED_PARTITIONS:
        if state != State.UNREVOKED_PARTITIONS or epoch != member.epoch or _moved(held, member):
            step.arm(timer(REBALANCE, group, member.member_id), now_ms + member.rebalance_timeout_ms)
    elif state == State.UNREVOKED_PARTITIONS:
        step.disarm(timer(REBALANCE, group, member.member_id))


def _moved(held: Member | None, member: Member) -> bool:
    return held is None or (held.assigned, held.revoking) != (member.assigned, member.revoking)


# ---- the answer ----


def _response(before: Member, member: Member, request: Request, interval_ms: int) -> Response:
    response = Response(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=interval_ms,
    )
    full = (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )
    if request.member_epoch == JOINING or full or member.assigned != before.assigned:
        response.assignment = Response.Assignment(topic_partitions=written(member.assigned))
    return response


def written(assigned: Owned) -> list[Response.TopicPartitions]:
    return [Response.TopicPartitions(topic_id=topic_id, partitions=sorted(held)) for topic_id, held in assigned.items()]
