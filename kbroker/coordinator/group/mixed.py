"""Members of the classic protocol in a consumer group: their JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

The coordinator assigns, so nobody leads and nobody waits for others: JoinGroup is a turn with the group, with what the
member owns taken from its subscription; its generation is the member's epoch; SyncGroup tells what it was assigned. A
heartbeat answers REBALANCE_IN_PROGRESS as often as the member has to come again: because the group has moved on, to say
that it gave partitions up, or to get those that others have given up. It must come within its rebalance timeout, and
must sync within it once it has joined.
"""

from __future__ import annotations

from kbroker.coordinator.group import embedded, heartbeat
from kbroker.coordinator.group.classic import CONSUMER
from kbroker.coordinator.group.consumer import ConsumerGroup
from kbroker.coordinator.group.fencing import fence
from kbroker.coordinator.group.member import ClassicMetadata, ClassicProtocol, Member, State
from kbroker.coordinator.group.member_timers import JOIN, REBALANCE, SESSION, SYNC, timer
from kbroker.coordinator.group.migration import Heir, downgrade, may_downgrade
from kbroker.coordinator.group.rebalance import MEMBER_ID_REQUIRED_FROM, Joining, rebalance_timeout, refused
from kbroker.coordinator.group.turn import Surroundings, Turn
from kbroker.coordinator.step import Reply, Step
from kbroker.errors import (
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    KafkaError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    UnknownServerError,
)
from kbroker.protocol.codec import DecodeError
from kbroker.protocol.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kbroker.protocol.records import ConsumerProtocolSubscription

# ---- JoinGroup ----


def on_join(group: ConsumerGroup, joining: Joining, now_ms: int, around: Surroundings) -> Step:
    try:
        return _join(group, joining, now_ms, around)
    except KafkaError as error:
        return Step(replies=[Reply(joining.token, refused(type(error)))])


def _join(group: ConsumerGroup, joining: Joining, now_ms: int, around: Surroundings) -> Step:
    request, step = joining.request, Step()
    member_id = request.member_id or joining.unique
    settings = around.settings(group.group_id)
    if not settings.may_mix and member_id not in group.members:
        raise InconsistentGroupProtocolError()
    heartbeat.check_place(group, member_id, settings)
    if not group.supports(request.protocol_type, [name for name, _ in joining.protocols]):
        raise InconsistentGroupProtocolError()
    anonymous = not request.member_id and request.group_instance_id is None
    if anonymous and joining.caller.api_version >= MEMBER_ID_REQUIRED_FROM:
        step.reply(joining.token, refused(MemberIdRequiredError, member_id))
        return step
    try:
        subscription = embedded.subscription_of(joining.protocols[0][1])
    except DecodeError:
        raise UnknownServerError("The member's subscription cannot be read.") from None
    replaced = None if request.group_instance_id is None else group.static_member(request.group_instance_id)
    before = _member(group, joining, member_id, step)
    member = _updated(before, joining, subscription)
    owned = list(embedded.by_id(subscription.owned_partitions, around.topics).items())
    turn = Turn(group, before, now_ms, step, around)
    if replaced is not None and replaced.classic is None and may_downgrade(group, [replaced], around, more=1):
        decided = turn.hand_over(member, owned)
        downgrade(step, group, around, now_ms, heir=Heir(decided, replaced.member_id, turn.changed))
    else:
        decided = turn.take(member, owned)
        _time(step, group, decided, joining, now_ms)
    step.reply(joining.token, _joined(decided))
    return step


def _member(group: ConsumerGroup, joining: Joining, member_id: str, step: Step) -> Member:
    """A static member without its id takes the place of whoever held the instance, whatever that one speaks."""
    instance_id = joining.request.group_instance_id
    if instance_id is None:
        return group.members.get(member_id) or Member(member_id)
    held = group.static_member(instance_id)
    if joining.request.member_id:
        return heartbeat.checked_instance(held, instance_id, member_id)
    if held is None:
        return Member(member_id)
    return heartbeat.replace_static_member(group, held, member_id, step)


def _updated(member: Member, joining: Joining, subscription: ConsumerProtocolSubscription) -> Member:
    request, caller = joining.request, joining.caller
    return member._replace(
        instance_id=member.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=member.rack_id if subscription.rack_id is None else subscription.rack_id,
        rebalance_timeout_ms=rebalance_timeout(request),
        topics=frozenset(subscription.topics),
        expression="",
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=ClassicMetadata(
            session_timeout_ms=request.session_timeout_ms,
            supported_protocols=[ClassicProtocol(name=name, metadata=metadata) for name, metadata in joining.protocols],
        ),
    )


