"""Records that go while clients look: a reader in the middle of them, DeleteRecords over a kill, a real AdminClient."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kbroker
from kbroker._core.clock import BrokerClock
from kbroker._core.record.records import Record, build_batch, iterate
from kbroker.protocol import codec
from kbroker.protocol.messages import (
    CreateTopicsRequest,
    DeleteRecordsRequest,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ProduceRequest,
)
from kbroker.tests.integration.wire import Connection

NOW_MS = 1_700_000_000_000
OUT_OF_RANGE = 1
EARLIEST = -2


def create(client: Connection, name: str, **configs: str) -> None:
    settings = [
        CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
        for key, value in configs.items()
    ]
    wanted = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=settings)
    (made,) = client.ask(CreateTopicsRequest(topics=[wanted]), 7).topics
    assert made.error_code == 0, made.error_message


def produce(client: Connection, topic: str, batch: bytes) -> int:
    data = ProduceRequest.PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    )
    part = client.ask(request, 9).responses[0].partition_responses[0]
    assert part.error_code == 0
    offset: int = part.base_offset
    return offset


def fetch(topic: str, offset: int, max_bytes: int = 1 << 30) -> FetchRequest:
    part = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=0, max_bytes=max_bytes, topics=[FetchRequest.FetchTopic(topic=topic, partitions=[part])]
    )


def fetched(client: Connection, topic: str, offset: int) -> Any:
    return client.ask(fetch(topic, offset), 12).responses[0].partitions[0]


def start_of(client: Connection, topic: str) -> int:
    part = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[part])]
    )
    offset: int = client.ask(request, 7).topics[0].partitions[0].offset
    return offset


def delete(client: Connection, topic: str, offset: int) -> tuple[int, int]:
    part = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[part])], timeout_ms=10_000
    )
    answer = client.ask(request, 2).topics[0].partitions[0]
    return answer.error_code, answer.low_watermark


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_reader_in_the_middle_of_a_deleted_segment_gets_all_of_it(
    start_broker: Callable[..., kbroker.Broker], tmp_path: Path
) -> None:
    clock = BrokerClock()
    clock.hold(NOW_MS)
    broker = start_broker(
        tmp_path, clock=clock, config={"log.initial.task.delay.ms": 0, "log.retention.check.interval.ms": 1}
    )
    block = os.urandom(900_000)
    with Connection(broker.port) as client, socket.socket() as reader:
        create(client, "t", retention_ms="1000", file_delete_delay_ms="0")
        for n in range(40):
            batch = build_batch([Record(timestamp=NOW_MS, value=b"%02d" % n + block)])
            assert produce(client, "t", batch) == n
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)  # so that the broker cannot send it all at once
        reader.connect(("127.0.0.1", broker.port))
        reader.settimeout(20)
        frame = codec.encode_request(fetch("t", 0), 12, 1, "reader")
        reader.sendall(len(frame).to_bytes(4, "big") + frame)
        received = bytearray(reader.recv(10_000))

        clock.advance(2000)
        until(lambda: sorted(path.name for path in (tmp_path / "t-0").glob("*.log*")) == [f"{40:020d}.log"])
        assert (fetched(client, "t", 0).error_code, start_of(client, "t")) == (OUT_OF_RANGE, 40)

        wanted = 4 + int.from_bytes(received[:4], "big")
        assert wanted > 30_000_000
        while len(received) < wanted:
            piece = reader.recv(1 << 20)
            assert piece, "the reader was cut off"
            received += piece
        _, answer = codec.decode_response(FetchResponse, 12, bytes(received[4:]))
        records = iterate(answer.responses[0].partitions[0].records)
        assert [record.offset for record in records] == list(range(40))
        assert all(record.value == b"%02d" % n + block for n, record in enumerate(records))


def test_fetch_and_list_offsets_follow_a_deletion(broker: kbroker.Broker) -> None:
    with Connection(broker.port) as client:
        create(client, "t")
        for _ in range(3):
            produce(client, "t", build_batch([Record(timestamp=NOW_MS, value=b"x")] * 2))
        assert delete(client, "t", 3) == (0, 3)
        assert (start_of(client, "t"), fetched(client, "t", 2).error_code) == (3, OUT_OF_RANGE)
        part = fetched(client, "t", 3)
        assert (part.error_code, part.log_start_offset, part.high_watermark) == (0, 3, 6)
        assert delete(client, "t", -1) == (0, 6)
        assert delete(client, "t", 7) == (OUT_OF_RANGE, -1)
        assert (fetched(client, "t", 6).error_code, fetched(client, "t", 6).records) == (0, b"")
        assert produce(client, "t", build_batch([Record(timestamp=NOW_MS, value=b"x")])) == 6


SERVER = """
import sys, kbroker
broker = kbroker.Broker(sys.argv[1]).start()
print(broker.port, flush=True)
sys.stdin.read()
broker.stop()
"""


@pytest.mark.parametrize("kill", [True, False], ids=["kill -9", "a clean stop"])
def test_deleted_records_stay_deleted_over(tmp_path: Path, kill: bool) -> None:
    for turn in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", SERVER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as server:
            assert server.stdout is not None
            assert server.stdin is not None
            with Connection(int(server.stdout.readline())) as client:
                if turn == 0:
                    create(client, "t")
                assert start_of(client, "t") == turn * 2
                for _ in range(2):
                    produce(client, "t", build_batch([Record(timestamp=NOW_MS, value=b"x")] * 2))
                assert delete(client, "t", turn * 2 + 2) == (0, turn * 2 + 2)
                assert fetched(client, "t", turn * 2 + 1).error_code == OUT_OF_RANGE
                if kill:
                    server.send_signal(signal.SIGKILL)
            server.stdin.close()


def test_the_admin_client_of_confluent_kafka_deletes_records(broker: kbroker.Broker) -> None:
    confluent: Any = pytest.importorskip("confluent_kafka")
    admin_module: Any = pytest.importorskip("confluent_kafka.admin")
    with Connection(broker.port) as client:
        create(client, "t")
        produce(client, "t", build_batch([Record(timestamp=NOW_MS, value=b"x")] * 5))
    admin = admin_module.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for offset, low_watermark in ((3, 3), (confluent.OFFSET_END, 5)):
        part = confluent.TopicPartition("t", 0, offset)
        (done,) = admin.delete_records([part]).values()
        assert done.result(20).low_watermark == low_watermark
    (refused,) = admin.delete_records([confluent.TopicPartition("t", 0, 6)]).values()
    with pytest.raises(confluent.KafkaException) as problem:
        refused.result(20)
    assert problem.value.args[0].code() == OUT_OF_RANGE
