"""JoinGroup (11), versions 0-9. v4+: a first join gets MEMBER_ID_REQUIRED (KIP-394). v5+: static members (KIP-345).

v8+: the reason why, which is logged (KIP-800). v9: a static leader that comes back may be told to skip the assignment
(KIP-814).
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from kbroker.api.context import Context
from kbroker.api.groups import caller
from kbroker.api.registry import api
from kbroker.coordinator.later import Later, gather
from kbroker.protocol.messages import JoinGroupRequest, JoinGroupResponse

NO_PROTOCOL_FROM = 7


def _failed(request: JoinGroupRequest, code: int, version: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code, member_id=request.member_id, protocol_name=None if version >= NO_PROTOCOL_FROM else ""
    )


@api(11, versions="0-9", failed=_failed)
def join_group(request: JoinGroupRequest, ctx: Context) -> Later:
    who = caller(ctx)
    unique = "" if request.member_id else str(uuid4())
    ctx.rooms.groups.note_reason("a member joins", request.group_id, request.member_id, request.reason)
    asked = ctx.rooms.groups.submit(
        request.group_id, lambda shard, token, now_ms: shard.on_join_group(token, request, who, unique, now_ms)
    )
    return asked if ctx.api_version >= NO_PROTOCOL_FROM else gather([asked], _named)


def _named(answers: list[Any]) -> Any:
    """Old versions have no null."""
    (answer,) = answers
    if isinstance(answer, JoinGroupResponse) and answer.protocol_name is None:
        answer.protocol_name = ""
    return answer
