"""Many clients at once, and clients that the broker leaves: through a whole broker and real sockets."""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections.abc import Callable

import pytest

import kbroker
from kbroker._core.record.records import Record, build_batch, iterate
from kbroker.broker import StartError
from kbroker.protocol import codec
from kbroker.protocol.messages import ApiVersionsRequest, FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from kbroker.tests.integration.wire import Connection
from kbroker.tests.unit.net.harness import eventually

CROWD = 1_000
RETRANSMITS_AT = 100  # tcpi_total_retrans in struct tcp_info


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def retransmits(client: socket.socket) -> int:
    (count,) = struct.unpack_from("=I", client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192), RETRANSMITS_AT)
    return int(count)


def test_a_thousand_clients_at_once_are_all_answered_without_a_second_try(broker: kbroker.Broker) -> None:
    hello = frame(
        codec.encode_request(
            ApiVersionsRequest(client_software_name="burst", client_software_version="1"), 3, 7, "burst"
        )
    )
    clients = []
    poller = select.poll()
    try:
        for _ in range(CROWD):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", broker.port))
            clients.append(client)
        for client in clients:
            poller.register(client, select.POLLOUT)
        connected: set[int] = set()
        while len(connected) < CROWD:
            for fd, what in poller.poll(30_000):
                assert what == select.POLLOUT, "a connection was refused"
                connected.add(fd)
                poller.unregister(fd)
        for client in clients:
            client.settimeout(30)
            client.sendall(hello)
        for client in clients:
            assert client.recv(8)[4:] == (7).to_bytes(4, "big")
        assert sum(map(retransmits, clients)) == 0
    finally:
        for client in clients:
            client.close()


def produce(correlation_id: int, value: bytes) -> bytes:
    records = build_batch([Record(value=value)])
    partition = ProduceRequest.PartitionProduceData(index=0, records=records)
    body = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[partition])]
    )
    return frame(codec.encode_request(body, 9, correlation_id, "drain"))


def fetch(topic: str, offset: int, max_wait_ms: int) -> FetchRequest:
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=50_000_000)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=50_000_000,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[partition])],
    )


def acknowledged(client: socket.socket, stream: bytes, acks: list[int]) -> None:
    """Pipelines produce requests until the broker leaves; notes the offset of every answer."""

    def write() -> None:
        try:
            client.sendall(stream)
        except OSError:
            return  # the broker has left

    writer = threading.Thread(target=write)
    writer.start()
    reader = client.makefile("rb")
    try:
        while len(size := reader.read(4)) == 4:
            _, response = codec.decode_response(ProduceResponse, 9, reader.read(int.from_bytes(size, "big")))
            (topic,) = response.responses
            (partition,) = topic.partition_responses
            assert partition.error_code == 0
            acks.append(partition.base_offset)
    except (OSError, codec.DecodeError):
        pass  # cut off in the middle of an answer: not an acknowledgement
    client.close()
    writer.join()


def test_a_stop_under_load_loses_nothing_that_was_acknowledged(
    start_broker: Callable[..., kbroker.Broker], tmp_path: object
) -> None:
    broker = start_broker(tmp_path)
    with Connection(broker.port) as setup:
        setup.create_topic("t")
        setup.create_topic("quiet")
    parked = Connection(broker.port)
    parked.send(fetch("quiet", 0, 600_000), 12)
    idle = Connection(broker.port)
    acks: list[list[int]] = [[] for _ in range(4)]
    producers = []
    for i in range(4):
        client = socket.create_connection(("127.0.0.1", broker.port), timeout=30)
        stream = b"".join(produce(n, b"%d-%d" % (i, n)) for n in range(50_000))
        producers.append(threading.Thread(target=acknowledged, args=(client, stream, acks[i])))
    for producer in producers:
        producer.start()
    eventually(lambda: all(acks))
    broker.stop()
    for producer in producers:
        producer.join()
    assert parked.is_closed()
    assert idle.is_closed()
    again = start_broker(tmp_path)
    found: dict[int, bytes | None] = {}
    with Connection(again.port) as reader:
        while True:
            response: FetchResponse = reader.ask(fetch("t", len(found), 0), 12)
            (topic,) = response.responses
            (partition,) = topic.partitions
            if not partition.records:
                break
            found.update((record.offset, record.value) for record in iterate(partition.records))
    for i, offsets in enumerate(acks):
        assert [found[offset] for offset in offsets] == [b"%d-%d" % (i, n) for n in range(len(offsets))]


def test_limits_given_as_settings_hold(start_broker: Callable[..., kbroker.Broker]) -> None:
    settings = {
        "max.connections.per.ip": 0,
        "max.connections.per.ip.overrides": "localhost:1,127.0.0.1:2",
        "max.connection.creation.rate": 1_000,
        "queued.max.requests": 1,
        "queued.max.request.bytes": 1_000_000,
        "socket.request.max.bytes": 1_000_000,
    }
    broker = start_broker(config=settings)
    assert broker.config.unsupported == []
    with Connection(broker.port) as first, Connection(broker.port) as second:
        first.create_topic("t")
        assert second.topic_id("t") == first.topic_id("t")
        with Connection(broker.port) as third:
            assert third.is_closed()


def test_a_limit_for_a_host_without_an_address_is_refused(start_broker: Callable[..., kbroker.Broker]) -> None:
    with pytest.raises(StartError, match=r"names nowhere\.invalid, which has no address"):
        start_broker(config={"max.connections.per.ip.overrides": "nowhere.invalid:1"})
