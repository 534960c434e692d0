"""ListGroups (16), versions 0-5. v4+: states, and a filter on them (KIP-518). v5: types, too (KIP-848)."""

from __future__ import annotations

from typing import Any

from kbroker.api.context import Context
from kbroker.api.registry import api
from kbroker.coordinator.later import Later, gather
from kbroker.protocol.messages import ListGroupsRequest, ListGroupsResponse


def _failed(request: ListGroupsRequest, code: int, version: int) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=code)


@api(16, versions="0-5", failed=_failed)
def list_groups(request: ListGroupsRequest, ctx: Context) -> Later:
    return gather(
        ctx.rooms.groups.submit_to_all(lambda shard, token, now_ms: shard.on_list_groups(token, request)), _combine
    )


def _combine(answers: list[Any]) -> Any:
    """Whoever cannot be told of all groups is told of none, and asks again."""
    failure = next((one for one in answers if isinstance(one, Exception)), None)
    return failure or ListGroupsResponse(groups=[group for one in answers for group in one.groups])
