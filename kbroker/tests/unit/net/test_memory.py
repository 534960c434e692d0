"""What all clients together may make the broker hold, and who gives way when that is reached."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

import pytest

from kbroker._core.core import Core

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


def begin(client: socket.socket, claimed: int, sent: int) -> None:
    """The beginning of a frame, and no more of it."""
    client.sendall(struct.pack(">i", claimed) + bytes(sent - 4))


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def held(core: Core) -> int:
    return core.counters()["request_bytes_held"]


def test_a_budget_below_one_frame_lets_every_frame_through(house: House) -> None:
    core, port = house.core(request_bytes_max=1_000, network_threads=2)
    house.control(core)
    sent = [request(i, bytes([i]) * 3_000_000) for i in range(6)]
    clients = [house.connect(port) for _ in sent]
    writers = [threading.Thread(target=one.sendall, args=(what,)) for one, what in zip(clients, sent, strict=True)]
    for writer in writers:
        writer.start()
    for client, what in zip(clients, sent, strict=True):
        assert frame(receive_frame(client)) == what
    for writer in writers:
        writer.join()
    eventually(lambda: held(core) == 0)


@pytest.mark.parametrize("threads", [1, 2])
def test_when_memory_is_short_large_frames_wait_and_small_ones_do_not(house: House, threads: int) -> None:
    house.clock.hold()
    core, port = house.core(request_bytes_max=100_000, network_threads=threads)
    house.control(core)
    holder, large, small = house.connect(port), house.connect(port), house.connect(port)
    begun = request(1, bytes(1_000_000))
    holder.sendall(begun[:5_000])
    eventually(lambda: held(core) == len(begun))
    waiting = request(2, bytes(50_000))
    large.sendall(waiting)
    eventually(lambda: core.counters()["frames_starved"] == 1)
    assert core.counters()["bytes_in"] <= 5_000 + 2_048
    for i in range(50):
        small.sendall(request(i, bytes(1_500)))
        assert frame(receive_frame(small)) == request(i, bytes(1_500))
    assert held(core) == len(begun)
    holder.sendall(begun[5_000:])
    assert frame(receive_frame(holder)) == begun
    assert frame(receive_frame(large)) == waiting
    eventually(lambda: held(core) == 0)


def test_a_frame_that_waits_for_memory_may_be_given_up(house: House) -> None:
    house.clock.hold()
    core, port = house.core(request_bytes_max=100_000)
    holder, waiting = house.connect(port), house.connect(port)
    begin(holder, 200_000, 5_000)
    eventually(lambda: held(core) > 100_000)
    begin(waiting, 50_000, 20_000)
    eventually(lambda: core.counters()["frames_starved"] == 1)
    reset(waiting)
    eventually(lambda: core.counters()["connections_open"] == 1)
    holder.close()
    eventually(lambda: core.counters()["connections_open"] == 0)
    assert held(core) == 0
    assert core.counters()["receive_buffer_bytes"] == 0


@pytest.mark.parametrize("threads", [1, 2])
def test_half_frames_do_not_keep_others_out(house: House, threads: int) -> None:
    house.clock.hold()
    core, port = house.core(request_bytes_max=1_000_000, network_threads=threads)
    house.control(core)
    steady = house.connect(port)
    slow = [house.connect(port) for _ in range(40)]
    begun = request(1, bytes(500_000))
    steady.sendall(begun[:200_000])
    eventually(lambda: held(core) == len(begun))
    for client in slow:
        begin(client, 25_000, 5_000)
    eventually(lambda: (held(core) - len(begun)) // 25_004 + core.counters()["frames_starved"] == 40)
    honest = house.connect(port)
    wanted = request(2, bytes(300_000))
    writer = threading.Thread(target=honest.sendall, args=(wanted,))
    starved = core.counters()["frames_starved"]
    writer.start()
    eventually(lambda: core.counters()["frames_starved"] == starved + 1)
    house.clock.advance(2_500)  # half a second past the grace: at 64 bytes a millisecond 32,000 should be here by now
    eventually(lambda: core.counters()["connections_closed"]["memory_short"] == 40 - starved)
    eventually(lambda: held(core) >= 1_000_000)  # the other half frames came before the honest one
    house.clock.advance(2_500)
    assert frame(receive_frame(honest)) == wanted
    writer.join()
    assert any(
        event[:2] == ("closed", "held part of a request for too long while memory was short")
        for event in gather(core.events)
    )
    steady.sendall(begun[200_000:])
    assert frame(receive_frame(steady)) == begun


def test_half_frames_are_left_alone_while_there_is_room(house: House) -> None:
    house.clock.hold()
    core, port = house.core(request_bytes_max=1_000_000)
    house.control(core)
    slow = house.connect(port)
    begun = request(1, bytes(50_000))
    slow.sendall(begun[:5_000])
    eventually(lambda: held(core) == len(begun))
    house.clock.advance(60_000)
    other = house.connect(port)
    other.sendall(request(2))
    assert frame(receive_frame(other)) == request(2)
    slow.sendall(begun[5_000:])
    assert frame(receive_frame(slow)) == begun


def test_half_frames_are_left_alone_once_nobody_waits_any_more(house: House) -> None:
    house.clock.hold()
    core, port = house.core(request_bytes_max=100_000)
    slow, hasty = house.connect(port), house.connect(port)
    begin(slow, 60_000, 5_000)
    eventually(lambda: held(core) == 60_004)
    first, second = request(1, bytes(50_000)), request(2, bytes(200_000))
    hasty.sendall(first[:30_000])
    eventually(lambda: held(core) >= 60_004 + len(first))
    hasty.sendall(first[30_000:] + second[:5_000])
    posted = take_one(core)
    eventually(lambda: core.counters()["bytes_in"] == 5_000 + len(first) + 5_000)
    core.reply(posted[0], b"first")
    assert receive_frame(hasty) == b"first"
    # What it holds itself is all that it waits for: it is let in at once, and nobody else waits.
    eventually(lambda: held(core) == 60_004 + len(second))
    assert core.counters()["frames_starved"] == 1
    house.clock.advance(60_000)
    house.control(core)
    other = house.connect(port)
    for i in range(3):
        other.sendall(request(i))
        assert frame(receive_frame(other)) == request(i)
    assert core.counters()["connections_closed"]["memory_short"] == 0


def test_requests_behind_one_that_waits_count_too(house: House) -> None:
    core, port = house.core(request_bytes_max=50_000, start=False)
    client = house.connect(port)
    client.sendall(request(1) + b"".join(request(i, bytes(900)) for i in range(2, 62)))
    core.start()  # everything is there by now, so it comes at once
    first = take_one(core)
    eventually(lambda: held(core) >= 50_000)
    other = house.connect(port)
    large = request(9, bytes(50_000))
    other.sendall(large)
    eventually(lambda: core.counters()["frames_starved"] == 1)
    core.reply(first[0], first[5])
    house.control(core)
    assert receive_frame(client) == first[5]
    for i in range(2, 62):
        assert frame(receive_frame(client)) == request(i, bytes(900))
    assert frame(receive_frame(other)) == large


def test_a_posted_request_counts_until_it_is_answered(house: House) -> None:
    core, port = house.core(request_bytes_max=1_000_000)
    client = house.connect(port)
    client.sendall(request(1, bytes(300_000)))
    posted = take_one(core)
    eventually(lambda: held(core) == 300_008)
    reset(client)
    eventually(lambda: core.counters()["connections_open"] == 0)
    assert held(core) == 300_008  # the control side has it still
    core.reply(posted[0], b"for nobody")
    assert held(core) == 0
    other = house.connect(port)
    other.sendall(request(2, bytes(200_000)))
    posted = take_one(core)
    core.close_connection(posted[0], "unwanted")
    assert closed_by_server(other)
    assert held(core) == 0


def test_whoever_is_behind_for_the_longest_gives_way(house: House) -> None:
    reply = bytes(8_000_000)
    core, port = house.core(reply_bytes_max=20_000_000)
    readers = [house.connect(port, receive_buffer=4096) for _ in range(6)]
    for i, reader in enumerate(readers):
        reader.sendall(request(i))
        core.reply(take_one(core)[0], reply)
        eventually(
            lambda: sum(core.counters()["connections_closed"].values()) > 0 or core.counters()["reply_bytes_held"]
        )
    lively = house.connect(port)
    lively.sendall(request(9))
    core.reply(take_one(core)[0], reply)
    assert receive_frame(lively) == reply
    eventually(lambda: core.counters()["connections_closed"]["memory_short"] >= 4)
    assert core.counters()["reply_bytes_held"] <= 20_000_000
    assert gather(core.events)[0][:2] == ("closed", "did not read its replies while memory was short")
    assert receive_frame(readers[-1]) == reply
    with contextlib.suppress(ConnectionResetError), pytest.raises(EOFError):
        receive_frame(readers[0])


def test_whoever_reads_on_does_not_give_way_to_whoever_does_not(house: House) -> None:
    reply = bytes(8_000_000)
    core, port = house.core(reply_bytes_max=20_000_000)
    steady, asleep, last = (house.connect(port, receive_buffer=4096) for _ in range(3))
    for reader in (steady, asleep):
        before = core.counters()["reply_bytes_held"]
        reader.sendall(request(1))
        core.reply(take_one(core)[0], reply)
        eventually(lambda before=before: core.counters()["reply_bytes_held"] > before)  # type: ignore[misc]
    receive_exactly(steady, 5_000_000)  # more than its socket can hold: the loop has sent more since
    last.sendall(request(2))
    core.reply(take_one(core)[0], reply)
    eventually(lambda: core.counters()["connections_closed"]["memory_short"] == 1)
    receive_exactly(steady, 4 + len(reply) - 5_000_000)
    assert receive_frame(last) == reply
    with contextlib.suppress(ConnectionResetError), pytest.raises(EOFError):
        receive_frame(asleep)


def test_a_reply_larger_than_the_bound_is_sent(house: House) -> None:
    core, port = house.core(reply_bytes_max=1_000)
    client = house.connect(port, receive_buffer=4096)
    client.sendall(request(1))
    core.reply(take_one(core)[0], bytes(6_000_000))
    assert receive_frame(client) == bytes(6_000_000)
    eventually(lambda: core.counters()["reply_bytes_held"] == 0)
    assert sum(core.counters()["connections_closed"].values()) == 0
