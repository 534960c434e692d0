"""Internal topics, made when they are first needed."""

from __future__ import annotations

from kbroker.api.context import Rooms
from kbroker.cluster.topics import NewTopic
from kbroker.coordinator.placement import OFFSETS_TOPIC, TRANSACTIONS_TOPIC


async def create_offsets_topic(rooms: Rooms) -> None:
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
    }
    await _create(rooms, OFFSETS_TOPIC, "offsets.topic", configs)


async def create_transactions_topic(rooms: Rooms) -> None:
    """What is acknowledged there must be found again by whoever coordinates next: no unclean leader."""
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": str(rooms.config.integer("transaction.state.log.min.isr")),
        "unclean.leader.election.enable": "false",
    }
    await _create(rooms, TRANSACTIONS_TOPIC, "transaction.state.log", configs)


async def _create(rooms: Rooms, topic: str, settings: str, configs: dict[str, str]) -> None:
    """Of several at once one makes it and the others find it. It has as many replicas as asked for and alive, and no
    smaller segments than a topic may have: the broker's own settings for them are not bounded so."""
    config = rooms.config
    alive = sum(not broker.fenced for broker in rooms.image.brokers.values())
    replicas = min(config.integer(f"{settings}.replication.factor"), alive)
    if "min.insync.replicas" in configs:
        configs["min.insync.replicas"] = str(min(int(configs["min.insync.replicas"]), replicas))
    segment_bytes = config.integer(f"{settings}.segment.bytes")
    configs["segment.bytes"] = str(max(segment_bytes, config.least_topic_value("segment.bytes")))
    await rooms.controller.create_topics(
        [
            NewTopic(
                topic,
                num_partitions=config.integer(f"{settings}.num.partitions"),
                replication_factor=replicas,
                configs=configs,
            )
        ]
    )