def _time(step: Step, group: ConsumerGroup, member: Member, joining: Joining, now_ms: int) -> None:
    """It came, so its session begins anew, and now it must sync."""
    group.awaited.discard(member.member_id)
    step.disarm(timer(JOIN, group, member.member_id))
    step.disarm(timer(REBALANCE, group, member.member_id))
    step.arm(timer(SESSION, group, member.member_id), now_ms + joining.request.session_timeout_ms)
    step.arm(timer(SYNC, group, member.member_id), now_ms + member.rebalance_timeout_ms)


def _joined(member: Member) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=member.epoch,
        protocol_type=CONSUMER,
        protocol_name=_protocols(member)[0].name,
        member_id=member.member_id,
    )


def _protocols(member: Member) -> list[ClassicProtocol]:
    assert member.classic is not None, member.member_id
    return member.classic.supported_protocols


# ---- SyncGroup, Heartbeat ----


def on_sync(token: object, group: ConsumerGroup, request: SyncGroupRequest, now_ms: int, around: Surroundings) -> Step:
    member = _known(group, request.member_id, request.group_instance_id, request.generation_id)
    first = _protocols(member)[0]
    if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (None, first.name):
        raise InconsistentGroupProtocolError()
    step = Step()
    if group.is_ahead_of(member) and member.state != State.UNREVOKED_PARTITIONS:
        _await(step, group, member, now_ms)
        step.reply(token, SyncGroupResponse(error_code=RebalanceInProgressError.code))
        return step
    step.disarm(timer(SYNC, group, member.member_id))
    _keep_alive(step, group, member, now_ms)
    assignment = embedded.assignment_bytes(member.assigned, around.topics, embedded.version_of(first.metadata))
    told = SyncGroupResponse(
        protocol_type=request.protocol_type, protocol_name=request.protocol_name, assignment=assignment
    )
    step.reply(token, told)
    return step


def on_heartbeat(token: object, group: ConsumerGroup, request: HeartbeatRequest, now_ms: int) -> Step:
    member = _known(group, request.member_id, request.group_instance_id, request.generation_id)
    step = Step()
    _keep_alive(step, group, member, now_ms)
    code = 0
    if group.is_ahead_of(member) or group.is_to_come(member):
        _await(step, group, member, now_ms)
        code = RebalanceInProgressError.code
    step.reply(token, HeartbeatResponse(error_code=code))
    return step


def _known(group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int) -> Member:
    """Members of the consumer protocol cannot be spoken for here."""
    member = _found(group, member_id, instance_id)
    if member.classic is None:
        raise UnknownMemberIdError()
    if generation_id != member.epoch:
        raise IllegalGenerationError()
    return member


def _found(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    """UnknownMemberIdError, FencedInstanceIdError."""
    if instance_id is None:
        return group.member(member_id)
    return heartbeat.checked_instance(group.static_member(instance_id), instance_id, member_id)


def _keep_alive(step: Step, group: ConsumerGroup, member: Member, now_ms: int) -> None:
    assert member.classic is not None, member.member_id
    step.arm(timer(SESSION, group, member.member_id), now_ms + member.classic.session_timeout_ms)


def _await(step: Step, group: ConsumerGroup, member: Member, now_ms: int) -> None:
    """From the first time that it is told to come again, not from the last."""
    if member.member_id not in group.awaited:
        group.awaited.add(member.member_id)
        step.arm(timer(JOIN, group, member.member_id), now_ms + member.rebalance_timeout_ms)


# ---- LeaveGroup ----


def on_leave(
    token: object, group: ConsumerGroup, request: LeaveGroupRequest, now_ms: int, around: Surroundings
) -> Step:
    """In the form of version 3 and later. An admin may name a static member by its instance alone, and put out members
    of either protocol."""
    response = LeaveGroupResponse()
    left: dict[str, Member] = {}
    for one in request.members:
        answer = LeaveGroupResponse.MemberResponse(member_id=one.member_id, group_instance_id=one.group_instance_id)
        try:
            member = _leaving(group, one)
            left[member.member_id] = member
        except KafkaError as error:
            answer.error_code = error.code
        response.members.append(answer)
    step = fence(group, list(left.values()), around, now_ms) if left else Step()
    step.reply(token, response)
    return step


def _leaving(group: ConsumerGroup, one: LeaveGroupRequest.MemberIdentity) -> Member:
    member_id = one.member_id
    if one.group_instance_id is not None and not member_id:
        member_id = group.instances.get(one.group_instance_id, "")
    return _found(group, member_id, one.group_instance_id)
