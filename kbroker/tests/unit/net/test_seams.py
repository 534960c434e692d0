"""The seams that quotas, faults and TLS will use: hooks around a request, and bytes that pass a transform."""

from __future__ import annotations

import os
import socket
import struct
import threading
from pathlib import Path

import pytest

from kbroker._core.log.partition_log import PartitionLog
from kbroker._core.partitions import PartitionHandle
from kbroker._core.probe import ProbeCore
from kbroker._core.views import ViewHandle

from .harness import House, closed_by_server, eventually, frame, gather, receive_exactly, request, take_one
from .test_data import SERVED, base_offset, batch, fetch, fetched_bytes, produce

MASK = 0x5A


class MaskedClient:
    """A client of a masked listener."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def send(self, data: bytes) -> None:
        self.sock.sendall(bytes(byte ^ MASK for byte in data))

    def receive(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, length: int) -> bytes:
        return receive_exactly(self.sock, length).translate(bytes(byte ^ MASK for byte in range(256)))


@pytest.fixture
def probe(house: House) -> ProbeCore:
    core = ProbeCore(house.clock, node_id=1, **house.options)
    house.keep(core)
    return core


def test_hooks_see_every_request_before_and_after(house: House, probe: ProbeCore) -> None:
    probe.publish_apis({3: (0, 13, 9, False), 18: (0, 4, 3, True)}, [b"x"] * 6)
    port = probe.listen("127.0.0.1", 0)
    probe.start()
    house.control(probe)
    client = house.connect(port)
    client.sendall(request(1, b"\xff\xff", key=18, version=0) * 3 + request(2, b"\xff\xff"))
    receive_exactly(client, 3 * 9 + len(request(2, b"\xff\xff")))
    assert probe.before == 4
    assert {name: count for name, count in probe.after.items() if count} == {"READY": 3, "POST": 1}


def test_a_hook_may_refuse_a_request(house: House, probe: ProbeCore) -> None:
    probe.refuse_key(3)
    port = probe.listen("127.0.0.1", 0)
    probe.start()
    client = house.connect(port)
    client.sendall(request(1))
    assert closed_by_server(client)
    assert gather(probe.events)[0][1] == "refused by the probe"


def test_a_hook_may_mute_after_a_request(house: House, probe: ProbeCore) -> None:
    house.clock.hold()
    probe.mute_key(18, 500)
    probe.publish_apis({3: (0, 13, 9, False), 18: (0, 4, 3, True)}, [b"x"] * 6)
    port = probe.listen("127.0.0.1", 0)
    probe.start()
    client = house.connect(port)
    client.sendall(request(1, b"\xff\xff", key=18, version=0) + request(2, b"\xff\xff"))
    receive_exactly(client, 9)
    house.clock.advance(499)
    probe.nudge()
    assert probe.take() == []
    house.clock.advance(1)
    assert frame(take_one(probe)[5]) == request(2, b"\xff\xff")


def test_transformed_bytes_are_framed_and_answered(house: House, probe: ProbeCore) -> None:
    probe.mask_listener(0, MASK)
    port = probe.listen("127.0.0.1", 0)
    probe.start()
    house.control(probe)
    client = MaskedClient(house.connect(port))
    sizes = [0, 5, 900, 1_500, 20_000, 300_000, 3]
    sent = [request(i, bytes([i]) * size) for i, size in enumerate(sizes)]
    sender = threading.Thread(target=client.send, args=(b"".join(sent),))
    sender.start()
    for expected in sent:
        assert frame(client.receive()) == expected
    sender.join()
    client.sock.close()
    eventually(lambda: probe.masked_open == 0)


def test_slices_pass_a_transform_too(house: House, probe: ProbeCore, tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path / "t-0", house.clock, {})
    partition = PartitionHandle(0, log)
    partition.lead(1, 0, 1, 1)
    view = ViewHandle()
    view.publish([("t", bytes(16), False, [partition])])
    probe.publish_apis(SERVED, [b""] * 6)
    probe.mask_listener(0, MASK)
    port = probe.listen("127.0.0.1", 0, view)
    probe.start()
    client = MaskedClient(house.connect(port))
    for i in range(3):
        client.send(produce(i, batch(os.urandom(100_000))))
        assert base_offset(client.receive()) == i
    client.send(fetch(9, 0))
    assert fetched_bytes(client.receive()) == log.read(0, 1_000_000)
