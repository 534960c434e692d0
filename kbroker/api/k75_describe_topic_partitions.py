"""DescribeTopicPartitions (75), version 0: topics by name in pages of partitions, with eligible leader replicas
(KIP-966).
"""

from __future__ import annotations

from kbroker._core.errors import Err
from kbroker.api.context import TOPIC_OPERATIONS, Context
from kbroker.api.k03_metadata import leader_as_seen, offline_replicas
from kbroker.api.registry import api
from kbroker.cluster.image import PartitionImage
from kbroker.cluster.topics import INTERNAL_TOPICS, topic_name_error
from kbroker.protocol.messages import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse

Topic = DescribeTopicPartitionsResponse.Topic
Partition = DescribeTopicPartitionsResponse.Partition
Cursor = DescribeTopicPartitionsResponse.Cursor


def _failed(request: DescribeTopicPartitionsRequest, code: int, version: int) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=[Topic(error_code=code, name=one.name) for one in request.topics])


@api(75, versions="0", failed=_failed)
def describe_topic_partitions(request: DescribeTopicPartitionsRequest, ctx: Context) -> DescribeTopicPartitionsResponse:
    image = ctx.rooms.image
    asked = {one.name for one in request.topics} or set(image.topics)
    first_partition = 0
    cursor = request.cursor
    if cursor is not None:
        asked = {name for name in asked if name >= cursor.topic_name}
        if cursor.partition_index < 0 or (request.topics and cursor.topic_name not in asked):
            return _failed(request, Err.INVALID_REQUEST, ctx.api_version)
        first_partition = cursor.partition_index
    limit = max(1, min(request.response_partition_limit, ctx.rooms.config.integer("max.request.partition.size.limit")))
    response = DescribeTopicPartitionsResponse()
    for name in sorted(asked):
        if limit <= 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        start = first_partition if cursor is not None and name == cursor.topic_name else 0
        answer, next_partition = _describe(ctx, name, start, limit)
        response.topics.append(answer)
        limit -= len(answer.partitions)
        if next_partition is not None:
            response.next_cursor = Cursor(topic_name=name, partition_index=next_partition)
            break
    return response


def _describe(ctx: Context, name: str, start: int, limit: int) -> tuple[Topic, int | None]:
    """The topic's partitions from `start`, at most `limit`, and the one to go on with."""
    topic = ctx.rooms.image.topics.get(name)
    if topic is None:
        error = Err.UNKNOWN_TOPIC_OR_PARTITION if topic_name_error(name) is None else Err.INVALID_TOPIC_EXCEPTION
        return Topic(
            error_code=error,
            name=name,
            is_internal=name in INTERNAL_TOPICS,
            topic_authorized_operations=TOPIC_OPERATIONS,
        ), None
    indexes = [index for index in sorted(topic.partitions) if index >= start]
    return Topic(
        name=name,
        topic_id=topic.topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[_partition(ctx, index, topic.partitions[index]) for index in indexes[:limit]],
        topic_authorized_operations=TOPIC_OPERATIONS,
    ), indexes[limit] if len(indexes) > limit else None


def _partition(ctx: Context, index: int, one: PartitionImage) -> Partition:
    error, leader = leader_as_seen(ctx.rooms.image, ctx, one)
    return Partition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=one.leader_epoch,
        replica_nodes=list(one.replicas),
        isr_nodes=list(one.isr),
        eligible_leader_replicas=list(one.elr),
        last_known_elr=list(one.last_known_elr),
        offline_replicas=offline_replicas(ctx.rooms.image, one),
    )
