"""Heartbeat (12), versions 0-4. v3+: static members."""

from __future__ import annotations

from kbroker.api.context import Context
from kbroker.api.groups import caller
from kbroker.api.registry import api
from kbroker.coordinator.later import Later
from kbroker.errors import CoordinatorLoadInProgressError
from kbroker.protocol.messages import HeartbeatRequest, HeartbeatResponse


def _failed(request: HeartbeatRequest, code: int, version: int) -> HeartbeatResponse:
    """While the group is still being read its members are believed."""
    return HeartbeatResponse(error_code=0 if code == CoordinatorLoadInProgressError.code else code)


@api(12, versions="0-4", failed=_failed)
def heartbeat(request: HeartbeatRequest, ctx: Context) -> Later:
    who = caller(ctx)
    return ctx.rooms.groups.submit(
        request.group_id, lambda shard, token, now_ms: shard.on_heartbeat(token, request, who, now_ms)
    )
