"""A broker that was not stopped: what it finds at its next start, what it tells and what it goes on serving."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import kbroker
from kbroker._core.record.records import Record, build_batch
from kbroker.observe.logging import BrokerLog
from kbroker.protocol.messages import (
    DeleteRecordsRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    ProduceRequest,
)
from kbroker.storage.checkpoints import LOG_START_OFFSETS, RECOVERY_POINTS, read_offsets, write_offsets
from kbroker.storage.log_dir import CLEAN_SHUTDOWN
from kbroker.tests.integration.wire import Connection

Start = Callable[..., kbroker.Broker]
STORAGE_ERROR, LOADING, NOT_COORDINATOR = 56, 14, 16
SEGMENT = {"segment.bytes": "1048576"}  # the least that Kafka takes
BATCHES, VALUE = 40, b"x" * 100_000


class Lines:
    """A broker's log, kept in memory."""

    def __init__(self) -> None:
        self._stream = io.StringIO()
        self.log = BrokerLog("json", stream=self._stream)

    def of(self, event: str) -> list[dict[str, Any]]:
        self.log.close()
        lines = [json.loads(line) for line in self._stream.getvalue().splitlines()]
        return [line for line in lines if line["event"] == event]


def fill(broker: kbroker.Broker, partitions: int) -> None:
    """Four segments a partition, a record a batch."""
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    admin = AdminClient(servers)
    admin.create_topics([NewTopic("t", partitions, 1, config=SEGMENT)])["t"].result(30)
    producer = Producer({**servers, "batch.num.messages": 1, "linger.ms": 0})
    for _ in range(BATCHES):
        for partition in range(partitions):
            producer.produce("t", VALUE, partition=partition)
    assert producer.flush(60) == 0


def as_a_kill_leaves_it(directory: Path) -> None:
    """No marker, and recovery points from before anything was flushed."""
    (directory / CLEAN_SHUTDOWN).unlink()
    points = read_offsets(directory / RECOVERY_POINTS)
    write_offsets(directory / RECOVERY_POINTS, dict.fromkeys(points, 0))


def end_offset(port: int, partition: int) -> tuple[int, int]:
    """(error, end offset)."""
    asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=-1)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[asked])
    with Connection(port) as connection:
        (answered,) = connection.ask(ListOffsetsRequest(topics=[topic]), 5).topics
    return answered.partitions[0].error_code, answered.partitions[0].offset


def produce(port: int, partition: int) -> int:
    records = build_batch([Record(timestamp=1, key=None, value=b"v")])
    data = ProduceRequest.PartitionProduceData(index=partition, records=records)
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    with Connection(port) as connection:
        (answered,) = connection.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), 9).responses
    code: int = answered.partition_responses[0].error_code
    return code


def segments(directory: Path, partition: int) -> list[Path]:
    return sorted((directory / f"t-{partition}").glob("*.log"))


@pytest.mark.parametrize("threads", [1, 4])
def test_a_torn_tail_is_cut_and_told_and_bad_bytes_in_the_middle_cost_one_partition(
    start_broker: Start, tmp_path: Path, threads: int
) -> None:
    broker = start_broker(tmp_path)
    fill(broker, 4)
    broker.stop()
    as_a_kill_leaves_it(tmp_path)
    torn, bad = segments(tmp_path, 1)[-1], segments(tmp_path, 2)[1]
    with torn.open("r+b") as file:
        file.truncate(torn.stat().st_size - 7)
    data = bytearray(bad.read_bytes())
    data[150_000] ^= 1
    bad.write_bytes(data)
    lines = Lines()
    again = start_broker(tmp_path, log=lines.log, config={"num.recovery.threads.per.data.dir": threads})
    assert [end_offset(again.port, partition)[1] for partition in (0, 1, 3)] == [BATCHES, BATCHES - 1, BATCHES]
    assert [produce(again.port, partition) for partition in (0, 1, 3)] == [0, 0, 0]
    assert (end_offset(again.port, 2)[0], produce(again.port, 2)) == (STORAGE_ERROR, STORAGE_ERROR)
    again.stop()
    (repaired,) = lines.of("a log was repaired")
    assert (repaired["topic"], repaired["partition"], repaired["offset"]) == ("t", 1, BATCHES - 1)
    assert repaired["segment"] == torn.stem
    assert repaired["reason"] == "a batch is cut short"
    assert 0 < repaired["bytes_cut"] < len(VALUE) + 100
    (offline,) = lines.of("a partition is offline")
    assert offline["partition"] == 2
    assert str(bad) in offline["reason"]
    assert "does not match its checksum" in offline["reason"]
    assert bad.read_bytes() == bytes(data), "nothing of it was touched"
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()


