"""The classic protocol: what JoinGroup, SyncGroup, Heartbeat, LeaveGroup and the timers of a group bring about.

Whoever is told to wait is parked in its Member, and gets its answer in the Step that ends the waiting. Work per request
does not depend on how many members there are; what does is done once a generation.
"""

from __future__ import annotations

from typing import NamedTuple

from kbroker.coordinator.group.classic import (
    COMPLETING,
    EMPTY,
    PREPARING,
    SESSION,
    STABLE,
    ClassicGroup,
    Member,
    Protocols,
    session_timer,
)
from kbroker.coordinator.group.facts import Beating, Caller
from kbroker.coordinator.group.group import Group
from kbroker.coordinator.group.settings import GroupSettings
from kbroker.coordinator.group.sought import Sought
from kbroker.coordinator.step import Step, Timer
from kbroker.errors import (
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    KafkaError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    UnknownServerError,
)
from kbroker.protocol.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

JOIN, SYNC = "classic-join", "classic-sync"
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000  # a client that hung up while its first JoinGroup was parked cannot be noticed
MEMBER_ID_MAX = 32_767  # bytes of a string on the wire
COMPANY_WAIT_MS = 200  # how long a new group waits for those who have an id, or have asked where its coordinator is
QUIET_MS = 10  # if they asked, and all are there: in which nobody else asks or comes
PENDING_ROOM = 768  # bytes that an id given out takes besides its text
RECORD_ROOM, MEMBER_ROOM = 256, 32  # bytes around a batch of one record, and in it around a member's texts
NO_TIMEOUT = -1
MEMBER_ID_REQUIRED_FROM = 4  # KIP-394
SKIP_ASSIGNMENT_FROM = 9  # KIP-814


class Joining(NamedTuple):
    """A JoinGroup and who sent it. `unique` makes the id of a member that has none."""

    token: object
    request: JoinGroupRequest
    protocols: Protocols
    caller: Caller
    unique: str

    @classmethod
    def of(cls, token: object, request: JoinGroupRequest, caller: Caller, unique: str) -> Joining:
        """A protocol that is named twice counts as it was named first."""
        named: dict[str, bytes] = {}
        for one in request.protocols:
            named.setdefault(one.name, one.metadata)
        return cls(token, request, tuple(named.items()), caller, unique)

    def new_id(self) -> str:
        instance_id = self.request.group_instance_id
        member_id = f"{self.caller.client_id if instance_id is None else instance_id}-{self.unique}"
        if _size(member_id) > MEMBER_ID_MAX:
            raise UnknownServerError()  # as Kafka, which finds out when it writes the answer
        return member_id


