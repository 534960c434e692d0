"""A node without a network: logs in a directory, a published table, and frames handed straight to dispatch."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from pathlib import Path

import pytest

from kbroker._core.api.direct import DirectCaller
from kbroker._core.clock import BrokerClock
from kbroker._core.log.partition_log import PartitionLog
from kbroker._core.partitions import PartitionHandle
from kbroker._core.record.records import Record, build_batch, iterate
from kbroker._core.views import ViewHandle
from kbroker.protocol import codec
from kbroker.protocol.api_table import ROWS
from kbroker.protocol.message import Message
from kbroker.protocol.messages.k00_produce import ProduceRequest, ProduceResponse
from kbroker.protocol.messages.k01_fetch import FetchRequest, FetchResponse

NODE = 1
NOW = 1_700_000_000_000
APIS = {key: (0 if key == 0 else low, high, flexible, key in (0, 1, 18)) for key, _, low, high, flexible, _, _ in ROWS}
BODIES = [b"body of version %d" % version for version in range(5)] + [b"fallback"]


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"-")


class Node:
    """One broker's data plane with one network thread."""

    def __init__(self, directory: Path, **caller: int) -> None:
        self.directory = directory
        self.clock = BrokerClock()
        self.clock.hold(NOW)
        self.view = ViewHandle()
        self.topics: dict[str, list[PartitionHandle]] = {}
        self.internal: set[str] = set()
        self.endpoints: list[tuple[int, str, int, str | None]] = [(NODE, "here", 9092, None), (2, "there", 9093, "r1")]
        self.calls = DirectCaller(self.clock, self.view, APIS, BODIES, **caller)

    def topic(self, name: str, partitions: int = 1, internal: bool = False, **config: object) -> list[PartitionHandle]:
        handles = []
        for index in range(partitions):
            handle = PartitionHandle(index, self.open_log(f"{name}-{index}", **config))
            handle.lead(NODE, 0, 1, 1)
            handles.append(handle)
        self.topics[name] = handles
        if internal:
            self.internal.add(name)
        self.publish()
        return handles

    def open_log(self, name: str, **config: object) -> PartitionLog:
        return PartitionLog.open(self.directory / name, self.clock, config)

    def publish(self) -> None:
        self.view.publish(
            [(name, topic_id(name), name in self.internal, handles) for name, handles in self.topics.items()],
            self.endpoints,
        )

    def send(
        self, request: Message, version: int, slot: int = 0, client_id: str = "test", correlation_id: int = 7
    ) -> tuple[str, bytes | None, str | None]:
        return self.calls.call(codec.encode_request(request, version, correlation_id, client_id), slot)

    def produce(
        self,
        parts: list[tuple[int, bytes | None]],
        version: int = 9,
        name: str = "t",
        *,
        acks: int = -1,
        transactional_id: str | None = None,
        client_id: str = "test",
    ) -> ProduceResponse:
        request = produce_request(parts, name, acks, transactional_id=transactional_id)
        outcome, reply, reason = self.send(request, version, client_id=client_id)
        assert outcome == "READY", (outcome, reason)
        return produce_reply(reply, version)

    def fetch(
        self, topics: list[FetchRequest.FetchTopic], version: int = 12, slot: int = 0, **fields: object
    ) -> FetchResponse:
        outcome, reply, reason = self.send(fetch_request(topics, **fields), version, slot)
        assert outcome == "READY", (outcome, reason)
        return fetch_reply(reply, version)


def batch(*values: bytes, **fields: object) -> bytes:
    return build_batch([Record(timestamp=NOW, value=value) for value in values or (b"v",)], **fields)


def values_of(records: bytes | None) -> list[bytes | None]:
    return [record.value for record in iterate(records or b"")]


def produce_request(
    parts: list[tuple[int, bytes | None]],
    name: str = "t",
    acks: int = -1,
    timeout_ms: int = 1000,
    transactional_id: str | None = None,
) -> ProduceRequest:
    partition_data = [ProduceRequest.PartitionProduceData(index=index, records=records) for index, records in parts]
    topic = ProduceRequest.TopicProduceData(name=name, topic_id=topic_id(name), partition_data=partition_data)
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=[topic])


def unframe(reply: bytes | None) -> bytes:
    assert reply is not None
    assert int.from_bytes(reply[:4], "big") == len(reply) - 4
    return reply[4:]


def whole(cls: type[Message], version: int, reply: bytes | None, correlation_id: int = 7) -> Message:
    """The reply, read by the plan to its last byte, with the request's correlation id."""
    frame = unframe(reply)
    assert int.from_bytes(frame[:4], "big") == correlation_id
    body = frame[5:] if version >= cls.FLEXIBLE_FROM else frame[4:]
    message, end = codec.decode(cls, version, body)
    assert end == len(body)
    return message


def produce_reply(reply: bytes | None, version: int) -> ProduceResponse:
    message = whole(ProduceResponse, version, reply)
    assert isinstance(message, ProduceResponse)
    return message


def fetch_reply(reply: bytes | None, version: int) -> FetchResponse:
    message = whole(FetchResponse, version, reply)
    assert isinstance(message, FetchResponse)
    return message


def ask(partition: int = 0, offset: int = 0, max_bytes: int = 1 << 20, **fields: int) -> FetchRequest.FetchPartition:
    return FetchRequest.FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes, **fields
    )


def of(name: str, *asks: FetchRequest.FetchPartition) -> FetchRequest.FetchTopic:
    return FetchRequest.FetchTopic(topic=name, topic_id=topic_id(name), partitions=list(asks))


def fetch_request(topics: list[FetchRequest.FetchTopic], **fields: object) -> FetchRequest:
    settings: dict[str, object] = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 24, **fields}
    return FetchRequest(topics=topics, **settings)


def only(response: FetchResponse) -> FetchResponse.PartitionData:
    """The one partition of the answer."""
    (topic,) = response.responses
    (partition,) = topic.partitions
    return partition


# A sanitizer keeps freed memory on purpose, and elsewhere there is no /proc to ask.
measures_memory = pytest.mark.skipif(
    sys.platform != "linux" or "asan" in os.environ.get("LD_PRELOAD", ""), reason="memory cannot be measured here"
)


def resident_bytes() -> int:
    """How much of this process is in memory now, without what the allocator only keeps for later."""
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()
