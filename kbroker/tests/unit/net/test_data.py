"""Produce and Fetch from socket to log and back: file slices, long polls, order."""

from __future__ import annotations

import os
import socket
import struct
import threading
from pathlib import Path

import pytest

from kbroker._core.core import Core
from kbroker._core.log.partition_log import PartitionLog
from kbroker._core.partitions import PartitionHandle
from kbroker._core.record.records import Record, build_batch, iterate
from kbroker._core.views import ViewHandle
from kbroker.protocol import codec
from kbroker.protocol.messages import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse

from .harness import House, closed_by_server, eventually, frame, receive_frame, request, take_one

PRODUCE_VERSION = 9
FETCH_VERSION = 12
SERVED = {0: (0, 13, 9, True), 1: (4, 18, 12, True), 3: (0, 13, 9, False)}


class DataHouse:
    """A core that leads one partition of one topic."""

    def __init__(self, house: House, log: PartitionLog, **settings: int) -> None:
        self.house = house
        self.log = log
        self.partition = PartitionHandle(0, log)
        self.partition.lead(1, 0, 1, 1)
        self.view = ViewHandle()
        self.view.publish([("t", bytes(16), False, [self.partition])])
        self.core = Core(house.clock, node_id=1, **{**house.options, **settings})
        house.keep(self.core)
        self.core.publish_apis(SERVED, [b""] * 6)
        self.port = self.core.listen("127.0.0.1", 0, self.view)
        self.core.start()


@pytest.fixture(params=["file", "memory"])
def data(house: House, tmp_path: Path, request: pytest.FixtureRequest) -> DataHouse:
    if request.param == "memory":
        return DataHouse(house, PartitionLog.in_memory(house.clock, {}), network_threads=2)
    return DataHouse(house, PartitionLog.open(tmp_path / "t-0", house.clock, {}), network_threads=2)


def produce(correlation_id: int, batch: bytes, acks: int = -1) -> bytes:
    partition = ProduceRequest.PartitionProduceData(index=0, records=batch)
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[partition])
    body = ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic])
    return frame(codec.encode_request(body, PRODUCE_VERSION, correlation_id, "test"))


def fetch(correlation_id: int, offset: int, *, max_bytes: int = 50_000_000, max_wait_ms: int = 0) -> bytes:
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    topic = FetchRequest.FetchTopic(topic="t", partitions=[partition])
    body = FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=max_bytes, session_id=0, session_epoch=-1, topics=[topic]
    )
    return frame(codec.encode_request(body, FETCH_VERSION, correlation_id, "test"))


def batch(*values: bytes) -> bytes:
    return build_batch([Record(timestamp=1_700_000_000_000, value=value) for value in values])


def base_offset(reply: bytes) -> int:
    decoded, _ = codec.decode(ProduceResponse, PRODUCE_VERSION, reply[5:])
    partition = decoded.responses[0].partition_responses[0]
    assert partition.error_code == 0
    return partition.base_offset


def fetched_bytes(reply: bytes) -> bytes:
    decoded, _ = codec.decode(FetchResponse, FETCH_VERSION, reply[5:])
    partition = decoded.responses[0].partitions[0]
    assert partition.error_code == 0
    return bytes(partition.records or b"")


def values(reply: bytes) -> list[bytes | None]:
    return [record.value for record in iterate(fetched_bytes(reply))]


def test_what_is_produced_is_fetched(data: DataHouse) -> None:
    client = data.house.connect(data.port)
    client.sendall(produce(1, batch(b"a", b"b")) + produce(2, batch(b"c")) + fetch(3, 0))
    assert [base_offset(receive_frame(client)) for _ in range(2)] == [0, 2]
    assert values(receive_frame(client)) == [b"a", b"b", b"c"]
    assert data.core.counters()["requests"] == {0: 2, 1: 1}
    assert data.core.counters()["requests_posted"] == 0


