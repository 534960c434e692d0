"""Frames over a socket, and the three things a broker can do with one: answer, stay silent, hang up."""

from __future__ import annotations

import socket
import struct
from typing import Any

from compat_tests.raw.shapes import build, plain
from kbroker.protocol import apis
from kbroker.protocol.codec import decode, decode_response, encode_request
from kbroker.protocol.message import Message

CLOSED = "closed"
SILENT = "silent"
_PATIENCE_SECONDS = 15.0
_APIS = {api.name: api for api in apis.every()}


class Connection:
    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=_PATIENCE_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def close(self) -> None:
        self._socket.close()

    def send(self, frame: bytes) -> None:
        self.send_bytes(struct.pack(">i", len(frame)) + frame)

    def send_bytes(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return  # the answer to it is then CLOSED

    def receive(self) -> bytes | str:
        """The next frame, or what stands for its absence."""
        try:
            size = self._take(4)
            return self._take(struct.unpack(">i", size)[0])
        except (EOFError, ConnectionResetError, BrokenPipeError):
            return CLOSED
        except TimeoutError:
            return SILENT

    def _take(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self._socket.recv(min(count - len(parts), 1 << 20))
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)

    def request_frame(self, api: str, version: int, body: dict[str, Any]) -> bytes:
        self._correlation_id += 1
        message = build(_APIS[api].request, version, body)
        return encode_request(message, version, self._correlation_id, "raw")

    def ask(self, api: str, version: int, body: dict[str, Any]) -> dict[str, Any] | str:
        self.send(self.request_frame(api, version, body))
        return self.answer(api, version, self._correlation_id)

    def answer(self, api: str, version: int, correlation_id: int) -> dict[str, Any] | str:
        frame = self.receive()
        if isinstance(frame, str):
            return frame
        got, message = decode_response(_APIS[api].response, version, frame)
        if got != correlation_id:
            return f"correlation id {got}, asked with {correlation_id}"
        told: dict[str, Any] = plain(message, version)
        return told

    def tell(self, api: str, version: int, body: dict[str, Any]) -> dict[str, Any] | str:
        """For a request that wants no answer: what the next request on the connection gets shows that none came."""
        self.send(self.request_frame(api, version, body))
        probe = self.ask("ApiVersions", 0, {})
        return "no reply, connection open" if isinstance(probe, dict) and probe["error_code"] == 0 else probe

    @property
    def correlation_id(self) -> int:
        return self._correlation_id


def decode_body(api: str, version: int, frame: bytes) -> dict[str, Any]:
    """A response frame with a header of version 0, for answers that come in another version than was asked for."""
    cls: type[Message] = _APIS[api].response
    message, _ = decode(cls, version, frame, 4)
    told: dict[str, Any] = plain(message, version)
    return told


def versions_of(api: str) -> range:
    return range(_APIS[api].first_version, _APIS[api].last_version + 1)


def key_of(api: str) -> int:
    return _APIS[api].key
