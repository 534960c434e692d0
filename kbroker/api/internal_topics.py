"""Internal topics, made when they are first needed."""

from __future__ import annotations

from kbroker.api.context import Rooms
from kbroker.cluster.topics import NewTopic
from kbroker.coordinator.placement import OFFSETS_TOPIC


async def create_offsets_topic(rooms: Rooms) -> None:
    """Of several at once one makes it and the others find it. It has as many replicas as asked for and alive."""
    config = rooms.config
    alive = sum(not broker.fenced for broker in rooms.image.brokers.values())
    await rooms.controller.create_topics(
        [
            NewTopic(
                OFFSETS_TOPIC,
                num_partitions=config.integer("offsets.topic.num.partitions"),
                replication_factor=min(config.integer("offsets.topic.replication.factor"), alive),
                configs={
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(config.integer("offsets.topic.segment.bytes")),
                },
            )
        ]
    )
