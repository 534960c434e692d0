"""With flush.messages=1 no acknowledgement goes before the fsync, and none at all when it fails."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kbroker.protocol.messages import DeleteRecordsRequest, ListOffsetsRequest
from kbroker.tests.disk.asking import STORAGE_ERROR, create, partitions_in, produce, values
from kbroker.tests.disk.conftest import Disk
from kbroker.tests.integration.wire import Connection

Start = Callable[..., Disk]
EIO = 5


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
def test_what_could_not_be_synced_is_not_acknowledged_and_not_tried_again(
    disk: Start, tmp_path: Path, acks: int
) -> None:
    broker = disk([tmp_path / "data", tmp_path / "second"])
    with Connection(broker.port) as client:
        create(client, "t", 2, **{"flush.messages": "1"})
        (failing,), (other,) = (partitions_in(one, "t") for one in reversed(broker.dirs))
        assert produce(client, "t", b"kept", acks, partition=failing) == (0, 0)
        broker.orders(f"fsync /t-{failing}/ errno {EIO}")
        assert produce(client, "t", b"lost", acks, partition=failing) == (STORAGE_ERROR, -1)
        broker.orders()
        assert produce(client, "t", b"later", acks, partition=failing)[0] == STORAGE_ERROR
        assert produce(client, "t", b"goes on", acks, partition=other) == (0, 0)


def test_what_could_not_be_written_is_not_acknowledged(disk: Start, tmp_path: Path) -> None:
    broker = disk([tmp_path / "data", tmp_path / "second"])
    with Connection(broker.port) as client:
        create(client, "t", 2)
        (failing,) = partitions_in(broker.dirs[1], "t")
        assert produce(client, "t", b"kept", partition=failing) == (0, 0)
        file = broker.dirs[1] / f"t-{failing}" / f"{0:020d}.log"
        size = file.stat().st_size
        broker.orders(f"write /t-{failing}/ errno {EIO}")
        assert produce(client, "t", b"lost", partition=failing) == (STORAGE_ERROR, -1)
        broker.orders()
        assert produce(client, "t", b"later", partition=failing) == (STORAGE_ERROR, -1)
        assert file.stat().st_size == size


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


def test_flush_ms_is_looked_at_by_the_scheduler(disk: Start, tmp_path: Path) -> None:
    broker = disk([tmp_path / "data", tmp_path / "second"], **{"log.flush.scheduler.interval.ms": 20})
    with Connection(broker.port) as client:
        create(client, "t", 2, **{"flush.ms": "50"})
        create(client, "never", 2, **{"flush.ms": str(2**63 - 1)})
        (failing,) = partitions_in(broker.dirs[1], "t")
        (other,) = partitions_in(broker.dirs[0], "never")
        broker.orders(f"fsync /second/t-{failing}/ errno {EIO}", f"fsync /never-{other}/ errno {EIO}")
        assert produce(client, "t", b"x", partition=failing) == (0, 0)
        assert produce(client, "never", b"x", partition=other) == (0, 0)
        deadline = time.monotonic() + 20
        while produce(client, "t", b"x", partition=failing)[0] != STORAGE_ERROR:  # the scheduler's fsync has failed
            assert time.monotonic() < deadline
        assert produce(client, "never", b"x", partition=other)[0] == 0


def test_a_topic_without_flush_ms_is_synced_as_often_as_the_scheduler_looks(disk: Start) -> None:
    """Kafka's rule: log.flush.interval.ms, which nobody has set, is log.flush.scheduler.interval.ms then."""
    broker = disk(**{"log.flush.scheduler.interval.ms": 20})
    with Connection(broker.port) as client:
        create(client, "t")
        create(client, "never", **{"flush.ms": str(2**63 - 1)})
        broker.orders("fsync /never-0/ wait 0", "fsync /t-0/ wait 0")
        assert produce(client, "never", b"x") == (0, 0)
        assert produce(client, "t", b"x") == (0, 0)
        deadline = time.monotonic() + 20
        while not broker.told():
            assert time.monotonic() < deadline
        assert [line for line in broker.told() if "/never-0/" in line] == []
