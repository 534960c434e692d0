"""Frames in, replies out, through a real socket and the mailbox."""

from __future__ import annotations

from kbroker._core.core import Core

from .harness import House, Taken, eventually, frame, receive_frame, request


def take_one(core: Core) -> Taken:
    got: list[Taken] = []
    eventually(lambda: got.extend(core.take(1)) or got)
    return got[0]


def test_a_posted_request_is_answered(house: House) -> None:
    core, port = house.core()
    client = house.connect(port)
    client.sendall(request(7, b"hello"))
    token, listener, principal, host, peer_port, posted = take_one(core)
    assert (listener, principal, host, peer_port) == (0, 0, "127.0.0.1", client.getsockname()[1])
    assert frame(posted) == request(7, b"hello")
    core.reply(token, b"answer")
    assert receive_frame(client) == b"answer"
