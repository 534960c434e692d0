"""With flush.messages=1 no acknowledgement goes before the fsync, and none at all when it fails."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from kbroker._core.record.records import Record, build_batch, iterate
from kbroker.protocol.messages import (
    CreateTopicsRequest,
    DeleteRecordsRequest,
    FetchRequest,
    ListOffsetsRequest,
    ProduceRequest,
)
from kbroker.tests.disk.conftest import Disk
from kbroker.tests.integration.wire import Connection

Start = Callable[..., Disk]
STORAGE_ERROR = 56
EIO = 5


def create(client: Connection, name: str, **config: str) -> None:
    settings = [CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in config.items()]
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=settings)
    (result,) = client.ask(CreateTopicsRequest(topics=[topic]), 7).topics
    assert result.error_code == 0, result.error_message


def produce(client: Connection, name: str, value: bytes, acks: int = -1, timeout_ms: int = 30_000) -> tuple[int, int]:
    batch = build_batch([Record(timestamp=1_700_000_000_000, value=value)])
    part = ProduceRequest.PartitionProduceData(index=0, records=batch)
    topic = ProduceRequest.TopicProduceData(name=name, partition_data=[part])
    answer = client.ask(ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic]), 9)
    found = answer.responses[0].partition_responses[0]
    return found.error_code, found.base_offset


def values(client: Connection, name: str) -> list[bytes | None]:
    part = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[FetchRequest.FetchTopic(topic=name, partitions=[part])]
    )
    found = client.ask(request, 11).responses[0].partitions[0]
    assert found.error_code == 0
    return [record.value for record in iterate(found.records or b"")]


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("timeout_ms", [0, 30_000])
def test_an_acknowledgement_follows_the_fsync(disk: Start, acks: int, timeout_ms: int) -> None:
    broker = disk()
    with Connection(broker.port) as client, Connection(broker.port) as other:
        create(client, "t", **{"flush.messages": "1"})
        create(client, "quick")
        broker.orders("fsync /t-0/ wait 400")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(produce, client, "t", b"slow", acks, timeout_ms)
            # The network thread does not wait: others are served, and nobody reads what may still be lost.
            assert produce(other, "quick", b"at once") == (0, 0)
            assert values(other, "t") == []
            assert not waiting.done()
            assert waiting.result() == (0, 0)
        assert values(other, "t") == [b"slow"]


def test_producers_of_one_partition_share_an_fsync(disk: Start) -> None:
    broker = disk()
    with Connection(broker.port) as admin:
        create(admin, "t", **{"flush.messages": "1"})
        broker.orders("fsync .log wait 200")
        clients = [Connection(broker.port) for _ in range(20)]
        with ThreadPoolExecutor(len(clients)) as pool:
            answers = list(pool.map(lambda client: produce(client, "t", b"x"), clients))
        assert sorted(answers) == [(0, offset) for offset in range(20)]
        assert len([line for line in broker.told() if "/t-0/" in line]) < 10


@pytest.mark.parametrize("acks", [1, -1])
def test_what_could_not_be_synced_is_not_acknowledged_and_not_tried_again(disk: Start, acks: int) -> None:
    broker = disk()
    with Connection(broker.port) as client:
        create(client, "t", **{"flush.messages": "1"})
        create(client, "other")
        assert produce(client, "t", b"kept", acks) == (0, 0)
        broker.orders(f"fsync /t-0/ errno {EIO}")
        assert produce(client, "t", b"lost", acks) == (STORAGE_ERROR, -1)
        broker.orders()
        assert produce(client, "t", b"later", acks)[0] == STORAGE_ERROR
        assert produce(client, "other", b"goes on") == (0, 0)


def test_what_could_not_be_written_is_not_acknowledged(disk: Start) -> None:
    broker = disk()
    with Connection(broker.port) as client:
        create(client, "t")
        assert produce(client, "t", b"kept") == (0, 0)
        size = (broker.data / "t-0" / f"{0:020d}.log").stat().st_size
        broker.orders(f"write /t-0/ errno {EIO}")
        assert produce(client, "t", b"lost") == (STORAGE_ERROR, -1)
        broker.orders()
        assert produce(client, "t", b"later") == (STORAGE_ERROR, -1)
        assert (broker.data / "t-0" / f"{0:020d}.log").stat().st_size == size


def start_of(client: Connection, name: str) -> int:
    part = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-2)
    topic = ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=[part])
    offset: int = client.ask(ListOffsetsRequest(topics=[topic]), 7).topics[0].partitions[0].offset
    return offset


def delete_records(client: Connection, name: str, offset: int) -> tuple[int, int]:
    part = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name=name, partitions=[part])
    found = client.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=30_000), 2).topics[0].partitions[0]
    return found.error_code, found.low_watermark


def test_nobody_sees_a_log_start_that_a_kill_would_take_back(disk: Start) -> None:
    broker = disk()
    with Connection(broker.port) as client, Connection(broker.port) as other:
        create(client, "t")
        for offset in range(3):
            assert produce(client, "t", b"x") == (0, offset)
        broker.orders("fsync log-start-offset-checkpoint wait 400")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(delete_records, client, "t", 2)
            while not any("log-start" in line for line in broker.told()):
                assert not waiting.done()
            assert (start_of(other, "t"), values(other, "t")) == (0, [b"x"] * 3)
            assert not waiting.done()
            assert waiting.result() == (0, 2)
        assert start_of(other, "t") == 2


def test_a_deletion_that_cannot_be_written_down_deletes_nothing(disk: Start) -> None:
    broker = disk()
    with Connection(broker.port) as client:
        create(client, "t")
        assert produce(client, "t", b"x") == (0, 0)
        broker.orders(f"fsync log-start-offset-checkpoint errno {EIO}")
        assert delete_records(client, "t", 1) == (STORAGE_ERROR, -1)
        broker.orders()
        assert start_of(client, "t") == 0
        assert delete_records(client, "t", 1) == (0, 1)


def test_flush_ms_is_looked_at_by_the_scheduler(disk: Start) -> None:
    broker = disk(**{"log.flush.scheduler.interval.ms": 20})
    with Connection(broker.port) as client:
        create(client, "t", **{"flush.ms": "50"})
        create(client, "never")
        broker.orders(f"fsync /t-0/ errno {EIO}")
        assert produce(client, "t", b"x") == (0, 0)
        assert produce(client, "never", b"x") == (0, 0)
        deadline = time.monotonic() + 20
        while produce(client, "t", b"x")[0] != STORAGE_ERROR:  # the scheduler's fsync has failed, and is told by this
            assert time.monotonic() < deadline
        assert produce(client, "never", b"x")[0] == 0
