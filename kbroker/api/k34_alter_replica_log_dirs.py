"""AlterReplicaLogDirs (34), versions 1-2: replicas go into another data directory of this broker, in the background.

A partition that is in the named directory already stays, and a move elsewhere is called off. One that this broker does
not hold is answered with an error, and put there if it comes (KIP-113). v2: flexible.
"""

from __future__ import annotations

from collections.abc import Mapping

from kbroker._core.errors import Err
from kbroker.api.context import Context
from kbroker.api.registry import api
from kbroker.protocol.messages import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse

Key = tuple[str, int]
Answer = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult


def _asked(request: AlterReplicaLogDirsRequest) -> dict[Key, str]:
    """Of a partition that is named twice the last word counts, as in Kafka."""
    return {(topic.name, index): one.path for one in request.dirs for topic in one.topics for index in topic.partitions}


def _told(answers: Mapping[Key, int]) -> AlterReplicaLogDirsResponse:
    topics: dict[str, list[Answer]] = {}
    for (topic, index), error in answers.items():
        topics.setdefault(topic, []).append(Answer(partition_index=index, error_code=error))
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
            for name, partitions in topics.items()
        ]
    )


def _failed(request: AlterReplicaLogDirsRequest, code: int, version: int) -> AlterReplicaLogDirsResponse:
    return _told(dict.fromkeys(_asked(request), code))


@api(34, versions="1-2", failed=_failed)
async def alter_replica_log_dirs(request: AlterReplicaLogDirsRequest, ctx: Context) -> AlterReplicaLogDirsResponse:
    answers = await ctx.rooms.replicas.moves.alter(_asked(request))
    topics = ctx.rooms.image.topics
    for (topic, index), error in answers.items():
        if error == Err.REPLICA_NOT_AVAILABLE and (topic not in topics or index not in topics[topic].partitions):
            answers[(topic, index)] = Err.UNKNOWN_TOPIC_OR_PARTITION
    return _told(answers)
