"""How the load generators connect: without delays of their own, so that the broker is what is measured."""

from __future__ import annotations

import contextlib
import socket


def dial(port: int, timeout: float | None = None) -> socket.socket:
    """A connection to a broker on loopback. It is not paced, even where the system's congestion control is bbr."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=timeout)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_CONGESTION"):
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    return connection
