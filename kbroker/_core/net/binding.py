"""The listening socket: everything is set before it listens, because accepted sockets inherit it all."""

from __future__ import annotations

import contextlib
import socket

# A peer that vanished without a word is asked after five minutes of silence, and given up two minutes later.
# Names that a system does not have are skipped: TCP_KEEPALIVE is what macOS calls TCP_KEEPIDLE.
KEEP_ALIVE = {"TCP_KEEPIDLE": 300, "TCP_KEEPALIVE": 300, "TCP_KEEPINTVL": 30, "TCP_KEEPCNT": 4}


def bind_socket(host: str, port: int, backlog: int, receive_buffer_bytes: int, send_buffer_bytes: int) -> socket.socket:
    """A non-blocking socket that listens; a buffer size below 1 leaves the choice to the system."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=0 if host else socket.AI_PASSIVE
    )[0]
    if not host and socket.has_dualstack_ipv6():
        family, address = socket.AF_INET6, ("::", port)
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEP_ALIVE.items():
            if hasattr(socket, name):
                listening.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if address[0] == "::" else 1)
        if receive_buffer_bytes > 0:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        if send_buffer_bytes > 0:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        listening.bind(address)
        if address[0] == "::1" or str(address[0]).startswith("127."):
            _leave_unpaced(listening)
        listening.listen(backlog)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


def _leave_unpaced(listening: socket.socket) -> None:
    # Nothing is lost on loopback, but where the system's congestion control is bbr, a timer paces every segment:
    # 64 KiB fetches cost 48 us of CPU instead of 28, at half the rate. Reno is in every kernel and open to everyone.
    if hasattr(socket, "TCP_CONGESTION"):
        with contextlib.suppress(OSError):  # nothing but speed depends on it
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
