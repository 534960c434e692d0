"""Frames in, replies out, through a real socket and the mailbox."""

from __future__ import annotations

import socket
import struct
import threading

import pytest

from .harness import (
    House,
    closed_by_server,
    eventually,
    frame,
    gather,
    receive_exactly,
    receive_frame,
    request,
    take_one,
)


def test_a_posted_request_is_answered(house: House) -> None:
    core, port = house.core()
    client = house.connect(port)
    client.sendall(request(7, b"hello"))
    token, listener, principal, host, peer_port, posted = take_one(core)
    assert (listener, principal, host, peer_port) == (0, 0, "127.0.0.1", client.getsockname()[1])
    assert frame(posted) == request(7, b"hello")
    core.reply(token, b"answer")
    assert receive_frame(client) == b"answer"


def test_a_frame_may_arrive_byte_by_byte(house: House) -> None:
    core, port = house.core()
    house.control(core)
    client = house.connect(port)
    for sent in (request(1, b"slow"), request(2, b"s" * 200)):
        for i in range(len(sent)):
            client.sendall(sent[i : i + 1])
        assert frame(receive_frame(client)) == sent
    assert core.counters()["receive_buffer_bytes"] == 0


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 11, 13, 4095, 4097])
def test_frames_may_be_cut_anywhere(house: House, cut: int) -> None:
    core, port = house.core()
    house.control(core)
    client = house.connect(port)
    sent = b"".join(request(i, bytes([i]) * (i * 37)) for i in range(40))
    received = threading.Thread(target=lambda: got.append(receive_exactly(client, len(sent))))
    got: list[bytes] = []
    received.start()
    for i in range(0, len(sent), cut):
        client.sendall(sent[i : i + cut])
    received.join()
    assert got == [sent]


def test_many_frames_in_one_write_are_answered_in_order(house: House) -> None:
    core, port = house.core()
    house.control(core)
    client = house.connect(port)
    sent = b"".join(request(i) for i in range(1_000))
    client.sendall(sent)
    assert receive_exactly(client, len(sent)) == sent
    assert core.counters()["requests"] == {3: 1_000}


def test_a_connection_has_one_posted_request_at_a_time(house: House) -> None:
    core, port = house.core()
    client = house.connect(port)
    other = house.connect(port)
    client.sendall(request(1) + request(2))
    first = take_one(core)
    other.sendall(request(3))
    assert frame(take_one(core)[5]) == request(3)
    core.reply(first[0], b"one")
    second = take_one(core)
    assert frame(second[5]) == request(2)
    core.reply(second[0], b"two")
    assert [receive_frame(client), receive_frame(client)] == [b"one", b"two"]


def test_a_request_without_an_answer_lets_the_next_one_through(house: House) -> None:
    core, port = house.core()
    client = house.connect(port)
    client.sendall(request(1) + request(2))
    core.reply(take_one(core)[0], None)
    core.reply(take_one(core)[0], b"second")
    assert receive_frame(client) == b"second"


def test_a_token_is_good_for_one_reply(house: House) -> None:
    core, port = house.core()
    client = house.connect(port)
    client.sendall(request(1))
    token = take_one(core)[0]
    core.reply(token, b"first")
    core.reply(token, b"again")
    core.close_connection(token, "too late")
    core.reply((1 << 64) - 1, b"nobody's")
    client.sendall(request(2))
    core.reply(take_one(core)[0], b"second")
    assert [receive_frame(client), receive_frame(client)] == [b"first", b"second"]


def test_large_frames_pass_both_ways(house: House) -> None:
    core, port = house.core()
    house.control(core)
    client = house.connect(port)
    sizes = [5_000_000, 70_000, 12, 300_000, 262_140, 65_536, 65_528, 9, 1_048_576, 2_097_152]
    sent = [request(i, bytes([i]) * size) for i, size in enumerate(sizes)]
    sender = threading.Thread(target=client.sendall, args=(b"".join(sent),))
    sender.start()
    for expected in sent:
        assert frame(receive_frame(client)) == expected
    sender.join()
    assert core.counters()["receive_buffer_bytes"] == 0


def test_a_slow_reader_gets_every_byte_and_holds_up_nobody(house: House) -> None:
    core, port = house.core()
    big = bytes(range(256)) * 80_000
    house.control(core, lambda core, taken: core.reply(taken[0], big if taken[5][4:8] == b"\0\0\0\1" else b"small"))
    slow = house.connect(port, receive_buffer=4096)
    slow.sendall(request(1))
    quick = house.connect(port)
    for _ in range(100):
        quick.sendall(request(2))
        assert receive_frame(quick) == b"small"
    assert receive_frame(slow) == big


def test_a_client_that_does_not_read_is_not_read(house: House) -> None:
    core, port = house.core()
    house.control(core, lambda core, taken: core.reply(taken[0], bytes(1_000_000)))
    client = house.connect(port, receive_buffer=4096)
    client.setblocking(False)
    sent = 0
    try:
        while sent < 100_000_000:
            sent += client.send(request(1, bytes(10_000)))
            eventually(lambda: core.counters()["mailbox_depth"] == 0)
    except BlockingIOError:
        pass
    assert sent < 100_000_000
    turns = core.counters()["turns"]
    posted = core.counters()["requests_posted"]
    assert posted < 50
    # A full connection must not keep the loop busy: it turns for its rest, not for the socket.
    other = house.connect(port)
    assert core.counters()["turns"] - turns < 1_000
    other.close()
    client.setblocking(True)
    assert len(receive_frame(client)) == 1_000_000


