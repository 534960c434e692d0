"""OffsetDelete (47), version 0: committed offsets of topics that the group does not consume now (KIP-496)."""

from __future__ import annotations

from kbroker.api.context import Context
from kbroker.api.registry import api
from kbroker.coordinator.later import Later
from kbroker.protocol.messages import OffsetDeleteRequest, OffsetDeleteResponse


def _failed(request: OffsetDeleteRequest, code: int, version: int) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=code)


@api(47, versions="0", failed=_failed)
def offset_delete(request: OffsetDeleteRequest, ctx: Context) -> Later:
    return ctx.rooms.groups.submit(
        request.group_id, lambda shard, token, now_ms: shard.on_offset_delete(token, request)
    )
