"""LeaveGroup (13), versions 0-5. v3+: several members at once, each with its error (KIP-345).

v5+: their reasons, which are logged (KIP-800).
"""

from __future__ import annotations

from typing import Any

from kbroker.api.context import Context
from kbroker.api.groups import caller
from kbroker.api.registry import api
from kbroker.coordinator.later import Later, gather
from kbroker.protocol.messages import LeaveGroupRequest, LeaveGroupResponse

MEMBERS_FROM = 3


def _failed(request: LeaveGroupRequest, code: int, version: int) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=code)


@api(13, versions="0-5", failed=_failed)
def leave_group(request: LeaveGroupRequest, ctx: Context) -> Later:
    who = caller(ctx)
    for one in request.members:
        ctx.rooms.groups.note_reason("a member leaves", request.group_id, one.member_id, one.reason)
    if ctx.api_version >= MEMBERS_FROM:
        return ctx.rooms.groups.submit(
            request.group_id, lambda shard, token, now_ms: shard.on_leave_group(token, request, who, now_ms)
        )
    several = LeaveGroupRequest(
        group_id=request.group_id, members=[LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]
    )
    asked = ctx.rooms.groups.submit(
        request.group_id, lambda shard, token, now_ms: shard.on_leave_group(token, several, who, now_ms)
    )
    return gather([asked], _alone)


def _alone(answers: list[Any]) -> Any:
    """The error of the only member is that of the whole."""
    (answer,) = answers
    return answer if isinstance(answer, Exception) else LeaveGroupResponse(error_code=answer.members[0].error_code)
