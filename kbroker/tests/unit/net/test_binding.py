"""What accepted connections inherit from the socket that listens."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kbroker._core.net.binding import bind_socket


@contextmanager
def accepted(host: str, receive_buffer_bytes: int = -1, send_buffer_bytes: int = -1) -> Iterator[socket.socket]:
    with bind_socket(host, 0, 1, receive_buffer_bytes, send_buffer_bytes) as listening:
        listening.setblocking(True)
        with socket.create_connection(("127.0.0.1", listening.getsockname()[1]), timeout=20):
            connection, _ = listening.accept()
            with connection:
                yield connection


def congestion_control(sock: socket.socket) -> bytes:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")


needs_choice = pytest.mark.skipif(
    not hasattr(socket, "TCP_CONGESTION"), reason="congestion control is not to be chosen"
)


@needs_choice
def test_a_loopback_listener_does_not_pace_its_connections() -> None:
    with accepted("127.0.0.1") as connection:
        assert congestion_control(connection) == b"reno"


@needs_choice
def test_a_listener_on_every_address_keeps_the_systems_congestion_control() -> None:
    with socket.socket() as plain, accepted("0.0.0.0") as connection:
        assert congestion_control(connection) == congestion_control(plain)


def test_connections_have_the_buffers_that_were_asked_for() -> None:
    with accepted("127.0.0.1", 65_536, 32_768) as connection:
        receives = connection.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        sends = connection.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    assert receives >= 65_536
    assert 32_768 <= sends < receives


def test_connections_notice_a_peer_that_vanished_and_do_not_wait_to_fill_packets() -> None:
    with accepted("127.0.0.1") as connection:
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
