"""The relief thread: connections with large requests move to it while their own thread is full, and come back."""

from __future__ import annotations

import gc
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kbroker._core.log.partition_log import PartitionLog

from .harness import House, closed_by_server, eventually, receive_frame, request, take_one
from .test_data import DataHouse, base_offset, batch, fetch, produce, values

CLIENTS = 4
LARGE = batch(bytes(512 * 1024))


@pytest.fixture(params=["epoll", "poll"])
def house(request: pytest.FixtureRequest) -> Iterator[House]:
    built = House(request.param == "poll")
    yield built
    built.close()


def relieved(house: House, **settings: int) -> DataHouse:
    return DataHouse(house, PartitionLog.in_memory(house.clock, {"retention.bytes": "1"}), relief_thread=1, **settings)


class Load:
    """Clients in threads of their own that keep `depth` requests under way until stopped."""

    def __init__(self, data: DataHouse, frame: bytes, depth: int = 4) -> None:
        self.failures: list[BaseException] = []
        self.replies = 0
        self._frame, self._depth = frame, depth
        self._stopping = threading.Event()
        self.clients = [data.house.connect(data.port) for _ in range(CLIENTS)]
        self._threads = [threading.Thread(target=self._run, args=(client,)) for client in self.clients]
        for thread in self._threads:
            thread.start()

    def _run(self, client: socket.socket) -> None:
        try:
            client.sendall(self._frame * (self._depth - 1))
            while not self._stopping.is_set():
                client.sendall(self._frame)
                receive_frame(client)
                self.replies += 1
            for _ in range(self._depth - 1):
                receive_frame(client)
        except (OSError, EOFError) as problem:
            self.failures.append(problem)

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()


def moves(data: DataHouse) -> int:
    return data.core.counters()["connections_moved"]


def sleeps(name: str) -> int:
    """How often the thread has gone to sleep since it started."""
    (thread,) = (thread for thread in threading.enumerate() if thread.name == name)
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def relief_thread_sleeps() -> bool:
    """Whether the relief thread was not woken while the other thread woke twice by its timer, which takes a second.

    With connections the relief thread has a timer of 50 ms.
    """
    relief, regular = sleeps("kbroker-net-1"), sleeps("kbroker-net-0")
    eventually(lambda: sleeps("kbroker-net-0") >= regular + 2)
    return sleeps("kbroker-net-1") == relief


def under_load(data: DataHouse, frame: bytes, until: Callable[[Load], object]) -> Load:
    load = Load(data, frame)
    try:
        eventually(lambda: load.failures or until(load))
    finally:
        load.stop()
    return load


def test_connections_with_large_requests_move_while_their_thread_is_full_and_come_back(house: House) -> None:
    data = relieved(house)
    load = under_load(data, produce(1, LARGE, acks=1), lambda _: moves(data) > 0)
    assert not load.failures
    eventually(relief_thread_sleeps)  # each one that left has returned
    assert data.core.counters()["connections_open"] == CLIENTS
    for client in load.clients:
        client.sendall(produce(2, batch(b"x")))
        base_offset(receive_frame(client))


def test_connections_with_small_requests_stay_with_a_full_thread(house: House) -> None:
    data = relieved(house)
    load = under_load(data, produce(1, batch(b"small"), acks=1), lambda load: load.replies > 20_000)
    assert not load.failures
    assert moves(data) == 0


def test_a_core_without_a_relief_thread_moves_nothing(house: House) -> None:
    data = DataHouse(house, PartitionLog.in_memory(house.clock, {}), network_threads=2)
    load = under_load(data, produce(1, LARGE, acks=1), lambda load: load.replies > 100)
    assert not load.failures
    assert moves(data) == 0