class Rebalances:
    """Decides for every classic group of a shard; `groups` is the shard's own table."""

    def __init__(self, groups: dict[str, Group], settings: GroupSettings) -> None:
        self._groups = groups
        self._settings = settings
        self._sought = Sought()
        self._given_out: dict[tuple[str, str], None] = {}  # pending ids of all groups, the oldest first
        self._given_out_bytes = 0
        self._arriving: dict[str, ClassicGroup] = {}  # groups that come back from the consumer protocol

    @property
    def max_size(self) -> int:
        return self._settings.max_size

    # ---- JoinGroup ----

    def on_sought(self, group_id: str, who: str, now_ms: int) -> Step:
        """Somebody asks where the coordinator of this group is."""
        self._sought.note(group_id, who, now_ms)
        step = Step()
        group = self._groups.get(group_id)
        if isinstance(group, ClassicGroup) and group.expected:
            group.expected = max(group.expected, self._sought.clients(group_id, now_ms))
            self._await_company(step, group, now_ms)
        return step

    def on_join(self, group: ClassicGroup | None, joining: Joining, now_ms: int) -> Step:
        """`group` is None if there is none of that name."""
        request, api_version = joining.request, joining.caller.api_version
        self.check_join(request)
        step = Step()
        founded = group is None
        if group is None:
            if request.member_id:
                raise UnknownMemberIdError()
            group = ClassicGroup(request.group_id, now_ms)
        if not self._has_place(group, request.member_id):
            self._refuse_place(step, group, joining, now_ms)
            return step
        if not group.supports(request.protocol_type, joining.protocols):
            raise InconsistentGroupProtocolError()
        if request.member_id:
            self._join_known(step, group, joining, now_ms)
            return step
        member_id = joining.new_id()
        if founded:
            step.records.append(group.founding())
            self._groups[group.group_id] = group
        if request.group_instance_id in group.static_ids:
            self._come_back(step, group, member_id, joining, now_ms)
        elif request.group_instance_id is None and api_version >= MEMBER_ID_REQUIRED_FROM:
            self._give_out(step, group, member_id)
            step.arm(session_timer(group.group_id, member_id), now_ms + request.session_timeout_ms)
            step.reply(joining.token, refused(MemberIdRequiredError, member_id))
        else:
            self._add(step, group, member_id, joining, now_ms)
        return step

    def check_join(self, request: JoinGroupRequest) -> None:
        if not request.group_id:
            raise InvalidGroupIdError()
        settings = self._settings
        if not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
            raise InvalidSessionTimeoutError()

    def _has_place(self, group: ClassicGroup, member_id: str) -> bool:
        """Before a generation begins those count who have come: a group over its size loses whoever comes last."""
        if group.state == EMPTY:
            return True
        member = group.members.get(member_id)
        if group.state == PREPARING:
            waits = member is not None and member.join_token is not None
            return waits or group.awaiting_join < self._settings.max_size
        return member is not None or len(group.members) < self._settings.max_size

    def _refuse_place(self, step: Step, group: ClassicGroup, joining: Joining, now_ms: int) -> None:
        member_id = joining.request.member_id
        self._forget(group, member_id)
        group.remove(member_id)
        step.disarm(session_timer(group.group_id, member_id))
        step.reply(joining.token, refused(GroupMaxSizeReachedError))
        self._maybe_complete(step, group, now_ms)

    def _join_known(self, step: Step, group: ClassicGroup, joining: Joining, now_ms: int) -> None:
        member_id, instance_id = joining.request.member_id, joining.request.group_instance_id
        if member_id in group.pending:
            if instance_id is not None:
                raise UnknownServerError()  # the id was given out to a dynamic member
            self._forget(group, member_id)
            self._add(step, group, member_id, joining, now_ms)
            return
        group.check_member(member_id, instance_id)
        member = group.members[member_id]
        changed = member.protocols != joining.protocols
        if group.state == PREPARING or changed or (group.state == STABLE and member_id == group.leader_id):
            # The group leader asks for a rebalance by joining: it alone sees that a topic has changed.
            self._update(step, group, member, joining)
            self._rebalance(step, group, now_ms)
        else:  # its answer was lost
            with_members = group.state == COMPLETING and member_id == group.leader_id
            step.reply(joining.token, _joined(group, member, with_members=with_members))

    def _add(self, step: Step, group: ClassicGroup, member_id: str, joining: Joining, now_ms: int) -> None:
        request = joining.request
        member = Member(
            group.group_id,
            member_id,
            instance_id=request.group_instance_id,
            client_id=joining.caller.client_id,
            client_host=joining.caller.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout(request),
            protocols=joining.protocols,
        )
        member.is_new = True
        if group.initial_left_ms is not None:
            group.joined_meanwhile = True
        group.add(member, request.protocol_type)
        group.park_join(member, joining.token)
        step.arm(member.session_timer, now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance(step, group, now_ms)

    def _update(self, step: Step, group: ClassicGroup, member: Member, joining: Joining) -> None:
        group.speak(member, joining.protocols)
        member.session_timeout_ms = joining.request.session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout(joining.request)
        earlier = refused(UnknownMemberIdError, member.member_id)
        self._answer_join(step, group, member, earlier)  # it asked twice, and the first has nobody to hear it
        group.park_join(member, joining.token)

    def _come_back(self, step: Step, group: ClassicGroup, member_id: str, joining: Joining, now_ms: int) -> None:
        """A static member without its id: a restarted process. Whoever still uses the old id is fenced."""
        assert joining.request.group_instance_id is not None
        member = group.members[group.static_ids[joining.request.group_instance_id]]
        leader_before = group.leader_id
        self._answer_join(step, group, member, refused(FencedInstanceIdError, member.member_id))
        self._answer_sync(step, member, SyncGroupResponse(error_code=FencedInstanceIdError.code))
        step.disarm(member.session_timer)
        group.replace(member, member_id)
        self._update(step, group, member, joining)
        step.arm(member.session_timer, now_ms + member.session_timeout_ms)
        if group.state == STABLE and group.choose_protocol() == group.protocol_name:
            step.records.append(group.generation())
            may_skip = joining.caller.api_version >= SKIP_ASSIGNMENT_FROM
            skips = may_skip and member_id == group.leader_id
            answer = _joined(group, member, with_members=skips)
            answer.skip_assignment = skips
            if not may_skip:  # it must not take itself for the leader, and assign
                answer.leader = leader_before or ""
            self._answer_join(step, group, member, answer)
        elif group.state == PREPARING:
            self._maybe_complete(step, group, now_ms)
        else:
            self._prepare(step, group, now_ms)

    # ---- rounds ----

    def _rebalance(self, step: Step, group: ClassicGroup, now_ms: int) -> None:
        if group.state == PREPARING:
            self._maybe_complete(step, group, now_ms)
        else:
            self._prepare(step, group, now_ms)

    def _prepare(self, step: Step, group: ClassicGroup, now_ms: int) -> None:
        initial = group.state == EMPTY
        if group.state == COMPLETING:
            self._refuse_sync(step, group, RebalanceInProgressError.code, now_ms)
        group.unsynced = set()
        step.disarm(Timer(SYNC, group.group_id))
        group.move(PREPARING, now_ms)
        if initial:  # members of a new group come one after the other
            delay_ms = self._settings.initial_rebalance_delay_ms
            group.initial_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            step.arm(Timer(JOIN, group.group_id), now_ms + delay_ms)
        elif group.all_joined:
            self._complete(step, group, now_ms)
        else:
            step.arm(Timer(JOIN, group.group_id), now_ms + group.rebalance_timeout_ms)

    def _maybe_complete(self, step: Step, group: ClassicGroup, now_ms: int) -> None:
        if group.state == PREPARING and group.initial_left_ms is None and group.all_joined:
            if group.expected:
                self._await_company(step, group, now_ms)
            else:
                self._complete(step, group, now_ms)

    def _complete(self, step: Step, group: ClassicGroup, now_ms: int) -> None:
        """Whoever has joined is in the next generation, and static members even if they have not."""
        step.disarm(Timer(JOIN, group.group_id))
        self._sought.forget(group.group_id)
        for late in [one for one in group.members.values() if one.join_token is None and one.instance_id is None]:
            group.remove(late.member_id)
            step.disarm(late.session_timer)
        if not group.members:
            step.records.append(group.ending(now_ms))
        elif group.elect():
            group.next_generation(now_ms)
            for member in group.members.values():
                with_members = member.member_id == group.leader_id
                self._answer_join(step, group, member, _joined(group, member, with_members=with_members))
                member.is_new = False
                step.arm(member.session_timer, now_ms + member.session_timeout_ms)
            step.arm(Timer(SYNC, group.group_id), now_ms + group.rebalance_timeout_ms)
        else:  # static members only, and none has come: their sessions will end it
            step.arm(Timer(JOIN, group.group_id), now_ms + group.rebalance_timeout_ms)

    def _without(self, step: Step, group: ClassicGroup, now_ms: int) -> None:
        """Members are gone."""
        if group.state in (STABLE, COMPLETING):
            self._prepare(step, group, now_ms)
        elif group.state == PREPARING and group.all_joined:
            self._complete(step, group, now_ms)

    def _expel(self, step: Step, group: ClassicGroup, member: Member) -> None:
        self._answer_join(step, group, member, refused(UnknownMemberIdError))
        self._answer_sync(step, member, SyncGroupResponse(error_code=UnknownMemberIdError.code))
        group.remove(member.member_id)

    # ---- SyncGroup ----

    def on_sync(self, token: object, group: ClassicGroup | None, request: SyncGroupRequest, now_ms: int) -> Step:
        if not request.group_id:
            raise InvalidGroupIdError()
        if group is None or group.state == EMPTY:
            raise UnknownMemberIdError()
        group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise IllegalGenerationError()
        if _differ(request.protocol_type, group.protocol_type) or _differ(request.protocol_name, group.protocol_name):
            raise InconsistentGroupProtocolError()
        if group.state == PREPARING:
            raise RebalanceInProgressError()
        step = Step()
        member = group.members[request.member_id]
        group.unsynced.discard(member.member_id)
        if not group.unsynced:
            step.disarm(Timer(SYNC, group.group_id))
        if group.state == STABLE:
            step.reply(token, _synced(group, member.assignment))
            return step
        self._answer_sync(step, member, SyncGroupResponse(error_code=UnknownMemberIdError.code))  # it asked twice
        member.sync_token = token
        if member.member_id == group.leader_id:
            self._assign(step, group, {one.member_id: one.assignment for one in request.assignments}, now_ms)
        return step

    def _assign(self, step: Step, group: ClassicGroup, assignments: dict[str, bytes], now_ms: int) -> None:
        if self._stored_bytes(group, assignments) > self._settings.max_record_bytes:
            self._refuse_sync(step, group, UnknownServerError.code, now_ms)
            self._prepare(step, group, now_ms)
            return
        step.records.append(group.generation(assignments))
        for member in group.members.values():
            if member.sync_token is not None:
                self._answer_sync(step, member, _synced(group, assignments.get(member.member_id, b"")))
                step.arm(member.session_timer, now_ms + member.session_timeout_ms)

    def _stored_bytes(self, group: ClassicGroup, assignments: dict[str, bytes]) -> int:
        """No less than the generation's record takes: one that does not fit a batch must not be decided."""
        texts = (group.group_id, group.protocol_type, group.protocol_name, group.leader_id)
        return (
            RECORD_ROOM
            + sum(map(_size, texts))
            + sum(
                MEMBER_ROOM
                + _size(one.member_id)
                + _size(one.instance_id)
                + _size(one.client_id)
                + _size(one.client_host)
                + len(one.metadata(group.protocol_name))
                + len(assignments.get(one.member_id, b""))
                for one in group.members.values()
            )
        )

    def _refuse_sync(self, step: Step, group: ClassicGroup, code: int, now_ms: int) -> None:
        for member in group.members.values():
            member.assignment = b""
            if member.sync_token is not None:
                self._answer_sync(step, member, SyncGroupResponse(error_code=code))
                step.arm(member.session_timer, now_ms + member.session_timeout_ms)

    # ---- Heartbeat, LeaveGroup ----

    def on_heartbeat(self, token: object, group: ClassicGroup | None, request: HeartbeatRequest, now_ms: int) -> Step:
        code, session = self.beat(group, request, now_ms)
        step = Step(timers=[session])
        step.reply(token, HeartbeatResponse(error_code=code))
        return step

    def beat(self, group: ClassicGroup | None, request: Beating, now_ms: int) -> tuple[int, tuple[Timer, int]]:
        """The error code that answers it, and until when the member's session lasts now."""
        if not request.group_id:
            raise InvalidGroupIdError()
        if group is None:
            raise UnknownMemberIdError()
        group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise IllegalGenerationError()
        code = RebalanceInProgressError.code if group.state == PREPARING else 0
        return code, self.session(group, request.member_id, now_ms)

    def session(self, group: ClassicGroup, member_id: str, now_ms: int) -> tuple[Timer, int]:
        """The member was heard: until when its session lasts."""
        member = group.members[member_id]
        return member.session_timer, now_ms + member.session_timeout_ms

    def on_leave(self, token: object, group: ClassicGroup | None, request: LeaveGroupRequest, now_ms: int) -> Step:
        """In the form of version 3 and later."""
        if not request.group_id:
            raise InvalidGroupIdError()
        step = Step()
        response = LeaveGroupResponse()
        left = False
        for one in request.members:
            answer = LeaveGroupResponse.MemberResponse(member_id=one.member_id, group_instance_id=one.group_instance_id)
            try:
                if group is None:
                    raise UnknownMemberIdError()
                self._leave(step, group, one)
                left = True
            except KafkaError as error:
                answer.error_code = error.code
            response.members.append(answer)
        if left and group is not None:
            if group.state == PREPARING:
                self._maybe_complete(step, group, now_ms)
            else:
                self._without(step, group, now_ms)
        step.reply(token, response)
        return step

    def _leave(self, step: Step, group: ClassicGroup, one: LeaveGroupRequest.MemberIdentity) -> None:
        member_id = one.member_id
        if not member_id:  # an admin removes a static member
            found = None if one.group_instance_id is None else group.static_ids.get(one.group_instance_id)
            if found is None:
                raise UnknownMemberIdError()
            member_id = found
        if member_id in group.pending:
            self._forget(group, member_id)
            step.disarm(session_timer(group.group_id, member_id))
            return
        group.check_member(member_id, one.group_instance_id)
        member = group.members[member_id]
        step.disarm(member.session_timer)
        self._expel(step, group, member)

    # ---- timers ----

    def on_timer(self, timer: Timer, group: ClassicGroup, now_ms: int) -> Step:
        step = Step()
        if timer.kind == SESSION:
            self._session_ended(step, group, timer.member, now_ms)
        elif timer.kind == JOIN and group.state == PREPARING:
            self._join_ended(step, group, now_ms)
        elif timer.kind == SYNC and group.state in (COMPLETING, STABLE) and group.unsynced:
            for member_id in sorted(group.unsynced):
                member = group.members[member_id]
                step.disarm(member.session_timer)
                self._expel(step, group, member)
            self._prepare(step, group, now_ms)
        return step

    def _session_ended(self, step: Step, group: ClassicGroup, member_id: str, now_ms: int) -> None:
        if member_id in group.pending:
            self._forget(group, member_id)
            if group.state == PREPARING and group.all_joined:
                self._complete(step, group, now_ms)
            return
        member = group.members.get(member_id)
        if member is None:
            return
        waits = member.join_token is not None or member.sync_token is not None
        if member.is_new or not waits:  # whoever waits cannot send heartbeats: its session begins with the answer
            self._expel(step, group, member)
            self._without(step, group, now_ms)

    def _join_ended(self, step: Step, group: ClassicGroup, now_ms: int) -> None:
        if group.initial_left_ms and group.joined_meanwhile:
            delay_ms = min(self._settings.initial_rebalance_delay_ms, group.initial_left_ms)
            group.initial_left_ms -= delay_ms
            group.joined_meanwhile = False
            step.arm(Timer(JOIN, group.group_id), now_ms + delay_ms)
        elif group.initial_left_ms is not None and self._is_in_company(group, now_ms):
            # Whoever comes after the first generation stops everyone again, which those in it hear with their next
            # heartbeat only.
            group.initial_left_ms = None
            self._await_company(step, group, now_ms)
        elif group.expected and not group.all_joined and now_ms < group.expects_until_ms:
            self._await_company(step, group, now_ms)
        else:
            group.expected = 0
            self._complete(step, group, now_ms)

    def _is_in_company(self, group: ClassicGroup, now_ms: int) -> bool:
        """Whether others are about to join a new group: they have their ids, or have asked for its coordinator."""
        group.expects_until_ms = now_ms + COMPANY_WAIT_MS
        clients = self._sought.clients(group.group_id, now_ms)
        if clients > 1:
            group.expected = max(clients, len(group.members) + len(group.pending))
        return clients > 1 or bool(group.pending)

    def _await_company(self, step: Step, group: ClassicGroup, now_ms: int) -> None:
        until_ms = min(now_ms + QUIET_MS, group.expects_until_ms) if group.all_joined else group.expects_until_ms
        step.arm(Timer(JOIN, group.group_id), until_ms)

    def on_loaded(self, step: Step, group: ClassicGroup, now_ms: int, *, rebalance: bool) -> None:
        """Nobody knows how long its members have not been heard: each gets a whole session."""
        for member in group.members.values():
            step.arm(member.session_timer, now_ms + member.session_timeout_ms)
        if rebalance or len(group.members) > self._settings.max_size:
            self._prepare(step, group, now_ms)

    # ---- from one protocol to the other ----

    def take_over(self, step: Step, group: ClassicGroup, now_ms: int, *, rebalance: bool) -> None:
        """The group was a consumer group; it is there when its record is."""
        self._arriving[group.group_id] = group
        if rebalance:
            self._prepare(step, group, now_ms)

    def arrived(self, group_id: str) -> ClassicGroup:
        """The group that a record tells of while there is no classic one of its name."""
        return self._arriving.pop(group_id, None) or ClassicGroup(group_id)

    def give_away(self, step: Step, group: ClassicGroup) -> None:
        """The group becomes a consumer group: whoever waits is told to come again, there."""
        self.forget_group(step, group)
        step.disarm(Timer(JOIN, group.group_id))
        step.disarm(Timer(SYNC, group.group_id))
        for member in group.members.values():
            step.disarm(member.session_timer)
            if member.join_token is not None:
                step.reply(member.join_token, refused(RebalanceInProgressError, member.member_id))
            if member.sync_token is not None:
                step.reply(member.sync_token, SyncGroupResponse(error_code=RebalanceInProgressError.code))

    # ---- ids given out ----

    def _give_out(self, step: Step, group: ClassicGroup, member_id: str) -> None:
        group.pending[member_id] = None
        self._given_out[group.group_id, member_id] = None
        self._given_out_bytes += PENDING_ROOM + len(member_id)
        while self._given_out_bytes > self._settings.pending_bytes_max and len(self._given_out) > 1:
            group_id, oldest = next(iter(self._given_out))
            other = self._groups.get(group_id)
            assert isinstance(other, ClassicGroup), group_id
            self._forget(other, oldest)
            step.disarm(session_timer(group_id, oldest))

    def _forget(self, group: ClassicGroup, member_id: str) -> None:
        if member_id in group.pending:
            del group.pending[member_id]
            del self._given_out[group.group_id, member_id]
            self._given_out_bytes -= PENDING_ROOM + len(member_id)

    def forget_group(self, step: Step, group: ClassicGroup) -> None:
        """The group is deleted: whoever was about to join must ask for a new id."""
        for member_id in list(group.pending):
            self._forget(group, member_id)
            step.disarm(session_timer(group.group_id, member_id))

    # ---- answers ----

    def _answer_join(self, step: Step, group: ClassicGroup, member: Member, answer: JoinGroupResponse) -> None:
        token = group.take_join(member)
        if token is not None:
            step.reply(token, answer)

    def _answer_sync(self, step: Step, member: Member, answer: SyncGroupResponse) -> None:
        token, member.sync_token = member.sync_token, None
        if token is not None:
            step.reply(token, answer)


def rebalance_timeout(request: JoinGroupRequest) -> int:
    return request.session_timeout_ms if request.rebalance_timeout_ms == NO_TIMEOUT else request.rebalance_timeout_ms


def _size(text: str | None) -> int:
    return 0 if text is None else len(text) if text.isascii() else len(text.encode())


def _differ(told: str | None, known: str | None) -> bool:
    return told is not None and known is not None and told != known


def refused(error: type[KafkaError], member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error.code, member_id=member_id, protocol_name=None)


def _joined(group: ClassicGroup, member: Member, *, with_members: bool) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member.member_id,
        members=[
            JoinGroupResponse.Member(
                member_id=one.member_id,
                group_instance_id=one.instance_id,
                metadata=one.metadata(group.protocol_name),
            )
            for one in group.members.values()
        ]
        if with_members
        else [],
    )


def _synced(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=assignment
    )
