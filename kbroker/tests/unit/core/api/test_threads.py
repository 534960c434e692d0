"""Two network threads of one broker: dispatch runs without the GIL, so these really overlap."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from kbroker._core.api.direct import DirectCaller
from kbroker.protocol import codec
from kbroker.tests.unit.core.api.given import (
    APIS,
    BODIES,
    Node,
    ask,
    batch,
    fetch_reply,
    fetch_request,
    of,
    produce_request,
    values_of,
)

COUNT = 3000
PATIENCE_S = 60.0


def await_reply(caller: DirectCaller) -> bytes:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = caller.collect()
        if found is not None:
            return found[1]
        time.sleep(0)
    raise AssertionError("a wake-up was lost")


def test_no_wake_up_is_lost_between_threads(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.clock.advance(0)
    partitions = node.topic("t", partitions=2)
    producer = DirectCaller(node.clock, node.view, APIS, BODIES, neighbour=node.calls)
    failures: list[object] = []

    def produce() -> None:
        for i in range(COUNT):
            frame = codec.encode_request(produce_request([(i % 2, batch(b"%d" % i))], acks=1), 9, 7, "test")
            outcome = producer.call(frame)
            if outcome[0] != "READY":
                failures.append(outcome)

    thread = threading.Thread(target=produce)
    thread.start()
    got: list[list[int]] = [[], []]
    session, epoch = 0, 0
    asks = [of("t", ask(0), ask(1))]
    # The held clock never reaches the deadline: only a wake-up answers a parked fetch.
    while len(got[0]) + len(got[1]) < COUNT:
        request = fetch_request(asks, max_wait_ms=1000, session_id=session, session_epoch=epoch)
        outcome, reply, _ = node.send(request, 12)
        response = fetch_reply(reply if outcome == "READY" else await_reply(node.calls), 12)
        assert response.error_code == 0
        session, epoch = response.session_id, epoch + 1
        moved = []
        for topic in response.responses:
            for partition in topic.partitions:
                values = [int(value or b"") for value in values_of(partition.records)]
                got[partition.partition_index] += values
                if values:
                    moved.append(ask(partition.partition_index, len(got[partition.partition_index])))
        asks = [of("t", *moved)]
    thread.join()
    assert not failures
    assert got == [list(range(0, COUNT, 2)), list(range(1, COUNT, 2))]
    assert [partition.high_watermark for partition in partitions] == [COUNT // 2, COUNT // 2]


def test_tables_are_replaced_while_threads_look_into_them(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.topic("t")
    stop = threading.Event()

    def publish() -> None:
        while not stop.is_set():
            node.publish()

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        for _ in range(2000):
            assert node.produce([(0, batch())], acks=1).responses[0].partition_responses[0].error_code == 0
    finally:
        stop.set()
        thread.join()


def test_leadership_moves_while_requests_wait(tmp_path: Path) -> None:
    node = Node(tmp_path)
    (partition,) = node.topic("t")
    stop = threading.Event()

    def elect() -> None:
        epoch = 1
        while not stop.is_set():
            partition.follow(2, epoch)
            partition.lead(1, epoch + 1, 1, 1)
            epoch += 2

    thread = threading.Thread(target=elect)
    thread.start()
    try:
        for slot in range(500):
            if node.send(fetch_request([of("t", ask())], max_wait_ms=1000), 10, slot)[0] == "PARKED":
                await_reply(node.calls)
    finally:
        stop.set()
        thread.join()
