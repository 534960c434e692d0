"""A client of the campaigns: one socket, whole frames in and out, and nothing assumed about what comes back."""

from __future__ import annotations

import socket
import struct
from types import TracebackType

from bench import frames

CONNECT_SECONDS = 30.0
REPLY_MAX_BYTES = 1 << 28


class ClosedError(Exception):
    """The broker closed the connection."""


class MalformedError(AssertionError):
    """The broker sent something that is no reply."""


class Wire:
    """A connection. `receive` gives whole frames; a timeout is TimeoutError and leaves the stream where it is."""

    def __init__(self, port: int, timeout: float = CONNECT_SECONDS) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._arrived = bytearray()

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            raise ClosedError from None

    def receive(self) -> bytes:
        """The next frame without its size."""
        self._fill(4)
        (size,) = struct.unpack(">i", self._arrived[:4])
        if not 4 <= size <= REPLY_MAX_BYTES:
            raise MalformedError(f"a reply claims {size} bytes")
        self._fill(4 + size)
        reply = bytes(self._arrived[4 : 4 + size])
        del self._arrived[: 4 + size]
        return reply

    def _fill(self, wanted: int) -> None:
        while len(self._arrived) < wanted:
            try:
                part = self.socket.recv(min(max(wanted - len(self._arrived), 1 << 16), 1 << 20))
            except ConnectionResetError:
                raise ClosedError from None
            if not part:
                raise ClosedError
            self._arrived += part

    def ask(self, request: bytes) -> bytes:
        self.send(request)
        return self.receive()

    def is_closed_by_broker(self) -> bool:
        """Waits for the end of the stream, whatever else comes before it."""
        try:
            while True:
                self.receive()
        except ClosedError:
            return True
        except TimeoutError:
            return False

    def finish_sending(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Closes with RST: what is unsent or unread is thrown away on both sides."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self) -> None:
        self.socket.close()


def prefixed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def ping(correlation_id: int) -> bytes:
    """An ApiVersions request: answered at once by the data plane, in its turn."""
    return frames.api_versions()[:8] + struct.pack(">i", correlation_id) + frames.api_versions()[12:]
