"""Requests that never meet Python."""

from __future__ import annotations

import struct

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

BODIES = [b"body-of-version-%d" % version for version in range(5)] + [b"fallback"]
CLIENT_ID = b"\xff\xff"


def publish(core: Core) -> None:
    core.publish_apis({3: (0, 13, 9, False), 18: (0, 4, 3, True)}, BODIES)


def test_api_versions_is_answered_from_published_bytes(house: House) -> None:
    core, port = house.core(start=False)
    publish(core)
    core.start()
    client = house.connect(port)
    for version in range(3):
        client.sendall(request(version, CLIENT_ID, key=18, version=version))
        assert receive_frame(client) == struct.pack(">i", version) + BODIES[version]
    client.sendall(request(9, CLIENT_ID, key=18, version=60))
    assert receive_frame(client) == struct.pack(">i", 9) + b"fallback"
    assert core.counters()["requests_posted"] == 0


def test_thousands_of_native_requests_in_one_write_are_answered_in_order(house: House) -> None:
    core, port = house.core(start=False)
    publish(core)
    core.start()
    client = house.connect(port)
    client.sendall(b"".join(request(i, CLIENT_ID, key=18, version=0) for i in range(5_000)))
    for i in range(5_000):
        assert receive_frame(client) == struct.pack(">i", i) + BODIES[0]


def test_native_and_posted_requests_keep_their_order(house: House) -> None:
    core, port = house.core(start=False)
    publish(core)
    core.start()
    client = house.connect(port)
    client.sendall(
        request(1, CLIENT_ID, key=18, version=0)
        + request(2, CLIENT_ID, key=3, version=1)
        + request(3, CLIENT_ID, key=18, version=1)
    )
    assert receive_frame(client) == struct.pack(">i", 1) + BODIES[0]
    core.reply(take_one(core)[0], b"metadata")
    assert receive_frame(client) == b"metadata"
    assert receive_frame(client) == struct.pack(">i", 3) + BODIES[1]


def test_published_apis_are_replaced_while_running(house: House) -> None:
    core, port = house.core()
    publish(core)
    client = house.connect(port)
    asked = request(1, CLIENT_ID, key=18, version=0)
    client.sendall(asked)
    assert receive_frame(client)[4:] == BODIES[0]
    core.publish_apis({18: (0, 4, 3, True)}, [b"new"] * 6)

    def answered_anew() -> bool:
        client.sendall(asked)
        return receive_frame(client)[4:] == b"new"

    eventually(answered_anew)


@pytest.mark.parametrize(("key", "version"), [(99, 0), (-1, 0), (3, 14), (32767, 0)])
def test_what_is_not_served_closes_the_connection_and_is_logged(house: House, key: int, version: int) -> None:
    core, port = house.core(start=False)
    publish(core)
    core.start()
    client = house.connect(port)
    client.sendall(request(1, CLIENT_ID, key=18, version=0) + request(2, CLIENT_ID, key=key, version=version))
    assert receive_frame(client) == struct.pack(">i", 1) + BODIES[0]
    assert closed_by_server(client)
    seen = gather(core.events)
    assert "not served here" in seen[0][1]


def test_a_client_that_pipelines_without_end_leaves_room_for_others(house: House) -> None:
    core, port = house.core(start=False)
    publish(core)
    core.start()
    greedy, modest = house.connect(port), house.connect(port)
    asked = request(7, CLIENT_ID, key=18, version=0)
    reply = frame(struct.pack(">i", 7) + BODIES[0])
    for _ in range(20):
        greedy.sendall(asked * 10_000)
        modest.sendall(asked)
        assert receive_frame(modest) == reply[4:]
        assert receive_exactly(greedy, len(reply) * 10_000) == reply * 10_000


def test_six_bodies_are_published_and_keys_in_range(house: House) -> None:
    core, _ = house.core(start=False)
    with pytest.raises(ValueError, match="six"):
        core.publish_apis({}, [b""])
    with pytest.raises(ValueError, match="128"):
        core.publish_apis({128: (0, 0, None, False)}, BODIES)
