"""ListOffsets (2), versions 1-11.

v2: isolation level. v4: leader epochs (KIP-320). v7: -3 max timestamp (KIP-734). v8: -4 earliest local (KIP-405).
v9: -5 latest tiered (KIP-1005). v11: -6 earliest pending upload (KIP-1023). A special timestamp below its version is
UNSUPPORTED_VERSION on that partition.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kbroker._core.errors import Err
from kbroker._core.log.partition_log import LogError
from kbroker.api.context import Context
from kbroker.api.leadership import find_leader
from kbroker.api.registry import api
from kbroker.protocol.messages import ListOffsetsRequest, ListOffsetsResponse

if TYPE_CHECKING:
    from kbroker._core.log.partition_log import PartitionLog
    from kbroker._core.partitions import PartitionHandle

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
FROM_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}

CONSUMER, DEBUGGING_CONSUMER = -1, -2
READ_UNCOMMITTED, READ_COMMITTED = 0, 1

Answer = ListOffsetsResponse.ListOffsetsPartitionResponse
NOTHING = (-1, -1, -1)


def _failed(request: ListOffsetsRequest, code: int, version: int) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[Answer(partition_index=one.partition_index, error_code=code) for one in topic.partitions],
            )
            for topic in request.topics
        ]
    )


@api(2, versions="1-11", failed=_failed)
def list_offsets(request: ListOffsetsRequest, ctx: Context) -> ListOffsetsResponse:
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return _failed(request, Err.UNKNOWN_SERVER_ERROR, ctx.api_version)  # as Kafka: the level has no name there
    asked = Counter((topic.name, one.partition_index) for topic in request.topics for one in topic.partitions)
    topics = []
    for topic in request.topics:
        answers = {}
        for one in topic.partitions:
            if asked[topic.name, one.partition_index] > 1:
                answers[one.partition_index] = Answer(
                    partition_index=one.partition_index, error_code=Err.INVALID_REQUEST
                )
            else:
                answers[one.partition_index] = _answer(request, topic.name, one, ctx)
        topics.append(ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=list(answers.values())))
    return ListOffsetsResponse(topics=topics)


def _answer(
    request: ListOffsetsRequest, topic: str, one: ListOffsetsRequest.ListOffsetsPartition, ctx: Context
) -> Answer:
    if one.timestamp < 0 and ctx.api_version < FROM_VERSION.get(one.timestamp, 32767):
        return Answer(partition_index=one.partition_index, error_code=Err.UNSUPPORTED_VERSION)
    partition, error = find_leader(
        ctx, topic, one.partition_index, one.current_leader_epoch, any_replica=request.replica_id == DEBUGGING_CONSUMER
    )
    if partition is None or partition.log is None:
        return Answer(partition_index=one.partition_index, error_code=error)
    log = partition.log
    bound = _bound(request, log)
    try:
        offset, timestamp, epoch = _look_up(log, partition, one.timestamp, bound)
    except LogError as problem:  # its files cannot be read; the other partitions' can
        return Answer(partition_index=one.partition_index, error_code=problem.code)
    answer = Answer(partition_index=one.partition_index, offset=offset, timestamp=timestamp)
    if ctx.api_version >= 4:
        answer.leader_epoch = epoch
    return answer


def _bound(request: ListOffsetsRequest, log: PartitionLog) -> int:
    """The first offset that the asker may not see."""
    if request.replica_id != CONSUMER:
        return log.log_end_offset
    return log.last_stable_offset if request.isolation_level == READ_COMMITTED else log.high_watermark


def _look_up(log: PartitionLog, partition: PartitionHandle, timestamp: int, bound: int) -> tuple[int, int, int]:
    """(offset, timestamp, leader epoch); -1 three times when there is none."""
    if timestamp == LATEST:
        return bound, -1, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return start, -1, _epoch_at(log, start)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING  # no tiered storage here
    found = log.offset_of_max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    return found if found is not None and found.offset < bound else NOTHING


def _epoch_at(log: PartitionLog, offset: int) -> int:
    """The epoch in which the record at `offset` was, or will be, written; -1 when no leader has had the log yet."""
    return max((epoch for epoch, start in log.epochs() if start <= offset), default=-1)
