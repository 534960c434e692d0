"""What the tests ask a broker on a failing disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kbroker._core.record.records import Record, build_batch, iterate
from kbroker.protocol.messages import CreateTopicsRequest, FetchRequest, MetadataRequest, ProduceRequest
from kbroker.tests.integration.wire import Connection

STORAGE_ERROR = 56
LEADER_NOT_AVAILABLE = 5
NOT_LEADER = 6


def create(client: Connection, name: str, partitions: int = 1, **config: str) -> None:
    settings = [CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in config.items()]
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, configs=settings
    )
    (result,) = client.ask(CreateTopicsRequest(topics=[topic]), 7).topics
    assert result.error_code == 0, result.error_message


def produce(
    client: Connection, name: str, value: bytes, acks: int = -1, timeout_ms: int = 30_000, *, partition: int = 0
) -> tuple[int, int]:
    batch = build_batch([Record(timestamp=1_700_000_000_000, key=b"k", value=value)])
    part = ProduceRequest.PartitionProduceData(index=partition, records=batch)
    topic = ProduceRequest.TopicProduceData(name=name, partition_data=[part])
    answer = client.ask(ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic]), 9)
    found = answer.responses[0].partition_responses[0]
    return found.error_code, found.base_offset


def fetch(
    client: Connection, name: str, partition: int = 0, offset: int = 0, max_wait_ms: int = 0
) -> tuple[int, bytes]:
    """The error and the batches, as many as one answer has."""
    part = FetchRequest.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    topic = FetchRequest.FetchTopic(topic=name, partitions=[part])
    least = 1 if max_wait_ms else 0
    request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=least, max_bytes=1 << 20, topics=[topic])
    found = client.ask(request, 11).responses[0].partitions[0]
    return found.error_code, bytes(found.records or b"")


def values(client: Connection, name: str, partition: int = 0) -> list[bytes | None]:
    """All there is."""
    read: list[bytes | None] = []
    while True:
        error, batches = fetch(client, name, partition, len(read))
        assert error == 0
        if not batches:
            return read
        read += [record.value for record in iterate(batches)]


def described(client: Connection, name: str, partition: int = 0) -> Any:
    (topic,) = client.ask(MetadataRequest(topics=[MetadataRequest.Topic(name=name)]), 9).topics
    return next(one for one in topic.partitions if one.partition_index == partition)


def partitions_in(directory: Path, topic: str) -> list[int]:
    return sorted(int(one.name.rpartition("-")[2]) for one in directory.glob(f"{topic}-[0-9]*"))
