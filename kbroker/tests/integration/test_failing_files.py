"""Files that fail under a running broker: what its log tells, and what it goes on doing."""

import io
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import kbroker
from kbroker._core.errors import Err
from kbroker._core.record.records import batches
from kbroker.observe.logging import BrokerLog
from kbroker.protocol.messages import FetchRequest
from kbroker.tests.integration.wire import Connection

Start = Callable[..., kbroker.Broker]


class Lines:
    """A broker's log, kept in memory."""

    def __init__(self) -> None:
        self._stream = io.StringIO()
        self.log = BrokerLog("json", stream=self._stream)

    def text(self) -> str:
        """What is written by now."""
        return self._stream.getvalue()

    def errors(self) -> list[dict[str, object]]:
        self.log.close()
        lines = [json.loads(line) for line in self._stream.getvalue().splitlines()]
        return [line for line in lines if line["level"] == "error"]


@pytest.fixture
def lines() -> Lines:
    return Lines()


def create(broker: kbroker.Broker, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def test_a_partition_that_cannot_be_opened_is_logged(start_broker: Start, tmp_path: Path, lines: Lines) -> None:
    broker = start_broker(tmp_path, log=lines.log)
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "partition.metadata").write_text("damaged")
    create(broker, "t", 2)
    create(broker, "after", 1)
    broker.stop()
    (line,) = lines.errors()
    assert (line["event"], line["topic"], line["partition"]) == ("a partition is offline", "t", 0)
    assert not broker.failed


def test_a_stop_that_is_not_clean_says_so_and_ends(start_broker: Start, tmp_path: Path, lines: Lines) -> None:
    broker = start_broker(tmp_path, log=lines.log)
    create(broker, "t", 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("t", b"x")
    assert producer.flush(30) == 0
    shutil.rmtree(tmp_path / "t-0")
    broker.stop()
    (line,) = lines.errors()
    assert line["event"] == "the stop was not clean: the next start checks the files"
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    start_broker(tmp_path)


def test_a_broker_in_a_program_tells_that_it_has_failed(start_broker: Start, tmp_path: Path, lines: Lines) -> None:
    data = tmp_path / "data"
    interval = {"replica.high.watermark.checkpoint.interval.ms": 20}
    broker = start_broker(data, log=lines.log, config=interval)
    create(broker, "t", 1)
    assert (broker.failed, broker.failure) == (False, None)
    data.rename(tmp_path / "away")
    deadline = time.monotonic() + 20
    while not broker.failed:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    broker.stop()
    assert broker.failure is not None
    assert broker.failure.startswith(
        f"The log directory {data}, which holds the cluster's metadata, failed: No such file"
    )
    assert [line["event"] for line in lines.errors()] == [broker.failure]
    (tmp_path / "away").rename(data)
    start_broker(data)


def test_a_reader_that_meets_damage_is_told_of_once(start_broker: Start, tmp_path: Path, lines: Lines) -> None:
    settings = {"replica.high.watermark.checkpoint.interval.ms": 20, "log.segment.bytes": 1 << 20}
    broker = start_broker(tmp_path, config=settings)
    create(broker, "t", 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    for _ in range(30):  # one batch each, in two segments: the first is not looked at again
        producer.produce("t", b"x" * 50_000)
        assert producer.flush(30) == 0
    broker.stop()
    path = tmp_path / "t-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    second = batches(data)[1]
    data[second.position + 8 : second.position + 12] = b"\xff" * 4
    path.write_bytes(data)
    broker = start_broker(tmp_path, log=lines.log, config=settings)
    with Connection(int(broker.bootstrap_servers.rpartition(":")[2])) as connection:
        place = FetchRequest.FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, topics=[FetchRequest.FetchTopic(topic="t", partitions=[place])]
        )
        deadline = time.monotonic() + 20
        while "records cannot be read" not in lines.text():
            answer = connection.ask(request, 11)
            assert answer.responses[0].partitions[0].error_code == Err.KAFKA_STORAGE_ERROR
            assert time.monotonic() < deadline
        for _ in range(5):
            connection.ask(request, 11)
    broker.stop()
    (line,) = lines.errors()
    assert (line["topic"], line["partition"], line["offset"]) == ("t", 0, 1)
