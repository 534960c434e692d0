"""Connections and cores come and go, and leave nothing behind."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading

import pytest

from kbroker._core.clock import BrokerClock
from kbroker._core.core import Core

from .harness import House, closed_by_server, eventually, frame, receive_frame, request, take_one


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def network_threads() -> int:
    return sum(thread.name.startswith("kbroker-net") for thread in threading.enumerate())


def refuses(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) != 0


def test_a_burst_of_a_thousand_connections_is_accepted(house: House) -> None:
    core, port = house.core(network_threads=2)
    house.control(core)
    clients = []
    for _ in range(1_000):
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(("127.0.0.1", port))
        clients.append(client)
    try:
        eventually(lambda: core.counters()["connections_open"] == 1_000)
        for i, client in enumerate(clients):
            client.setblocking(True)
            client.settimeout(30)
            client.sendall(request(i))
        for i, client in enumerate(clients):
            assert frame(receive_frame(client)) == request(i)
    finally:
        for client in clients:
            client.close()
    eventually(lambda: core.counters()["connections_open"] == 0)
    assert core.counters()["connections_closed"]["peer_closed"] == 1_000


def test_a_half_closed_client_still_gets_its_answers(house: House) -> None:
    core, port = house.core()
    client = house.connect(port)
    client.sendall(request(1) + request(2))
    client.shutdown(socket.SHUT_WR)
    core.reply(take_one(core)[0], b"one")
    core.reply(take_one(core)[0], b"two" * 1_000_000)
    assert [receive_frame(client), receive_frame(client)] == [b"one", b"two" * 1_000_000]
    assert closed_by_server(client)
    eventually(lambda: core.counters()["connections_closed"]["peer_closed"] == 1)


def test_a_client_that_ends_within_a_frame_is_closed(house: House) -> None:
    core, port = house.core()
    client = house.connect(port)
    client.sendall(request(1, bytes(1_000))[:-1])
    client.shutdown(socket.SHUT_WR)
    assert closed_by_server(client)
    assert core.counters()["requests"] == {}


def test_a_reset_connection_is_dropped_with_its_request(house: House) -> None:
    core, port = house.core()
    client = house.connect(port)
    client.sendall(request(1))
    posted = take_one(core)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    eventually(lambda: core.counters()["connections_open"] == 0)
    assert core.counters()["connections_closed"]["peer_reset"] == 1
    core.reply(posted[0], b"to nobody")
    following = house.connect(port)  # it takes the slot, and must not get the other's answer
    following.sendall(request(2))
    core.reply(take_one(core)[0], b"mine")
    assert receive_frame(following) == b"mine"


def test_a_reset_is_noticed_while_a_further_request_waits_to_be_read(house: House) -> None:
    core, port = house.core()
    client = house.connect(port)
    client.sendall(request(1))
    take_one(core)
    before = core.counters()["turns"]
    client.sendall(request(2))
    eventually(lambda: core.counters()["turns"] > before)  # from then on the loop does not wait for bytes to read
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    eventually(lambda: core.counters()["connections_open"] == 0)
    assert core.counters()["connections_closed"]["peer_reset"] == 1


def test_a_drain_finishes_what_was_begun(house: House) -> None:
    core, port = house.core(network_threads=2)
    busy, *idle = (house.connect(port) for _ in range(4))  # two on each thread: both threads have one to close
    busy.sendall(request(1) + request(2))
    posted = take_one(core)
    eventually(lambda: core.counters()["connections_open"] == 4)
    done: list[bool] = []
    draining = threading.Thread(target=lambda: done.append(core.drain(30_000)))
    draining.start()
    assert all(closed_by_server(one) for one in idle)
    eventually(lambda: refuses(port))
    core.reply(posted[0], bytes(5_000_000))
    assert receive_frame(busy) == bytes(5_000_000)
    assert closed_by_server(busy)
    draining.join()
    assert done == [True]
    assert core.counters()["connections_open"] == 0


def test_a_drain_sends_its_replies_to_clients_that_have_asked_for_more(house: House) -> None:
    core, port = house.core()
    client = house.connect(port)
    client.sendall(request(1))
    posted = take_one(core)
    client.sendall(request(2))  # nobody reads it any more: to close now would reset
    done: list[bool] = []
    draining = threading.Thread(target=lambda: done.append(core.drain(30_000)))
    draining.start()
    eventually(lambda: refuses(port))
    core.reply(posted[0], bytes(5_000_000))
    eventually(lambda: core.counters()["bytes_out"] > 0)
    client.sendall(request(3))
    assert receive_frame(client) == bytes(5_000_000)
    draining.join()
    assert done == [True]


def test_a_refused_client_gets_the_answers_before_it(house: House) -> None:
    core, port = house.core()
    client = house.connect(port)
    client.sendall(request(1))
    posted = take_one(core)
    client.sendall(struct.pack(">i", -1) + bytes(100_000))
    core.reply(posted[0], bytes(5_000_000), close_after=True)
    eventually(lambda: core.counters()["bytes_out"] > 0)
    assert receive_frame(client) == bytes(5_000_000)
    eventually(lambda: core.counters()["connections_closed"]["by_control"] == 1)


def test_a_drain_gives_up_after_its_time(house: House) -> None:
    core, port = house.core()
    client = house.connect(port)
    client.sendall(request(1))
    take_one(core)
    assert core.drain(10) is False
    core.close()
    assert closed_by_server(client)


def test_a_drain_without_connections_is_quick(house: House) -> None:
    core, _ = house.core(network_threads=3)
    assert core.drain(60_000)


def test_closing_with_requests_in_flight_leaves_nothing_behind(house: House) -> None:
    descriptors, threads = open_descriptors(), network_threads()
    core, port = house.core(network_threads=2, mailbox_slots=3)
    clients = [house.connect(port) for _ in range(8)]
    for client in clients:
        client.sendall(request(1, bytes(100_000)) + request(2, bytes(10))[:-2])
    eventually(lambda: core.counters()["posts_stalled"] >= 5)
    taken = core.take(2)
    core.reply(taken[0][0], bytes(10_000_000))
    core.close()
    core.close()
    core.reply(taken[1][0], b"too late")
    for client in clients:
        client.close()
    assert open_descriptors() == descriptors
    assert network_threads() == threads


def test_a_core_that_never_started_leaves_nothing_behind(house: House) -> None:
    descriptors = open_descriptors()
    core, _ = house.core(start=False)
    core.close()
    unused = Core(BrokerClock(), node_id=1, portable=house.portable)
    del unused
    assert open_descriptors() == descriptors


def test_every_descriptor_is_close_on_exec(house: House) -> None:
    before = set(os.listdir("/proc/self/fd"))
    core, port = house.core(network_threads=2)
    clients = [house.connect(port) for _ in range(3)]
    eventually(lambda: core.counters()["connections_open"] == 3)
    ours = {int(fd) for fd in set(os.listdir("/proc/self/fd")) - before}
    for fd in ours - {client.fileno() for client in clients}:
        try:
            assert not os.get_inheritable(fd)
        except OSError:
            continue  # the directory that was listed


def test_accepted_sockets_send_without_delay(house: House) -> None:
    core, port = house.core()
    client = house.connect(port)
    eventually(lambda: core.counters()["connections_open"] == 1)
    checked = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            copy = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue  # not a socket, or the directory that was listed
        with copy:
            try:
                ours = copy.getpeername() == client.getsockname()
            except OSError:
                continue  # a listening one
            if ours:
                checked += 1
                assert copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                assert copy.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                assert copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 300
                assert copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == 4
    assert checked == 1


def test_a_program_may_end_without_closing(house: House) -> None:
    program = (
        "import socket, sys\n"
        "from kbroker._core.clock import BrokerClock\n"
        "from kbroker._core.core import Core\n"
        "core = Core(BrokerClock(), node_id=1, network_threads=2, portable=sys.argv[1] == 'True')\n"
        "port = core.listen('127.0.0.1', 0)\n"
        "core.start()\n"
        "client = socket.create_connection(('127.0.0.1', port))\n"
        "client.sendall(bytes(3))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(house.portable)], capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_closed_core_says_so(house: House) -> None:
    core, _ = house.core()
    core.close()
    for call in (core.take, core.counters, core.fileno, lambda: core.listen("127.0.0.1", 0), lambda: core.drain(1)):
        with pytest.raises(RuntimeError, match="closed"):
            call()
    assert core.events() == []


def test_a_port_has_one_listener(house: House) -> None:
    _, port = house.core()
    other = Core(BrokerClock(), node_id=2, portable=house.portable)
    with pytest.raises(OSError, match="in use"):
        other.listen("127.0.0.1", port)
    other.close()


def test_two_cores_live_side_by_side(house: House) -> None:
    one, one_port = house.core()
    two, two_port = house.core()
    house.control(one, lambda core, taken: core.reply(taken[0], b"one"))
    house.control(two, lambda core, taken: core.reply(taken[0], b"two"))
    to_one, to_two = house.connect(one_port), house.connect(two_port)
    to_one.sendall(request(1))
    to_two.sendall(request(1))
    assert (receive_frame(to_one), receive_frame(to_two)) == (b"one", b"two")
    one.drain(30_000)
    to_two.sendall(request(2))
    assert receive_frame(to_two) == b"two"


def test_a_listener_may_be_added_while_running(house: House) -> None:
    core, _ = house.core()
    second = core.listen("127.0.0.1", 0)
    client = house.connect(second)
    client.sendall(request(1))
    assert take_one(core)[1] == 1


def test_connections_come_and_go_without_leaking(house: House) -> None:
    core, port = house.core()
    house.control(core)
    for i in range(300):
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            client.sendall(request(i))
            assert frame(receive_frame(client)) == request(i)
    eventually(lambda: core.counters()["connections_open"] == 0)
    assert core.counters()["connections_accepted"] == 300


@pytest.mark.parametrize("threads", [0, 65])
def test_the_number_of_threads_is_bounded(threads: int) -> None:
    with pytest.raises(ValueError, match=r"num\.network\.threads"):
        Core(BrokerClock(), node_id=1, network_threads=threads)
