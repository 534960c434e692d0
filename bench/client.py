"""One blocking connection that speaks our own codec: for works in which a client's start-up must not be measured."""

from __future__ import annotations

import struct
import time
from collections.abc import Collection, Iterable

from bench import frames
from bench.dial import dial
from kbroker.protocol import codec, messages
from kbroker.protocol.message import Message

BUDGET = 1 << 28  # bytes of objects that an answer may become: both brokers are trusted
PATIENCE_SECONDS = 120


class Client:
    """Sends a request, waits for its answer, raises on an error code that is not asked about."""

    def __init__(self, port: int) -> None:
        self.socket = dial(port, PATIENCE_SECONDS)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def exchange(self, frame: bytes) -> bytes:
        """The answer's frame, without its size."""
        self.socket.sendall(frame)
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def ask(self, request: Message, version: int) -> Message:
        name = type(request).__name__.replace("Request", "Response")
        cls: type[Message] = getattr(messages, name)
        _, answer = codec.decode_response(cls, version, self.exchange(frames.frame(request, version)), BUDGET)
        return answer

    def create_topics(self, names: Iterable[str], partitions: int) -> None:
        topic = messages.CreateTopicsRequest.CreatableTopic
        wanted = [topic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
        answer = self.ask(messages.CreateTopicsRequest(topics=wanted, timeout_ms=PATIENCE_SECONDS * 1000), 7)
        assert isinstance(answer, messages.CreateTopicsResponse)
        _refuse([one.error_code for one in answer.topics], "CreateTopics")

    def delete_topics(self, names: Iterable[str]) -> None:
        state = messages.DeleteTopicsRequest.DeleteTopicState
        request = messages.DeleteTopicsRequest(
            topics=[state(name=name) for name in names], timeout_ms=PATIENCE_SECONDS * 1000
        )
        answer = self.ask(request, 6)
        assert isinstance(answer, messages.DeleteTopicsResponse)
        _refuse([one.error_code for one in answer.responses], "DeleteTopics")

    def leaders(self, topics: Collection[str]) -> int:
        """How many partitions of these topics have a leader, in a Metadata answer that lists all topics."""
        answer = self.ask(messages.MetadataRequest(topics=None, allow_auto_topic_creation=False), 12)
        assert isinstance(answer, messages.MetadataResponse)
        listed = [part for topic in answer.topics if topic.name in topics for part in topic.partitions]
        return sum(part.leader_id >= 0 and not part.error_code for part in listed)

    def await_leaders(self, topics: Collection[str], partitions: int) -> None:
        count, deadline = len(topics) * partitions, time.monotonic() + PATIENCE_SECONDS
        while (seen := self.leaders(topics)) < count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{seen} of {count} partitions have a leader after {PATIENCE_SECONDS} s")

    def await_writable(self, topic: str, partitions: int = 1) -> None:
        """Produces one small record to each partition, again until it is taken.

        Apache Kafka answers a creation before its broker has applied it.
        """
        batch = frames.batch(1, 1)
        error_at = frames.produce_error_offset(topic) - 4
        deadline = time.monotonic() + PATIENCE_SECONDS
        for partition in range(partitions):
            request = frames.produce(topic, partition, batch)
            while error := struct.unpack_from(">h", self.exchange(request), error_at)[0]:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{topic}-{partition} takes no records: error {error}")

    def fetch_one(self, topic: str) -> int:
        """The bytes of records that stand at offset 0 of partition 0."""
        request = frames.fetch_request(topic, 0, 0, 1 << 20)
        answer = self.ask(request, frames.FETCH_VERSION)
        assert isinstance(answer, messages.FetchResponse)
        found = answer.responses[0].partitions[0]
        _refuse([answer.error_code, found.error_code], "Fetch")
        return len(found.records or b"")

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("closed by the broker")
            data += more
        return bytes(data)


def _refuse(codes: list[int], what: str) -> None:
    wrong = [code for code in codes if code]
    if wrong:
        raise RuntimeError(f"{what} answered {len(wrong)} errors, the first is {wrong[0]}")
