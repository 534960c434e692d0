"""ConsumerGroupDescribe (69), versions 0-1 (KIP-848). v1: which protocol a member speaks (KIP-1099)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kbroker.api.context import GROUP_OPERATIONS, Context
from kbroker.api.registry import api
from kbroker.coordinator.later import Later, gather
from kbroker.errors import InvalidGroupIdError, KafkaError, UnknownServerError
from kbroker.protocol.messages import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse

if TYPE_CHECKING:
    from kbroker.coordinator.group.shard import GroupShard
    from kbroker.coordinator.step import Step

Described = ConsumerGroupDescribeResponse.DescribedGroup


def _refused(group_id: str, code: int, message: str | None = None) -> Described:
    return Described(group_id=group_id, error_code=code, error_message=message)


def _failed(request: ConsumerGroupDescribeRequest, code: int, version: int) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(groups=[_refused(one, code) for one in request.group_ids])


@api(69, versions="0-1", failed=_failed)
def consumer_group_describe(request: ConsumerGroupDescribeRequest, ctx: Context) -> Later:
    parts = [_asked(one, ctx) for one in request.group_ids]

    def combine(answers: list[Any]) -> ConsumerGroupDescribeResponse:
        groups = [_group(one, answer) for one, answer in zip(request.group_ids, answers, strict=True)]
        if request.include_authorized_operations:
            for one in groups:
                if not one.error_code:
                    one.authorized_operations = GROUP_OPERATIONS
        return ConsumerGroupDescribeResponse(groups=groups)

    return gather(parts, combine)


def _asked(group_id: str, ctx: Context) -> Later:
    if group_id:
        return ctx.rooms.groups.submit(group_id, partial(_describe, group_id=group_id))
    refused = Later()
    refused.settle(InvalidGroupIdError())
    return refused


def _describe(shard: GroupShard, token: object, now_ms: int, *, group_id: str) -> Step:
    return shard.consumers.on_describe(token, group_id)


def _group(group_id: str, answer: Any) -> Described:
    if isinstance(answer, Exception):
        code = answer.code if isinstance(answer, KafkaError) else UnknownServerError.code
        return _refused(group_id, code, getattr(answer, "message", None))
    assert isinstance(answer, Described)
    return answer
