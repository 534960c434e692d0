"""A client that says exactly what it is told: one connection, frames by the project's codec."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any

from kbroker.protocol import apis, codec
from kbroker.protocol.message import Message
from kbroker.protocol.messages import CreateTopicsRequest, MetadataRequest


class Connection:
    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._socket = socket.create_connection((host, port), timeout=20)
        self._correlation_id = 0

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def send(self, request: Message, version: int) -> int:
        self._correlation_id += 1
        frame = codec.encode_request(request, version, self._correlation_id, "wire")
        self._socket.sendall(len(frame).to_bytes(4, "big") + frame)
        return self._correlation_id

    def ask(self, request: Message, version: int) -> Any:
        sent = self.send(request, version)
        answered, response = codec.decode_response(apis.by_key(request.KEY).response, version, self.receive())
        assert answered == sent
        return response

    def receive(self) -> bytes:
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def is_closed(self) -> bool:
        """Waits for the other side to close; a frame from it means it did not."""
        return self._socket.recv(1) == b""

    def create_topic(self, name: str, partitions: int = 1) -> None:
        wanted = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        (result,) = self.ask(CreateTopicsRequest(topics=[wanted]), 7).topics
        assert result.error_code == 0, result.error_message

    def topic_id(self, name: str) -> bytes:
        (topic,) = self.ask(MetadataRequest(topics=[MetadataRequest.Topic(name=name)]), 12).topics
        found: bytes = topic.topic_id
        return found

    def _exactly(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            piece = self._socket.recv(count - len(received))
            assert piece, "the connection was closed"
            received += piece
        return bytes(received)
