"""DeleteGroups (42), versions 0-2: a group without members ends, and its offsets with it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kbroker.api.context import Context
from kbroker.api.registry import api
from kbroker.coordinator.later import Later, gather
from kbroker.errors import KafkaError, UnknownServerError
from kbroker.protocol.messages import DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from kbroker.coordinator.group.shard import GroupShard
    from kbroker.coordinator.step import Step

Result = DeleteGroupsResponse.DeletableGroupResult


def _failed(request: DeleteGroupsRequest, code: int, version: int) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[Result(group_id=one, error_code=code) for one in request.groups_names])


@api(42, versions="0-2", failed=_failed)
def delete_groups(request: DeleteGroupsRequest, ctx: Context) -> Later:
    names = list(dict.fromkeys(request.groups_names))
    parts = [ctx.rooms.groups.submit(one, partial(_delete, group_id=one)) for one in names]

    def combine(answers: list[Any]) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(results=[_result(one, answer) for one, answer in zip(names, answers, strict=True)])

    return gather(parts, combine)


def _delete(shard: GroupShard, token: object, now_ms: int, *, group_id: str) -> Step:
    return shard.on_delete_group(token, group_id)


def _result(group_id: str, answer: Any) -> Result:
    if isinstance(answer, Exception):
        code = answer.code if isinstance(answer, KafkaError) else UnknownServerError.code
        return Result(group_id=group_id, error_code=code)
    assert isinstance(answer, Result)
    return answer
