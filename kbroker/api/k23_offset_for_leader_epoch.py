"""OffsetForLeaderEpoch (23), versions 2-4: where an epoch ended in the leader's log, so that a reader can find where
its own history parts from it (KIP-101, KIP-320). v3: the asker's replica id.
"""

from __future__ import annotations

from kbroker.api.context import Context
from kbroker.api.leadership import find_leader
from kbroker.api.registry import api
from kbroker.protocol.messages import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

Answer = OffsetForLeaderEpochResponse.EpochEndOffset


def _failed(request: OffsetForLeaderEpochRequest, code: int, version: int) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[Answer(partition=one.partition, error_code=code) for one in topic.partitions],
            )
            for topic in request.topics
        ]
    )


@api(23, versions="2-4", failed=_failed)
def offset_for_leader_epoch(request: OffsetForLeaderEpochRequest, ctx: Context) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_answer(topic.topic, one, ctx) for one in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _answer(topic: str, one: OffsetForLeaderEpochRequest.OffsetForLeaderPartition, ctx: Context) -> Answer:
    partition, error = find_leader(ctx, topic, one.partition, one.current_leader_epoch)
    if partition is None or partition.log is None:
        return Answer(partition=one.partition, error_code=error)
    epoch, end_offset = partition.log.end_offset_for_epoch(one.leader_epoch)
    return Answer(partition=one.partition, leader_epoch=epoch, end_offset=end_offset)
