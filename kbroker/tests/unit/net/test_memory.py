"""What all clients together may make the broker hold, and who gives way when that is reached."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from pathlib import Path
from typing import Any

import pytest

from kbroker._core.core import Core
from kbroker._core.log.partition_log import PartitionLog

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
from .test_data import DataHouse, base_offset, batch, produce

FRAME_MAX = 100 << 20
WHOLE = request(1, bytes(999_992))
LARGEST = 1_000_000  # its size
RECEIVE_MAX = 1 << 20  # what one receive may bring that began while there was room; and a buffer that is being copied


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


def fill(house: House, core: Core, port: int, bound: int, claimed: int = LARGEST) -> list[socket.socket]:
    """Half frames that hold what may be held, and have no more to give."""
    clients: list[socket.socket] = []
    before = core.counters()["bytes_in"]
    while held(core) < bound:
        clients.append(house.connect(port))
        begin(clients[-1], claimed, 60_000)
        eventually(lambda: core.counters()["bytes_in"] == before + 60_000 * len(clients))
    return clients


def go_beyond(house: House, core: Core, port: int, threads: int = 1) -> list[socket.socket]:
    """The largest frames, one of each thread, that go beyond the bound and stall: what does not fit has to wait now."""
    clients = []
    for _ in range(threads):
        level = held(core)
        clients.append(house.connect(port))
        clients[-1].sendall(WHOLE[:10_000])
        eventually(lambda level=level: held(core) == level + 16_384)  # type: ignore[misc]
    assert core.counters()["frames_starved"] == threads
    return clients


@pytest.mark.parametrize("threads", [1, 2])
def test_when_memory_is_short_large_frames_wait_and_small_ones_do_not(house: House, threads: int) -> None:
    house.clock.hold()
    core, port = house.core(request_bytes_max=100_000, socket_request_max_bytes=LARGEST, network_threads=threads)
    house.control(core)
    full = fill(house, core, port, 100_000)
    beyond = go_beyond(house, core, port, threads)
    large, small = house.connect(port), house.connect(port)
    level, received = held(core), core.counters()["bytes_in"]
    waiting = request(2, bytes(50_000))
    large.sendall(waiting)
    eventually(lambda: core.counters()["frames_starved"] == threads + 1)
    assert core.counters()["bytes_in"] <= received + 4_096
    for i in range(50):
        small.sendall(request(i, bytes(1_500)))
        assert frame(receive_frame(small)) == request(i, bytes(1_500))
    assert held(core) == level
    for client in beyond:
        client.sendall(WHOLE[10_000:])
        assert frame(receive_frame(client)) == WHOLE
    assert frame(receive_frame(large)) == waiting
    for client in full:
        client.close()
    eventually(lambda: held(core) == 0)


def test_a_frame_that_waits_for_memory_may_be_given_up(house: House) -> None:
    house.clock.hold()
    core, port = house.core(request_bytes_max=100_000, socket_request_max_bytes=LARGEST)
    others = fill(house, core, port, 100_000) + go_beyond(house, core, port)
    waiting = house.connect(port)
    begin(waiting, 50_000, 20_000)
    eventually(lambda: core.counters()["frames_starved"] == 2)
    reset(waiting)
    eventually(lambda: core.counters()["connections_open"] == len(others))
    for client in others:
        client.close()
    eventually(lambda: core.counters()["connections_open"] == 0)
    assert held(core) == 0
    assert core.counters()["receive_buffer_bytes"] == 0


@pytest.mark.parametrize("threads", [1, 2])
def test_half_frames_that_hold_little_cost_little_whatever_they_claim(
    house: House, tmp_path: Path, threads: int
) -> None:
    log = PartitionLog.open(tmp_path / "t-0", house.clock, {"max.message.bytes": 8_000_000})
    data = DataHouse(house, log, network_threads=threads, request_bytes_max=FRAME_MAX)
    crowd = [house.connect(data.port) for _ in range(400)]
    for client in crowd:
        begin(client, FRAME_MAX, 1_000)
    eventually(lambda: data.core.counters()["bytes_in"] == 400 * 1_000)
    honest = house.connect(data.port)
    honest.sendall(produce(1, batch(bytes(5_000_000))))
    assert base_offset(receive_frame(honest)) == 0
    counters = data.core.counters()
    assert counters["connections_open"] == 401
    assert counters["frames_starved"] == 0
    assert counters["request_bytes_held"] == 0


@pytest.mark.parametrize("threads", [1, 2])
def test_a_frame_passes_by_half_frames_that_fill_the_bound(house: House, tmp_path: Path, threads: int) -> None:
    house.clock.hold()
    log = PartitionLog.open(tmp_path / "t-0", house.clock, {"max.message.bytes": 8_000_000})
    data = DataHouse(house, log, network_threads=threads, request_bytes_max=1_000_000)
    full = fill(house, data.core, data.port, 1_000_000, FRAME_MAX)
    level = held(data.core)
    honest = [house.connect(data.port) for _ in range(threads)]
    for i, client in enumerate(honest):
        client.sendall(produce(i, batch(bytes(5_000_000))))
        assert base_offset(receive_frame(client)) == i
    assert data.core.counters()["connections_open"] == len(full) + threads
    assert held(data.core) == level  # all the while


@pytest.mark.parametrize("threads", [1, 2])
def test_halves_that_do_not_fit_together_are_all_answered_and_within_the_bound(
    house: House, tmp_path: Path, threads: int
) -> None:
    house.clock.hold()  # nobody is too slow
    log = PartitionLog.open(tmp_path / "t-0", house.clock, {})
    whole = produce(1, batch(os.urandom(1_000_000)))
    data = DataHouse(
        house,
        log,
        network_threads=threads,
        request_bytes_max=4_000_000,
        socket_request_max_bytes=len(whole) - 4,
    )
    clients = [house.connect(data.port) for _ in range(30)]
    go_on = threading.Event()

    def send(client: socket.socket) -> None:
        client.sendall(whole[:700_000])
        go_on.wait()
        client.sendall(whole[700_000:])

    writers = [threading.Thread(target=send, args=(client,), daemon=True) for client in clients]
    for writer in writers:
        writer.start()
    most = 0

    def watch() -> dict[str, Any]:
        nonlocal most
        counters = data.core.counters()
        most = max(most, counters["request_bytes_held"], counters["receive_buffer_bytes"])
        return {**counters}

    eventually(lambda: watch()["frames_starved"] >= 30 - 4 * threads)
    assert log.log_end_offset == 0
    go_on.set()
    eventually(lambda: watch()["request_bytes_held"] == 0)
    assert sorted(base_offset(receive_frame(client)) for client in clients) == list(range(30))
    for writer in writers:
        writer.join()
    assert data.core.counters()["receive_buffer_bytes"] == 0
    assert most >= 3_000_000  # it was used
    assert most <= 4_000_000 + threads * (len(whole) + 2 * RECEIVE_MAX)


def test_frames_of_which_little_is_missing_go_beyond_together_and_first(house: House) -> None:
    house.clock.hold()
    core, port = house.core(request_bytes_max=100_000, socket_request_max_bytes=LARGEST)
    house.control(core)
    fill(house, core, port, 100_000)
    (beyond,) = go_beyond(house, core, port)
    crowd = [house.connect(port) for _ in range(20)]
    for client in crowd:
        begin(client, LARGEST, 10_000)
    eventually(lambda: core.counters()["frames_starved"] == 21)
    house.clock.advance(500)
    small = [house.connect(port) for _ in range(6)]
    for client in small:
        client.sendall(request(1, bytes(100_000))[:10_000])
    eventually(lambda: core.counters()["frames_starved"] == 27)
    level = held(core)
    beyond.sendall(WHOLE[10_000:])
    assert frame(receive_frame(beyond)) == WHOLE
    eventually(lambda: held(core) == level - 16_384 + 6 * 16_384)  # none of the crowd, who came before
    for client in small:
        client.sendall(request(1, bytes(100_000))[10_000:])
        assert frame(receive_frame(client)) == request(1, bytes(100_000))
    assert core.counters()["connections_closed"]["memory_short"] == 0


@pytest.mark.parametrize("threads", [1, 2])
def test_half_frames_do_not_keep_others_out(house: House, threads: int) -> None:
    house.clock.hold()
    core, port = house.core(request_bytes_max=500_000, socket_request_max_bytes=LARGEST, network_threads=threads)
    house.control(core)
    steady = house.connect(port)
    steady.sendall(WHOLE[:200_000])
    eventually(lambda: core.counters()["bytes_in"] == 200_000)
    slow = [house.connect(port) for _ in range(20)]
    for client in slow:
        begin(client, LARGEST, 60_000)
    honest = [house.connect(port) for _ in range(2 * threads)]
    wanted = request(2, bytes(300_000))
    for client in honest:
        client.sendall(wanted)
    eventually(lambda: core.counters()["frames_starved"] >= 10)
    sent = 200_000
    seconds = 0
    while core.counters()["requests_posted"] < len(honest) + 1:
        seconds += 1
        assert seconds < 100, "some are kept out for ever"
        steady.sendall(WHOLE[sent : sent + 80_000])  # 131,072 bytes in two seconds are asked for
        sent += 80_000
        house.clock.advance(1_000)
        turns = core.counters()["turns"]
        eventually(lambda turns=turns: core.counters()["turns"] >= turns + 4 * threads)  # type: ignore[misc]
    for client in honest:
        assert frame(receive_frame(client)) == wanted
    assert frame(receive_frame(steady)) == WHOLE
    assert 0 < core.counters()["connections_closed"]["memory_short"] <= len(slow)
    assert any(
        event[:2] == ("closed", "held part of a request for too long while memory was short")
        for event in gather(core.events)
    )


def test_half_frames_are_left_alone_while_there_is_room(house: House) -> None:
    house.clock.hold()
    core, port = house.core(request_bytes_max=1_000_000)
    house.control(core)
    slow = house.connect(port)
    begun = request(1, bytes(50_000))
    slow.sendall(begun[:5_000])
    eventually(lambda: held(core) == 16_384)
    house.clock.advance(60_000)
    other = house.connect(port)
    other.sendall(request(2))
    assert frame(receive_frame(other)) == request(2)
    slow.sendall(begun[5_000:])
    assert frame(receive_frame(slow)) == begun


def test_half_frames_are_left_alone_once_nobody_waits_any_more(house: House) -> None:
    house.clock.hold()
    core, port = house.core(request_bytes_max=100_000)
    house.control(core)
    fill(house, core, port, 100_000)
    level = held(core)
    hasty = house.connect(port)
    hasty.sendall(request(2, bytes(50_000)))
    assert frame(receive_frame(hasty)) == request(2, bytes(50_000))
    assert core.counters()["frames_starved"] == 1
    assert held(core) == level
    house.clock.advance(60_000)
    for i in range(3):
        hasty.sendall(request(i))
        assert frame(receive_frame(hasty)) == request(i)
    assert core.counters()["connections_closed"]["memory_short"] == 0


def test_whoever_waits_for_its_answer_is_not_slow(house: House) -> None:
    house.clock.hold()
    core, port = house.core(request_bytes_max=100_000, socket_request_max_bytes=LARGEST, start=False)
    asked = house.connect(port)
    asked.sendall(request(1) + request(2, bytes(10_000)))
    core.start()
    first = take_one(core)
    eventually(lambda: held(core) == 32_768)  # the second request, behind the first
    slow = fill(house, core, port, 100_000) + go_beyond(house, core, port)
    begin(house.connect(port), LARGEST, 10_000)
    eventually(lambda: core.counters()["frames_starved"] == 2)
    house.clock.advance(60_000)
    eventually(lambda: core.counters()["connections_closed"]["memory_short"] == len(slow))
    core.reply(first[0], b"first")
    assert receive_frame(asked) == b"first"
    house.control(core)
    assert frame(receive_frame(asked)) == request(2, bytes(10_000))


def test_large_buffers_with_little_in_them_make_room(house: House) -> None:
    house.clock.hold()
    core, port = house.core(request_bytes_max=3_000_000)
    house.control(core)
    clients = [house.connect(port) for _ in range(3)]
    for client in clients:  # what follows a large request is received into a large buffer
        client.sendall(request(1, bytes(100_000)))
        assert frame(receive_frame(client)) == request(1, bytes(100_000))
        client.sendall(request(2, bytes(5_000))[:100])
    eventually(lambda: held(core) == 3 << 20)
    other = house.connect(port)
    other.sendall(request(3, bytes(50_000)))
    assert frame(receive_frame(other)) == request(3, bytes(50_000))
    if not house.moving:  # else the large buffers may be another thread's, and this request goes beyond the budget
        eventually(lambda: held(core) == 0)
    for client in clients:
        client.sendall(request(2, bytes(5_000))[100:])
        assert frame(receive_frame(client)) == request(2, bytes(5_000))


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
