"""Whatever bytes a client sends, in whatever pieces: frames come out whole and in order, or the connection ends."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbroker._core.clock import BrokerClock
from kbroker._core.core import Core
from kbroker.tests.unit.net.harness import House, frame, receive_exactly, receive_frame, request

SETTINGS = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
SIZES = st.one_of(
    st.integers(0, 200), st.integers(3_900, 4_300), st.sampled_from([65_527, 65_528, 65_529, 262_140, 400_000])
)


@pytest.fixture(scope="module", params=["epoll", "poll", "moving"])
def served(request: pytest.FixtureRequest) -> Iterator[tuple[Core, int, House]]:
    house = House(request.param == "poll", moving=request.param == "moving")
    core, port = house.core(network_threads=2, socket_request_max_bytes=500_000)
    house.control(core)
    yield core, port, house
    house.close()


def connect(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=30)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


@SETTINGS
@given(sizes=st.lists(SIZES, min_size=1, max_size=12), cuts=st.lists(st.integers(1, 300_000), min_size=1, max_size=20))
def test_frames_come_out_as_they_went_in(served: tuple[Core, int, House], sizes: list[int], cuts: list[int]) -> None:
    _, port, _ = served
    sent = b"".join(request(i, bytes([i]) * size) for i, size in enumerate(sizes))

    def send(client: socket.socket) -> None:
        at = 0
        for i in range(len(sent)):
            if at >= len(sent):
                return
            client.sendall(sent[at : at + cuts[i % len(cuts)] + (i // len(cuts)) * 1_000])
            at += cuts[i % len(cuts)] + (i // len(cuts)) * 1_000

    with connect(port) as client:
        sender = threading.Thread(target=send, args=(client,))
        sender.start()
        received = receive_exactly(client, len(sent))
        sender.join()
    assert received == sent


@SETTINGS
@given(garbage=st.binary(min_size=1, max_size=400), good=st.integers(0, 3))
def test_garbage_ends_its_own_connection_and_no_other(
    served: tuple[Core, int, House], garbage: bytes, good: int
) -> None:
    core, port, _ = served
    with connect(port) as hostile, connect(port) as witness:
        hostile.sendall(b"".join(request(i) for i in range(good)) + garbage)
        hostile.shutdown(socket.SHUT_WR)
        for i in range(good):
            assert frame(receive_frame(hostile)) == request(i)
        try:
            while hostile.recv(4096):
                pass
        except ConnectionResetError:
            pass
        witness.sendall(request(77, b"still here"))
        assert frame(receive_frame(witness)) == request(77, b"still here")
    assert core.counters()["receive_buffer_bytes"] < 10_000_000


@SETTINGS
@given(size=st.integers(-(2**31), 2**31 - 1), body=st.binary(max_size=100))
def test_a_claimed_size_costs_no_memory(served: tuple[Core, int, House], size: int, body: bytes) -> None:
    core, port, _ = served
    with connect(port) as client:
        client.sendall(struct.pack(">i", size) + body)
        client.shutdown(socket.SHUT_WR)
        try:
            while client.recv(4096):
                pass
        except ConnectionResetError:
            pass
    assert core.counters()["receive_buffer_bytes"] <= 1_100_000


def test_settings_are_checked_where_they_enter() -> None:
    with pytest.raises(ValueError, match="slots"):
        Core(BrokerClock(), node_id=1, mailbox_slots=0)
