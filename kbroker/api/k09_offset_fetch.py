"""OffsetFetch (9), versions 1-10. v7+: require_stable. v8+: several groups. v9+: KIP-848 members. v10: topic ids."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kbroker.api.context import Context
from kbroker.api.groups import caller
from kbroker.api.registry import api
from kbroker.coordinator.group.facts import Caller
from kbroker.coordinator.later import Later, gather
from kbroker.errors import KafkaError, UnknownServerError
from kbroker.protocol.messages import OffsetFetchRequest, OffsetFetchResponse

if TYPE_CHECKING:
    from kbroker.coordinator.group.shard import GroupShard
    from kbroker.coordinator.step import Step

GROUPS_FROM = 8
TOP_LEVEL_ERROR_FROM = 2

Group = OffsetFetchResponse.Group


def _failed(request: OffsetFetchRequest, code: int, version: int) -> OffsetFetchResponse:
    groups = [Group(group_id=one.group_id, error_code=code) for one in _wanted(request, version)]
    return _answer(request, version, groups)


def _wanted(request: OffsetFetchRequest, version: int) -> list[OffsetFetchRequest.Group]:
    """The request in the form of version 8 and later."""
    if version >= GROUPS_FROM:
        return request.groups
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequest.Topics(name=one.name, partition_indexes=one.partition_indexes) for one in request.topics
        ]
    return [OffsetFetchRequest.Group(group_id=request.group_id, topics=topics)]


@api(9, versions="1-10", failed=_failed)
def offset_fetch(request: OffsetFetchRequest, ctx: Context) -> Later:
    who = caller(ctx)
    wanted = _wanted(request, ctx.api_version)
    parts = [
        ctx.rooms.groups.submit(one.group_id, partial(_fetch, wanted=one, who=who, stable=request.require_stable))
        for one in wanted
    ]

    def combine(answers: list[Any]) -> OffsetFetchResponse:
        groups = [_group(one.group_id, answer) for one, answer in zip(wanted, answers, strict=True)]
        return _answer(request, ctx.api_version, groups)

    return gather(parts, combine)


def _fetch(
    shard: GroupShard, token: object, now_ms: int, *, wanted: OffsetFetchRequest.Group, who: Caller, stable: bool
) -> Step:
    return shard.on_offset_fetch(token, wanted, who, require_stable=stable)


def _group(group_id: str, answer: Any) -> Group:
    if isinstance(answer, Exception):
        code = answer.code if isinstance(answer, KafkaError) else UnknownServerError.code
        return Group(group_id=group_id, error_code=code)
    assert isinstance(answer, Group)
    return answer


def _answer(request: OffsetFetchRequest, version: int, groups: list[Group]) -> OffsetFetchResponse:
    if version >= GROUPS_FROM:
        return OffsetFetchResponse(groups=groups)
    (group,) = groups
    topics = [
        OffsetFetchResponse.Topic(
            name=topic.name,
            partitions=[
                OffsetFetchResponse.Partition(
                    partition_index=one.partition_index,
                    committed_offset=one.committed_offset,
                    committed_leader_epoch=one.committed_leader_epoch,
                    metadata=one.metadata,
                    error_code=one.error_code,
                )
                for one in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    if group.error_code and version < TOP_LEVEL_ERROR_FROM:
        topics = [
            OffsetFetchResponse.Topic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponse.Partition(
                        partition_index=index, committed_offset=-1, metadata="", error_code=group.error_code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or []
        ]
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)
