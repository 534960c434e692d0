"""What a client may not do, and what it cannot make the broker hold."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys

import pytest

from kbroker._core.clock import BrokerClock
from kbroker._core.core import Core

from .harness import House, closed_by_server, eventually, frame, gather, receive_frame, request, take_one

ON_TLS = "a TLS ClientHello on a PLAINTEXT listener: set security.protocol=PLAINTEXT on the client"
ON_HTTP = "an HTTP request: this port serves only the Kafka protocol"
OUT_OF_DESCRIPTORS = """
import os, resource, sys
from kbroker._core.clock import BrokerClock
from kbroker._core.core import Core

core = Core(BrokerClock(), node_id=1, portable=sys.argv[1] == "True")
port = core.listen("127.0.0.1", 0)
core.start()
open_now = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 4, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
print(port, flush=True)
seen = []
while not seen:
    seen = core.events()
turns = core.counters()["turns"]
print(seen[0][0], seen[0][1], flush=True)
sys.stdin.readline()
print(core.counters()["turns"] - turns, flush=True)
while core.counters()["connections_accepted"] < 10:
    pass
print("accepted", flush=True)
core.close()
"""


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 7, 1001, 2**31 - 1])
def test_an_impossible_size_closes_the_connection(house: House, size: int) -> None:
    core, port = house.core(socket_request_max_bytes=1000)
    client = house.connect(port)
    client.sendall(struct.pack(">i", size))
    assert closed_by_server(client)
    seen = gather(core.events)
    kind, reason, host, peer_port, count = seen[0]
    assert (kind, host, peer_port, count) == ("closed", "127.0.0.1", client.getsockname()[1], 1)
    assert f"a frame claims {size} bytes" in reason
    assert core.counters()["connections_closed"]["frame_size"] == 1


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", ON_TLS),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", ON_HTTP),
        (b"POST /topics HTTP/1.1\r\n\r\n", ON_HTTP),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ON_HTTP),
    ],
)
def test_tls_and_http_on_a_plaintext_port_are_named_in_the_reason(house: House, sent: bytes, reason: str) -> None:
    core, port = house.core()
    client = house.connect(port)
    client.sendall(sent)
    assert closed_by_server(client)
    assert gather(core.events)[0][1] == reason
    assert core.counters()["connections_closed"]["frame_size"] == 1


def test_frames_before_an_impossible_one_are_answered(house: House) -> None:
    core, port = house.core()
    house.control(core)
    client = house.connect(port)
    client.sendall(request(1) + request(2) + b"\xff\xff\xff\xff")
    assert frame(receive_frame(client)) == request(1)
    assert frame(receive_frame(client)) == request(2)
    assert closed_by_server(client)


def test_a_claimed_size_is_not_believed(house: House) -> None:
    core, port = house.core()
    clients = [house.connect(port) for _ in range(50)]
    for client in clients:
        client.sendall(struct.pack(">i", 100_000_000) + bytes(100))
    eventually(lambda: core.counters()["bytes_in"] == 50 * 104)
    assert core.counters()["receive_buffer_bytes"] <= 50 * 4096
    for client in clients:
        client.sendall(bytes(20_000))
    eventually(lambda: core.counters()["bytes_in"] == 50 * 20_104)
    assert core.counters()["receive_buffer_bytes"] <= 50 * 65_536
    for client in clients:
        client.close()
    eventually(lambda: core.counters()["connections_open"] == 0)
    assert core.counters()["receive_buffer_bytes"] == 0


def test_an_idle_connection_holds_no_buffer(house: House) -> None:
    core, port = house.core()
    house.control(core)
    client = house.connect(port)
    for size in (10, 300_000, 2_000_000):
        client.sendall(request(1, bytes(size)))
        receive_frame(client)
    eventually(lambda: core.counters()["receive_buffer_bytes"] == 0)


def test_equal_events_are_counted_not_repeated(house: House) -> None:
    core, port = house.core()
    for _ in range(5):
        client = house.connect(port)
        client.sendall(struct.pack(">i", -5))
        assert closed_by_server(client)
    seen = gather(core.events, lambda events: sum(event[4] for event in events) == 5)
    assert len({event[1] for event in seen}) == 1


def test_an_idle_connection_is_closed_when_its_time_is_up(house: House) -> None:
    house.clock.hold()
    core, port = house.core(max_idle_ms=60_000)
    house.control(core)
    idle, lively = house.connect(port), house.connect(port)
    eventually(lambda: core.counters()["connections_open"] == 2)
    house.clock.advance(59_999)
    lively.sendall(request(1))
    receive_frame(lively)
    house.clock.advance(1)
    assert closed_by_server(idle)
    lively.sendall(request(2))
    assert frame(receive_frame(lively)) == request(2)
    assert core.counters()["connections_closed"]["idle"] == 1


def test_a_request_in_progress_keeps_its_connection(house: House) -> None:
    house.clock.hold()
    core, port = house.core(max_idle_ms=1_000)
    waiting, idle = house.connect(port), house.connect(port)
    waiting.sendall(request(1))
    posted = take_one(core)
    eventually(lambda: core.counters()["connections_open"] == 2)
    house.clock.advance(5_000)
    assert closed_by_server(idle)
    core.reply(posted[0], b"late but welcome")
    assert receive_frame(waiting) == b"late but welcome"
    house.clock.advance(1_000)
    assert closed_by_server(waiting)


def test_a_reader_that_never_reads_is_closed_as_idle(house: House) -> None:
    house.clock.hold()
    core, port = house.core(max_idle_ms=1_000)
    client = house.connect(port, receive_buffer=4096)
    client.sendall(request(1))
    core.reply(take_one(core)[0], bytes(20_000_000))
    eventually(lambda: core.counters()["bytes_out"] > 0)
    seen = -1
    while seen != (seen := core.counters()["bytes_out"]):
        core.nudge()
    house.clock.advance(1_000)
    eventually(lambda: core.counters()["connections_closed"]["idle"] == 1)


def test_an_address_may_have_only_so_many_connections(house: House) -> None:
    core, port = house.core(max_connections_per_ip=3)
    house.control(core)
    welcome = [house.connect(port) for _ in range(3)]
    eventually(lambda: core.counters()["connections_open"] == 3)
    assert closed_by_server(house.connect(port))
    assert core.counters()["connections_closed"]["too_many_from_address"] == 1
    assert core.events()[0][:2] == ("refused", "max.connections.per.ip is reached")
    welcome.pop().close()
    eventually(lambda: core.counters()["connections_open"] == 2)
    client = house.connect(port)
    client.sendall(request(1))
    assert frame(receive_frame(client)) == request(1)


def test_connections_beyond_the_limit_wait_their_turn(house: House) -> None:
    core, port = house.core(max_connections=2, network_threads=2)
    house.control(core)
    first, second = house.connect(port), house.connect(port)
    eventually(lambda: core.counters()["connections_open"] == 2)
    third = house.connect(port)
    third.sendall(request(3))
    eventually(lambda: any(event[0] == "accept_paused" for event in core.events()))
    turns = core.counters()["turns"]
    second.sendall(request(2))
    assert frame(receive_frame(second)) == request(2)
    assert core.counters()["turns"] - turns < 200
    assert core.counters()["connections_open"] == 2
    first.close()
    assert frame(receive_frame(third)) == request(3)


def test_running_out_of_descriptors_pauses_accepting(house: House) -> None:
    command = [sys.executable, "-c", OUT_OF_DESCRIPTORS, str(house.portable)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        port = int(server.stdout.readline())
        clients = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(10)]
        assert server.stdout.readline().strip() == "accept_paused out of file descriptors or socket memory"
        server.stdin.write("\n")
        server.stdin.flush()
        assert int(server.stdout.readline()) < 1_000
        for client in clients:
            client.close()
        assert server.stdout.readline().strip() == "accepted"
        assert server.wait(30) == 0


def test_an_idle_time_of_zero_leaves_a_request_in_progress_alone(house: House) -> None:
    core, port = house.core(max_idle_ms=0)
    client = house.connect(port)
    client.sendall(request(1))
    taken = take_one(core)
    core.reply(taken[0], taken[5])
    assert receive_frame(client) == taken[5]
    assert closed_by_server(client)


def test_a_full_house_closes_with_all_its_threads(house: House) -> None:
    core, port = house.core(network_threads=2, max_connections=1)
    house.connect(port).close()  # the first thread's, so that the next one is the second's
    eventually(lambda: core.counters()["connections_closed"]["peer_closed"] == 1)
    inside, waiting = house.connect(port), house.connect(port)
    gather(core.events)  # someone waits for room: whoever leaves rings the first thread
    core.close()
    assert closed_by_server(inside)
    assert closed_by_server(waiting)


def test_an_address_may_have_its_own_limit(house: House) -> None:
    core, port = house.core(max_connections_per_ip=1, per_ip_overrides=[(b"\x7f\0\0\x01", 2)])
    house.control(core)
    welcome = [house.connect(port) for _ in range(2)]
    eventually(lambda: core.counters()["connections_open"] == 2)
    assert closed_by_server(house.connect(port))
    for client in welcome:
        client.close()
    eventually(lambda: core.counters()["connections_open"] == 0)
    again = [house.connect(port) for _ in range(2)]  # the limit stays when nobody from there is connected
    for client in again:
        client.sendall(request(1))
        assert frame(receive_frame(client)) == request(1)


def test_an_address_may_be_let_in_alone(house: House) -> None:
    core, port = house.core(host="", max_connections_per_ip=0, per_ip_overrides=[(bytes(15) + b"\x01", 5)])
    house.control(core)
    assert closed_by_server(house.connect(port))
    client = house.connect(port, host="::1")
    client.sendall(request(1))
    assert frame(receive_frame(client)) == request(1)


def test_connections_faster_than_their_rate_wait_in_the_backlog(house: House) -> None:
    core, port = house.core(max_connection_creation_rate=2)
    house.control(core)
    clients = [house.connect(port) for _ in range(22)]  # a window of ten seconds holds 20
    for i, client in enumerate(clients):
        client.sendall(request(i))
    for i, client in enumerate(clients[:20]):
        assert frame(receive_frame(client)) == request(i)
    assert ("accept_paused", "max.connection.creation.rate is reached") in [event[:2] for event in gather(core.events)]
    for i, client in enumerate(clients[20:], 20):
        assert frame(receive_frame(client)) == request(i)
    assert core.counters()["connections_closed"]["too_many_from_address"] == 0


def test_what_is_not_an_address_is_refused() -> None:
    with pytest.raises(ValueError, match="4 or 16 bytes"):
        Core(BrokerClock(), node_id=1, per_ip_overrides=[(b"abc", 1)])


def test_limits_that_change_hold_for_whoever_comes_next(house: House) -> None:
    core, port = house.core(max_connections=2, network_threads=2)
    held = [house.connect(port) for _ in range(2)]
    eventually(lambda: core.counters()["connections_open"] == 2)
    waiting = house.connect(port)
    core.limit_connections(10, 3, [], 2**31 - 1)  # the one that waits is let in; those before it were counted
    eventually(lambda: core.counters()["connections_open"] == 3)
    assert closed_by_server(house.connect(port))
    core.limit_connections(10, 0, [(b"\x7f\0\0\x01", 4)], 2**31 - 1)
    house.connect(port)
    eventually(lambda: core.counters()["connections_open"] == 4)
    core.limit_connections(10, 1, [], 2**31 - 1)  # the override is gone; nobody is turned out
    assert closed_by_server(house.connect(port))
    assert core.counters()["connections_open"] == 4
    for one in (*held, waiting):
        one.close()
    eventually(lambda: core.counters()["connections_open"] == 1)
    assert core.counters()["connections_closed"]["too_many_from_address"] == 2