def test_what_the_checkpoints_told_of_a_partition_that_stays_shut_is_not_forgotten(
    start_broker: Start, tmp_path: Path
) -> None:
    broker = start_broker(tmp_path)
    fill(broker, 2)
    asked = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=1, offset=15)
    with Connection(broker.port) as connection:
        topic = DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[asked])
        (answered,) = connection.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=5000), 2).topics
    assert answered.partitions[0].low_watermark == 15
    broker.stop()
    as_a_kill_leaves_it(tmp_path)
    bad = segments(tmp_path, 1)[1]
    whole = bad.read_bytes()
    bad.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    again = start_broker(tmp_path)
    assert end_offset(again.port, 1)[0] == STORAGE_ERROR
    again.stop()
    assert read_offsets(tmp_path / LOG_START_OFFSETS)["t", 1] == 15
    bad.write_bytes(whole)
    last = start_broker(tmp_path)
    assert end_offset(last.port, 1) == (0, BATCHES)
    asked_start = ListOffsetsRequest.ListOffsetsPartition(partition_index=1, timestamp=-2)
    with Connection(last.port) as connection:
        topic_asked = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[asked_start])
        (found,) = connection.ask(ListOffsetsRequest(topics=[topic_asked]), 5).topics
    assert found.partitions[0].offset == 15


def test_a_directory_that_goes_by_another_id_is_served_and_the_cluster_is_told(
    start_broker: Start, tmp_path: Path
) -> None:
    """As after a flipped bit in meta.properties that leaves an id: what lies there is where it was."""
    broker = start_broker(tmp_path)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic("t", 2, 1)])["t"].result(30)
    assert produce(broker.port, 1) == 0
    broker.stop()
    meta = tmp_path / "meta.properties"
    lines = [line for line in meta.read_text().splitlines() if not line.startswith("directory.id=")]
    meta.write_text("\n".join([*lines, "directory.id=dcNs8wBOnsOCbxOFzG4CwQ", ""]))
    told = Lines()
    again = start_broker(tmp_path, log=told.log)
    assert [end_offset(again.port, partition) for partition in (0, 1)] == [(0, 0), (0, 1)]
    assert produce(again.port, 1) == 0
    again.stop()
    (warned,) = told.of("partitions lie in another log directory than the cluster was told: it is told now")
    assert (warned["partitions"], warned["one_of_them"]) == (2, "t-0")
    silent = Lines()
    once_more = start_broker(tmp_path, log=silent.log)
    assert end_offset(once_more.port, 1) == (0, 2)
    once_more.stop()
    assert not silent.of(warned["event"])


def test_a_coordinator_whose_log_is_damaged_says_so_and_the_others_go_on(start_broker: Start, tmp_path: Path) -> None:
    one = {"transaction.state.log.num.partitions": "1"}
    broker = start_broker(tmp_path, config=one)
    asked = InitProducerIdRequest(transactional_id="me", transaction_timeout_ms=60_000)
    with Connection(broker.port) as connection:
        connection.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["me"]), 4)
        while connection.ask(asked, 4).error_code:  # until it has loaded
            pass
    broker.stop()
    log = tmp_path / "__transaction_state-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[-5] ^= 1
    log.write_bytes(data)
    told = Lines()
    again = start_broker(tmp_path, log=told.log, config=one)
    with Connection(again.port) as connection:
        while (code := connection.ask(asked, 4).error_code) == LOADING:
            pass
    assert code == NOT_COORDINATOR
    again.stop()
    (line,) = told.of("a partition of the transaction coordinator cannot be read")
    assert (line["topic"], line["partition"], line["level"]) == ("__transaction_state", 0, "error")
    assert line["reason"].startswith("from offset 0 on: ")
    assert "exception" not in line
