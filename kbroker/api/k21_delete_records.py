"""DeleteRecords (21), versions 0-2: everything below an offset is gone for every reader; -1 means the high watermark.

The answer's low watermark is where the log starts now; here it is durable before it is told, in Kafka within a minute.
An offset below the start is no mistake. There are no followers to wait for, so the timeout says nothing. v2: flexible.
"""

from __future__ import annotations

from collections.abc import Mapping

from kbroker._core.errors import Err
from kbroker.api.context import Context
from kbroker.api.leadership import find_leader
from kbroker.api.registry import api
from kbroker.cluster.topics import INTERNAL_TOPICS
from kbroker.protocol.messages import DeleteRecordsRequest, DeleteRecordsResponse

HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1

Key = tuple[str, int]
Answer = DeleteRecordsResponse.DeleteRecordsPartitionResult


def _asked(request: DeleteRecordsRequest) -> dict[Key, int]:
    """Of a partition that is named twice the last word counts, as in Kafka."""
    return {(topic.name, one.partition_index): one.offset for topic in request.topics for one in topic.partitions}


def _told(answers: Mapping[Key, tuple[int, int]]) -> DeleteRecordsResponse:
    topics: dict[str, list[Answer]] = {}
    for (topic, index), (error, low_watermark) in answers.items():
        answer = Answer(partition_index=index, low_watermark=low_watermark, error_code=error)
        topics.setdefault(topic, []).append(answer)
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponse.DeleteRecordsTopicResult(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ]
    )


def _failed(request: DeleteRecordsRequest, code: int, version: int) -> DeleteRecordsResponse:
    return _told(dict.fromkeys(_asked(request), (code, NO_LOW_WATERMARK)))


@api(21, versions="0-2", failed=_failed)
async def delete_records(request: DeleteRecordsRequest, ctx: Context) -> DeleteRecordsResponse:
    answers: dict[Key, tuple[int, int]] = {}
    wanted: dict[Key, int] = {}
    for key, offset in _asked(request).items():
        error, start = _start(ctx, key, offset)
        answers[key] = (error, NO_LOW_WATERMARK)  # in the order of the request
        if error == Err.NONE:
            wanted[key] = start
    starts = await ctx.rooms.replicas.raise_starts(wanted) if wanted else {}
    for key in wanted:
        answers[key] = (Err.NONE, starts[key]) if key in starts else (Err.KAFKA_STORAGE_ERROR, NO_LOW_WATERMARK)
    return _told(answers)


def _start(ctx: Context, key: Key, offset: int) -> tuple[int, int]:
    """(error, where the log shall start), without a change yet."""
    topic, index = key
    partition, error = find_leader(ctx, topic, index)
    if error != Err.UNKNOWN_TOPIC_OR_PARTITION and topic in INTERNAL_TOPICS:
        return Err.INVALID_TOPIC_EXCEPTION, offset
    if partition is None or partition.log is None:
        return error, offset
    overrides = ctx.rooms.image.topic_configs(topic)
    policy = ctx.rooms.config.topic_value("cleanup.policy", overrides, ctx.rooms.dynamic)
    assert isinstance(policy, list), policy
    if "compact" in policy and "delete" not in policy:
        return Err.POLICY_VIOLATION, offset
    high_watermark = partition.log.high_watermark
    start = high_watermark if offset == HIGH_WATERMARK else offset
    return (Err.NONE if 0 <= start <= high_watermark else Err.OFFSET_OUT_OF_RANGE), start
