"""DescribeProducers (61), version 0: what a partition remembers of its producers, and their transactions (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker._core.errors import Err
from kbroker.api.context import Context
from kbroker.api.registry import api
from kbroker.cluster.topics import topic_name_error
from kbroker.errors import InvalidTopicError, UnknownTopicOrPartitionError
from kbroker.protocol.messages import DescribeProducersRequest, DescribeProducersResponse

if TYPE_CHECKING:
    from kbroker._core.log.partition_log import PartitionLog

Answer = DescribeProducersResponse.PartitionResponse
State = DescribeProducersResponse.ProducerState


def _failed(request: DescribeProducersRequest, code: int, version: int) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponse.TopicResponse(
                name=topic.name,
                partitions=[Answer(partition_index=index, error_code=code) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


@api(61, versions="0", failed=_failed)
def describe_producers(request: DescribeProducersRequest, ctx: Context) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponse.TopicResponse(
                name=topic.name, partitions=_answers(ctx, topic.name, topic.partition_indexes)
            )
            for topic in request.topics
        ]
    )


def _answers(ctx: Context, topic: str, indexes: list[int]) -> list[Answer]:
    wrong = topic_name_error(topic)
    if wrong is not None or topic not in ctx.rooms.image.topics:
        unknown = UnknownTopicOrPartitionError("This server does not host this topic-partition.")
        refused = unknown if wrong is None else InvalidTopicError(wrong)
        return [
            Answer(partition_index=index, error_code=refused.code, error_message=refused.message) for index in indexes
        ]
    return [_answer(ctx, topic, index) for index in indexes]


def _answer(ctx: Context, topic: str, index: int) -> Answer:
    partition = ctx.rooms.replicas.find(topic, index)
    if partition is None:
        return Answer(partition_index=index, error_code=Err.UNKNOWN_TOPIC_OR_PARTITION)
    if partition.log is None:
        offline = ctx.rooms.replicas.is_local(topic, index)
        return Answer(
            partition_index=index, error_code=Err.KAFKA_STORAGE_ERROR if offline else Err.NOT_LEADER_OR_FOLLOWER
        )
    return Answer(partition_index=index, active_producers=_states(partition.log))


def _states(log: PartitionLog) -> list[State]:
    return [
        State(
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            last_sequence=one.last_sequence,
            last_timestamp=one.last_timestamp,
            coordinator_epoch=one.coordinator_epoch,
            current_txn_start_offset=one.txn_first_offset,
        )
        for one in log.producers()
    ]