def test_replies_keep_their_order_and_their_bytes_while_connections_move(house: House) -> None:
    data = relieved(house, move_always=1)
    clients = [house.connect(data.port) for _ in range(6)]
    rounds = 40
    for number in range(rounds):
        for client in clients:  # a whole frame and the first half of the next one: the rest follows a move
            half = produce(2 * number + 1, batch(b"%d" % number * 700))
            client.sendall(produce(2 * number, batch(b"a")) + half[: len(half) // 2])
        for client in clients:
            assert struct.unpack(">i", receive_frame(client)[:4]) == (2 * number,)
        for client in clients:
            half = produce(2 * number + 1, batch(b"%d" % number * 700))
            client.sendall(half[len(half) // 2 :])
            assert struct.unpack(">i", receive_frame(client)[:4]) == (2 * number + 1,)
    assert moves(data) > rounds
    clients[0].sendall(fetch(1, 0))
    fetched = values(receive_frame(clients[0]))
    assert len(fetched) == 2 * rounds * len(clients)
    assert fetched.count(b"7" * 700) == len(clients)
    assert data.core.counters()["request_bytes_held"] == 0
    assert data.core.counters()["receive_buffer_bytes"] == 0


def test_a_long_poll_is_answered_by_the_thread_that_has_its_connection(house: House) -> None:
    data = relieved(house, move_always=1)
    reader, writer = house.connect(data.port), house.connect(data.port)
    for offset in range(50):
        reader.sendall(fetch(offset, offset, max_wait_ms=20_000))
        eventually(lambda: data.core.counters()["requests_parked_now"] == 1)
        writer.sendall(produce(1, batch(b"%d" % offset)))
        assert base_offset(receive_frame(writer)) == offset
        assert values(receive_frame(reader)) == [b"%d" % offset]


def read_to_the_end(client: socket.socket) -> None:
    """Returns when the server has closed the connection; a connection that stays open times out."""
    with suppress(ConnectionResetError):
        while client.recv(1 << 20):
            pass


def test_a_drain_finds_connections_that_are_on_their_way(house: House) -> None:
    for _ in range(10):
        data = relieved(house, move_always=1)
        load = Load(data, produce(1, batch(b"x"), acks=1))
        eventually(lambda load=load: load.replies > 100)  # type: ignore[misc]
        assert data.core.drain(10_000)
        assert data.core.counters()["connections_open"] == 0
        load.stop()
        for client in load.clients:
            read_to_the_end(client)


def close_under_load(house: House) -> None:
    data = relieved(house, move_always=1)
    load = Load(data, produce(1, batch(bytes(20_000)), acks=1))
    eventually(lambda: load.replies > 100)
    data.core.close()
    load.stop()
    for client in load.clients:
        client.close()


def test_closing_gives_back_connections_that_are_on_their_way(house: House) -> None:
    gc.collect()  # descriptors of earlier tests
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        close_under_load(house)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_addresses_are_counted_through_moves(house: House) -> None:
    data = relieved(house, move_always=1, max_connections_per_ip=2)
    first, second = house.connect(data.port), house.connect(data.port)
    for _ in range(20):
        for client in (first, second):
            client.sendall(produce(1, batch(b"x")))
            base_offset(receive_frame(client))
    assert closed_by_server(house.connect(data.port))
    first.close()
    eventually(lambda: data.core.counters()["connections_open"] == 1)
    third = house.connect(data.port)
    third.sendall(produce(1, batch(b"x")))
    base_offset(receive_frame(third))


def test_posted_requests_are_answered_after_a_move(house: House) -> None:
    core, port = house.core(relief_thread=True, move_always=True)
    house.control(core)
    clients = [house.connect(port) for _ in range(5)]
    for number in range(50):
        for client in clients:
            client.sendall(request(number, bytes(number)))
        for client in clients:
            assert receive_frame(client) == request(number, bytes(number))[4:]
    assert core.counters()["connections_moved"] > 50


def test_a_relief_thread_without_connections_is_not_woken(house: House) -> None:
    house.core(relief_thread=True)
    eventually(relief_thread_sleeps)


def test_an_idle_relief_thread_leaves_the_memory_for_replies_to_the_others(house: House) -> None:
    core, port = house.core(relief_thread=True, reply_bytes_max=20_000_000)
    readers = [house.connect(port, receive_buffer=4096) for _ in range(2)]
    for number, reader in enumerate(readers):
        reader.sendall(request(number))
        core.reply(take_one(core)[0], bytes(8_000_000))
        eventually(lambda number=number: core.counters()["reply_bytes_held"] > (number + 1) * 7_000_000)  # type: ignore[misc]
    assert [len(receive_frame(reader)) for reader in readers] == [8_000_000] * 2