@pytest.mark.parametrize("cut", [0, 1, 3, 50])
def test_a_long_pipeline_is_answered_in_order_wherever_its_bytes_are_cut(data: DataHouse, cut: int) -> None:
    client = data.house.connect(data.port)
    pipeline = b"".join(produce(number, batch(b"%d" % number)) for number in range(300))
    client.sendall(pipeline[: len(pipeline) // 2 + cut])
    eventually(lambda: data.log.log_end_offset >= 149)
    client.sendall(pipeline[len(pipeline) // 2 + cut :])
    replies = [receive_frame(client) for _ in range(300)]
    assert [struct.unpack(">i", reply[:4])[0] for reply in replies] == list(range(300))
    assert [base_offset(reply) for reply in replies] == list(range(300))


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(b"\x7f\xff\xff\xff\0\0\0\0", id="a size that is refused"),
        pytest.param(frame(b"\0\0\0\x09"), id="a frame without a header"),
        pytest.param(frame(b"\0\0\0\x63\0\0\0\1\xff\xff"), id="a version of Produce that is not served"),
        pytest.param(frame(b"\0\0\0\x09\0\0\0\1\xff\xff\0junk"), id="a Produce that is cut short"),
        pytest.param(produce(9, b"junk", acks=0), id="acks=0 that fails"),
    ],
)
def test_what_came_before_a_bad_frame_is_appended_and_answered(data: DataHouse, end: bytes) -> None:
    client = data.house.connect(data.port)
    client.sendall(produce(1, batch(b"a")) + produce(2, batch(b"b")) + end)
    assert [base_offset(receive_frame(client)) for _ in range(2)] == [0, 1]
    assert closed_by_server(client)
    assert data.log.log_end_offset == 2


def test_a_request_behind_one_that_closes_does_not_stay_parked(data: DataHouse) -> None:
    data.partition.lead(1, 1, 2, 1, in_sync_followers=[2])
    for _ in range(20):  # connections' places are used again
        client = data.house.connect(data.port)
        client.sendall(produce(1, b"junk", acks=0) + produce(2, batch(b"waits for a replica")))
        assert closed_by_server(client)
    eventually(lambda: data.core.counters()["requests_parked_now"] == 0)


def test_a_silent_request_is_followed_by_the_next_answer(data: DataHouse) -> None:
    client = data.house.connect(data.port)
    client.sendall(produce(1, batch(b"a"), acks=0) * 50 + fetch(2, 0))
    assert values(receive_frame(client)) == [b"a"] * 50


def test_what_was_sent_before_the_end_of_the_stream_is_appended(data: DataHouse) -> None:
    client = data.house.connect(data.port)
    client.sendall(request(1, b"\xff\xff") + produce(1, batch(b"last words"), acks=0) * 100)
    client.close()
    posted = take_one(data.core)
    data.core.reply(posted[0], b"nobody reads this")
    eventually(lambda: data.log.log_end_offset == 100)


def test_a_long_poll_is_woken_by_an_append_through_any_thread(data: DataHouse) -> None:
    waiting = [data.house.connect(data.port) for _ in range(4)]
    for i, client in enumerate(waiting):
        client.sendall(fetch(i, 0, max_wait_ms=600_000) + fetch(100 + i, 1, max_wait_ms=0))
    eventually(lambda: data.core.counters()["requests_parked"] == 4)
    producer = data.house.connect(data.port)
    producer.sendall(produce(9, batch(b"news")))
    assert base_offset(receive_frame(producer)) == 0
    for client in waiting:
        assert values(receive_frame(client)) == [b"news"]
        assert values(receive_frame(client)) == []


def test_a_long_poll_ends_with_its_time(data: DataHouse) -> None:
    data.house.clock.hold()
    client = data.house.connect(data.port)
    client.sendall(fetch(1, 0, max_wait_ms=60_000))
    eventually(lambda: data.core.counters()["requests_parked"] == 1)
    data.house.clock.advance(60_000)
    assert values(receive_frame(client)) == []


def test_a_parked_client_that_is_reset_is_forgotten(data: DataHouse) -> None:
    client = data.house.connect(data.port)
    client.sendall(fetch(1, 0, max_wait_ms=600_000))
    eventually(lambda: data.core.counters()["requests_parked"] == 1)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    eventually(lambda: data.core.counters()["connections_open"] == 0)
    producer = data.house.connect(data.port)
    producer.sendall(produce(1, batch(b"for nobody")) + fetch(2, 0))
    assert base_offset(receive_frame(producer)) == 0
    assert values(receive_frame(producer)) == [b"for nobody"]


@pytest.mark.parametrize("behind", [b"", b"\0"], ids=["nothing", "more"])
def test_a_parked_client_that_ends_its_stream_is_answered_at_once(data: DataHouse, behind: bytes) -> None:
    gone, half = data.house.connect(data.port), data.house.connect(data.port)
    for client in (gone, half):
        client.sendall(fetch(1, 0, max_wait_ms=600_000) + behind)
    eventually(lambda: data.core.counters()["requests_parked"] == 2)
    gone.close()
    half.shutdown(socket.SHUT_WR)
    assert values(receive_frame(half)) == []
    assert closed_by_server(half)
    eventually(lambda: data.core.counters()["connections_open"] == 0)


def asked_of(data: DataHouse, times: int) -> int:
    """How many turns the loop takes for so many posted requests of someone else."""
    other = data.house.connect(data.port)
    before = data.core.counters()["turns"]
    for i in range(times):
        other.sendall(request(i, b"\xff\xff"))
        data.core.reply(take_one(data.core)[0], b"answer")
        assert receive_frame(other) == b"answer"
    return data.core.counters()["turns"] - before


def park_with_more_behind(data: DataHouse, behind: bytes) -> socket.socket:
    """A client with a long poll, frames behind it that were received, and a byte behind these that was not."""
    client = data.house.connect(data.port, receive_buffer=4096)
    client.sendall(fetch(1, data.log.log_end_offset, max_wait_ms=600_000) + behind)
    eventually(lambda: data.core.counters()["requests_parked_now"] == 1)
    client.sendall(b"\0")
    asked_of(data, 2)
    return client


def test_the_end_of_a_stream_behind_unread_replies_is_noticed_once(house: House) -> None:
    data = DataHouse(house, PartitionLog.in_memory(house.clock, {}), network_threads=1)
    data.partition.append(batch(os.urandom(900_000)))
    client = park_with_more_behind(data, b"".join(fetch(i, 0) for i in range(2, 22)))
    data.partition.append(batch(b"news"))
    eventually(lambda: data.core.counters()["requests"][1] > 5)
    client.shutdown(socket.SHUT_WR)
    assert asked_of(data, 20) < 200
    assert data.core.counters()["requests"][1] < 21
    assert values(receive_frame(client)) == [b"news"]
    for _ in range(20):
        assert len(fetched_bytes(receive_frame(client))) > 900_000
    assert closed_by_server(client)


def test_the_end_of_a_stream_behind_a_posted_request_is_noticed_once(house: House) -> None:
    data = DataHouse(house, PartitionLog.in_memory(house.clock, {}), network_threads=1)
    client = park_with_more_behind(data, request(2, b"\xff\xff"))
    data.partition.append(batch(b"news"))
    posted = take_one(data.core)
    client.shutdown(socket.SHUT_WR)
    assert asked_of(data, 20) < 200
    data.core.reply(posted[0], b"the other answer")
    assert values(receive_frame(client)) == [b"news"]
    assert receive_frame(client) == b"the other answer"
    assert closed_by_server(client)


def test_a_produce_that_waits_for_replicas_outlives_its_clients_last_word(data: DataHouse) -> None:
    data.partition.lead(1, 1, 2, 1, in_sync_followers=[2])
    client = data.house.connect(data.port)
    client.sendall(produce(1, batch(b"a")))
    client.shutdown(socket.SHUT_WR)
    eventually(lambda: data.core.counters()["requests_parked"] == 1)
    other = data.house.connect(data.port)
    other.sendall(fetch(2, 0))
    assert values(receive_frame(other)) == []
    turns = data.core.counters()["turns"]
    data.partition.follower_fetched(2, 1)
    assert base_offset(receive_frame(client)) == 0
    assert closed_by_server(client)
    assert data.core.counters()["turns"] - turns < 100


def test_readers_that_do_not_read_cost_no_memory_and_hold_up_nobody(data: DataHouse) -> None:
    producer = data.house.connect(data.port)
    for i in range(10):
        producer.sendall(produce(i, batch(os.urandom(900_000))))
        receive_frame(producer)
    asleep = [data.house.connect(data.port, receive_buffer=4096) for _ in range(50)]
    for client in asleep:
        client.sendall(b"".join(fetch(i, 0) for i in range(200)))
    eventually(lambda: data.core.counters()["requests"].get(1, 0) >= 50)
    for i in range(20):
        producer.sendall(produce(i, batch(b"news")) + fetch(100 + i, 10 + i))
        assert base_offset(receive_frame(producer)) == 10 + i
        assert values(receive_frame(producer)) == [b"news"]
    counters = data.core.counters()
    assert counters["requests"][1] < 50 * 200  # whoever does not read is not read
    assert counters["reply_bytes_held"] <= 50 * 64 * 1024  # what would be sent is in files
    assert counters["request_bytes_held"] <= 50 * 64 * 1024
    for client in asleep:
        client.close()
    eventually(lambda: data.core.counters()["connections_open"] == 1)
    assert data.core.counters()["reply_bytes_held"] == 0


def test_large_slices_reach_a_slow_reader_whole_and_in_order(data: DataHouse) -> None:
    data_bytes = b"".join(batch(os.urandom(900_000)) for _ in range(20))
    producer = data.house.connect(data.port)
    for i in range(20):
        producer.sendall(produce(i, data_bytes[i * len(data_bytes) // 20 : (i + 1) * len(data_bytes) // 20]))
        assert base_offset(receive_frame(producer)) == i
    whole = data.log.read(0, 50_000_000)
    slow = data.house.connect(data.port, receive_buffer=8192)
    slow.sendall(fetch(1, 0) + fetch(2, 10) + fetch(3, 19))
    replies = [fetched_bytes(receive_frame(slow)) for _ in range(3)]
    assert replies[0] == whole
    assert whole.endswith(replies[1])
    assert whole.endswith(replies[2])
    assert len(replies[1]) == len(whole) // 2


def test_a_reader_may_leave_in_the_middle_of_a_slice(data: DataHouse) -> None:
    producer = data.house.connect(data.port)
    for i in range(10):
        producer.sendall(produce(i, batch(bytes(900_000))))
        receive_frame(producer)
    for _ in range(5):
        reader = data.house.connect(data.port, receive_buffer=8192)
        reader.sendall(fetch(1, 0))
        assert len(reader.recv(4096)) > 0
        reader.close()
    eventually(lambda: data.core.counters()["connections_open"] == 1)


def evict(path: Path) -> bool:
    """Drop a file from the page cache; False where the system does not let us."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.preadv(fd, [bytearray(1)], 0, os.RWF_NOWAIT)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return False


@pytest.mark.linux_calls  # cachestat
def test_cold_slices_are_read_by_another_thread(house: House, tmp_path: Path) -> None:
    data = DataHouse(house, PartitionLog.open(tmp_path / "t-0", house.clock, {}))
    producer = house.connect(data.port)
    for i in range(12):
        producer.sendall(produce(i, batch(os.urandom(10_000 if i < 4 else 900_000))))
        receive_frame(producer)
    whole = data.log.read(0, 50_000_000)
    if not evict(tmp_path / "t-0" / "00000000000000000000.log"):
        pytest.skip("this file system does not tell cold pages from warm ones")
    reader = house.connect(data.port)
    reader.sendall(fetch(1, 0, max_bytes=15_000) + fetch(2, 0) + fetch(3, 11))
    small, large, last = (fetched_bytes(receive_frame(reader)) for _ in range(3))
    assert whole.startswith(small)
    assert large == whole
    assert whole.endswith(last)
    assert data.core.counters()["slices_warmed"] > 0
    warmed = data.core.counters()["slices_warmed"]
    reader.sendall(fetch(4, 0))
    assert fetched_bytes(receive_frame(reader)) == whole
    assert data.core.counters()["slices_warmed"] == warmed


def test_a_reader_may_leave_while_its_slice_is_read(house: House, tmp_path: Path) -> None:
    data = DataHouse(house, PartitionLog.open(tmp_path / "t-0", house.clock, {}))
    producer = house.connect(data.port)
    for i in range(5):
        producer.sendall(produce(i, batch(bytes(900_000))))
        receive_frame(producer)
    for _ in range(10):
        evict(tmp_path / "t-0" / "00000000000000000000.log")
        reader = house.connect(data.port)
        reader.sendall(fetch(1, 0))
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        reader.close()
    eventually(lambda: data.core.counters()["connections_open"] == 1)
    data.core.close()


def test_producers_and_consumers_at_once_lose_nothing(data: DataHouse) -> None:
    count = 200

    def run(name: int) -> None:
        client = data.house.connect(data.port)
        for i in range(count):
            client.sendall(produce(i, batch(b"%d-%d" % (name, i))))
            base_offset(receive_frame(client))

    threads = [threading.Thread(target=run, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    consumer = data.house.connect(data.port)
    seen: list[bytes | None] = []
    while len(seen) < 4 * count:
        consumer.sendall(fetch(1, len(seen), max_wait_ms=600_000))
        seen += values(receive_frame(consumer))
    for thread in threads:
        thread.join()
    assert sorted(value or b"" for value in seen) == sorted(b"%d-%d" % (n, i) for n in range(4) for i in range(count))
    for name in range(4):
        mine = [value for value in seen if value is not None and value.startswith(b"%d-" % name)]
        assert mine == [b"%d-%d" % (name, i) for i in range(count)]


def test_a_drain_does_not_wait_for_long_polls(data: DataHouse) -> None:
    client = data.house.connect(data.port)
    client.sendall(fetch(1, 0, max_wait_ms=600_000))
    eventually(lambda: data.core.counters()["requests_parked"] == 1)
    assert data.core.drain(60_000)
    assert closed_by_server(client)
    assert data.core.counters()["connections_closed"]["drained"] == 1


def test_a_drain_waits_for_replication(data: DataHouse) -> None:
    data.partition.lead(1, 1, 2, 1, in_sync_followers=[2])
    client = data.house.connect(data.port)
    client.sendall(produce(1, batch(b"a")))
    eventually(lambda: data.core.counters()["requests_parked"] == 1)
    draining = threading.Thread(target=data.core.drain, args=(60_000,))
    draining.start()
    data.partition.follower_fetched(2, 1)
    assert base_offset(receive_frame(client)) == 0
    assert closed_by_server(client)
    draining.join()


def test_closing_with_parked_requests_is_clean(data: DataHouse) -> None:
    clients = [data.house.connect(data.port) for _ in range(5)]
    for client in clients:
        client.sendall(fetch(1, 0, max_wait_ms=600_000))
    eventually(lambda: data.core.counters()["requests_parked"] == 5)
    data.core.close()
    for client in clients:
        assert closed_by_server(client)
