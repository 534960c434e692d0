"""OffsetCommit (8), versions 2-10. v6+: leader epochs. v7+: static members. v9+: KIP-848 members. v10: topic ids."""

from __future__ import annotations

from kbroker.api.context import Context
from kbroker.api.groups import caller
from kbroker.api.registry import api
from kbroker.coordinator.later import Later
from kbroker.protocol.messages import OffsetCommitRequest, OffsetCommitResponse


def _failed(request: OffsetCommitRequest, code: int, version: int) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.Topic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponse.Partition(partition_index=one.partition_index, error_code=code)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@api(8, versions="2-10", failed=_failed)
def offset_commit(request: OffsetCommitRequest, ctx: Context) -> Later:
    who = caller(ctx)
    return ctx.rooms.groups.submit(
        request.group_id, lambda shard, token, now_ms: shard.on_offset_commit(token, request, who, now_ms)
    )
