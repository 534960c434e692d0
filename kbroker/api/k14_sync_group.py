"""SyncGroup (14), versions 0-5. v3+: static members. v5+: protocol type and name are checked."""

from __future__ import annotations

from kbroker.api.context import Context
from kbroker.api.groups import caller
from kbroker.api.registry import api
from kbroker.coordinator.later import Later
from kbroker.errors import InconsistentGroupProtocolError
from kbroker.protocol.messages import SyncGroupRequest, SyncGroupResponse

PROTOCOL_FROM = 5


def _failed(request: SyncGroupRequest, code: int, version: int) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)


@api(14, versions="0-5", failed=_failed)
def sync_group(request: SyncGroupRequest, ctx: Context) -> Later:
    if ctx.api_version >= PROTOCOL_FROM and (request.protocol_type is None or request.protocol_name is None):
        raise InconsistentGroupProtocolError()
    who = caller(ctx)
    return ctx.rooms.groups.submit(
        request.group_id, lambda shard, token, now_ms: shard.on_sync_group(token, request, who, now_ms)
    )
