"""DescribeGroups (15), versions 0-6. v6: a group that does not exist is an error, no longer Dead."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kbroker.api.context import GROUP_OPERATIONS, Context
from kbroker.api.groups import caller
from kbroker.api.registry import api
from kbroker.coordinator.group.facts import Caller
from kbroker.coordinator.later import Later, gather
from kbroker.errors import KafkaError, UnknownServerError
from kbroker.protocol.messages import DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from kbroker.coordinator.group.shard import GroupShard
    from kbroker.coordinator.step import Step

Group = DescribeGroupsResponse.DescribedGroup


def _failed(request: DescribeGroupsRequest, code: int, version: int) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[Group(group_id=one, error_code=code) for one in request.groups])


@api(15, versions="0-6", failed=_failed)
def describe_groups(request: DescribeGroupsRequest, ctx: Context) -> Later:
    who = caller(ctx)
    parts = [ctx.rooms.groups.submit(one, partial(_describe, group_id=one, who=who)) for one in request.groups]

    def combine(answers: list[Any]) -> DescribeGroupsResponse:
        groups = [_group(one, answer) for one, answer in zip(request.groups, answers, strict=True)]
        if request.include_authorized_operations:
            for group in groups:
                if not group.error_code:
                    group.authorized_operations = GROUP_OPERATIONS
        return DescribeGroupsResponse(groups=groups)

    return gather(parts, combine)


def _describe(shard: GroupShard, token: object, now_ms: int, *, group_id: str, who: Caller) -> Step:
    return shard.on_describe_group(token, group_id, who)


def _group(group_id: str, answer: Any) -> Group:
    if isinstance(answer, Exception):
        code = answer.code if isinstance(answer, KafkaError) else UnknownServerError.code
        return Group(group_id=group_id, error_code=code)
    assert isinstance(answer, Group)
    return answer
