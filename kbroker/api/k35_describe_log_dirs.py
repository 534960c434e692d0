"""DescribeLogDirs (35), versions 1-5: the data directories of this broker, how full they are and what lies in them.

v2: flexible. v3: an error for the whole answer. v4: total and usable bytes (KIP-827). v5: cordoned directories
(KIP-1066), of which there are none here. Topics null: everything; a partition that is not here is left out.
"""

from __future__ import annotations

from kbroker._core.errors import Err
from kbroker.api.context import Context
from kbroker.api.registry import api
from kbroker.protocol.messages import DescribeLogDirsRequest, DescribeLogDirsResponse
from kbroker.storage.usage import DirectoryUsage

Result = DescribeLogDirsResponse.DescribeLogDirsResult
TopicResult = DescribeLogDirsResponse.DescribeLogDirsTopic
PartitionResult = DescribeLogDirsResponse.DescribeLogDirsPartition


@api(35, versions="1-5", failed=lambda _request, code, _version: DescribeLogDirsResponse(error_code=code))
async def describe_log_dirs(request: DescribeLogDirsRequest, ctx: Context) -> DescribeLogDirsResponse:
    asked: set[tuple[str, int]] | None = None
    if request.topics is not None:
        asked = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    directories = await ctx.rooms.replicas.usage()
    return DescribeLogDirsResponse(results=[_told(one, asked) for one in directories])


def _told(directory: DirectoryUsage, asked: set[tuple[str, int]] | None) -> Result:
    if directory.failure is not None:
        return Result(error_code=Err.KAFKA_STORAGE_ERROR, log_dir=directory.path)
    topics: dict[str, list[PartitionResult]] = {}
    for one in directory.replicas:
        if asked is None or (one.topic, one.partition) in asked:
            answer = PartitionResult(
                partition_index=one.partition,
                partition_size=one.size_bytes,
                offset_lag=one.lag,
                is_future_key=one.is_future,
            )
            topics.setdefault(one.topic, []).append(answer)
    return Result(
        log_dir=directory.path,
        topics=[TopicResult(name=name, partitions=partitions) for name, partitions in topics.items()],
        total_bytes=directory.total_bytes,
        usable_bytes=directory.usable_bytes,
    )