def test_a_parked_connection_with_more_to_read_does_not_spin(house: House) -> None:
    core, port = house.core()
    client = house.connect(port)
    client.sendall(request(1))
    first = take_one(core)
    client.sendall(request(2) * 1_000)
    eventually(lambda: core.counters()["bytes_in"] == len(request(1)) or core.counters()["turns"])
    before = core.counters()["turns"]
    neighbour = house.connect(port)
    neighbour.sendall(request(3))
    core.reply(take_one(core)[0], b"ok")
    receive_frame(neighbour)
    assert core.counters()["turns"] - before < 100
    core.reply(first[0], b"one")
    house.control(core)
    assert receive_frame(client) == b"one"
    assert receive_exactly(client, len(request(2)) * 1_000) == request(2) * 1_000


def test_a_full_mailbox_holds_requests_back_and_loses_none(house: House) -> None:
    core, port = house.core(mailbox_slots=2)
    clients = [house.connect(port) for _ in range(10)]
    for i, client in enumerate(clients):
        client.sendall(request(i) + request(100 + i))
    eventually(lambda: core.counters()["posts_stalled"] >= 8)
    assert core.counters()["mailbox_depth"] == 2
    house.control(core)
    for i, client in enumerate(clients):
        assert frame(receive_frame(client)) == request(i)
        assert frame(receive_frame(client)) == request(100 + i)


def test_a_frame_larger_than_the_mailbox_may_hold_still_passes(house: House) -> None:
    core, port = house.core(mailbox_max_bytes=1_000)
    house.control(core)
    clients = [house.connect(port) for _ in range(3)]
    sent = request(1, bytes(50_000))
    for client in clients:
        client.sendall(sent)
    for client in clients:
        assert frame(receive_frame(client)) == sent


def test_take_gives_no_more_than_asked_for_and_stays_readable(house: House) -> None:
    core, port = house.core()
    for i in range(5):
        house.connect(port).sendall(request(i))
    eventually(lambda: core.counters()["mailbox_depth"] == 5)
    assert len(core.take(2)) == 2
    house.control(core)
    eventually(lambda: core.counters()["mailbox_depth"] == 0)


def test_a_reply_may_name_the_principal_of_later_requests(house: House) -> None:
    core, port = house.core()
    client = house.connect(port)
    client.sendall(request(1) + request(2))
    first = take_one(core)
    assert first[2] == 0
    core.reply(first[0], b"authenticated", principal=42)
    assert take_one(core)[2] == 42


def test_a_reply_may_be_the_last_one(house: House) -> None:
    core, port = house.core()
    client = house.connect(port)
    client.sendall(request(1) + request(2))
    core.reply(take_one(core)[0], b"goodbye" * 100_000, close_after=True)
    assert receive_frame(client) == b"goodbye" * 100_000
    assert closed_by_server(client)
    assert core.counters()["connections_closed"]["by_control"] == 1


def test_a_muted_connection_is_answered_at_once_and_read_again_later(house: House) -> None:
    house.clock.hold()
    core, port = house.core()
    client = house.connect(port)
    client.sendall(request(1) + request(2))
    core.reply(take_one(core)[0], b"throttled", mute_ms=1_000)
    assert receive_frame(client) == b"throttled"
    neighbour = house.connect(port)
    neighbour.sendall(request(3))
    assert frame(take_one(core)[5]) == request(3)
    house.clock.advance(999)
    core.nudge()
    assert core.take() == []
    house.clock.advance(1)
    assert frame(take_one(core)[5]) == request(2)


def test_the_control_side_may_close_instead_of_answering(house: House) -> None:
    core, port = house.core()
    client = house.connect(port)
    client.sendall(request(1))
    core.close_connection(take_one(core)[0], "bad credentials ü")
    assert closed_by_server(client)
    found = gather(core.events)
    assert found == [("closed", "bad credentials ü", "127.0.0.1", client.getsockname()[1], 1)]


def test_ipv6_clients_are_served_and_named(house: House) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 on this machine")
    core, port = house.core(host="::1")
    client = house.connect(port, "::1")
    client.sendall(request(1))
    assert take_one(core)[3] == "::1"


def test_an_empty_host_listens_to_both_families(house: House) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 on this machine")
    core, port = house.core(host="")
    for host, named in (("127.0.0.1", "127.0.0.1"), ("::1", "::1")):
        house.connect(port, host).sendall(request(1))
        assert take_one(core)[3] == named


def test_several_network_threads_share_the_connections(house: House) -> None:
    core, port = house.core(network_threads=3)
    house.control(core)
    clients = [house.connect(port) for _ in range(9)]
    for i, client in enumerate(clients):
        client.sendall(request(i))
        assert frame(receive_frame(client)) == request(i)
    assert core.counters()["connections_open"] == 9


def test_tokens_of_several_threads_do_not_collide(house: House) -> None:
    core, port = house.core(network_threads=3)
    clients = [house.connect(port) for _ in range(6)]
    for i, client in enumerate(clients):
        client.sendall(request(i))
    taken = gather(core.take, lambda requests: len(requests) == 6)
    assert len({one[0] for one in taken}) == 6
    assert {one[0] >> 58 for one in taken} == {0, 1, 2}
    for one in taken:
        core.reply(one[0], one[5])
    for i, client in enumerate(clients):
        assert frame(receive_frame(client)) == request(i)


def test_answers_may_come_from_another_thread_in_any_order(house: House) -> None:
    core, port = house.core(network_threads=2)
    clients = [house.connect(port) for _ in range(20)]
    for i, client in enumerate(clients):
        client.sendall(request(i))
    taken = gather(lambda: core.take(3), lambda requests: len(requests) == 20)
    for one in reversed(taken):
        core.reply(one[0], struct.pack(">i", one[4]))
    for client in clients:
        assert receive_frame(client) == struct.pack(">i", client.getsockname()[1])
