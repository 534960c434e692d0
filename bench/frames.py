"""Request frames for the load generator, size prefix included, made by kbroker's own codec."""

from __future__ import annotations

import os
import struct
import time

from kbroker._core.record import records
from kbroker._core.record.records import Record
from kbroker.protocol import codec, messages
from kbroker.protocol.message import Message

PRODUCE_VERSION = 9
FETCH_VERSION = 12


def frame(request: Message, version: int, correlation_id: int = 7) -> bytes:
    payload = codec.encode_request(request, version, correlation_id, "race")
    return struct.pack(">i", len(payload)) + payload


def batch(size_bytes: int, record_bytes: int = 1024) -> bytes:
    """An uncompressed batch of about `size_bytes`, in records of `record_bytes` that no codec could shrink."""
    count = max(1, size_bytes // record_bytes)
    now = int(time.time() * 1000)  # records from long ago would be taken by Apache Kafka's retention
    return records.build_batch(Record(timestamp=now, value=os.urandom(record_bytes)) for _ in range(count))


def produce(topic: str, partition: int, batch_bytes: bytes, acks: int = -1) -> bytes:
    body = messages.ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[
            messages.ProduceRequest.TopicProduceData(
                name=topic,
                partition_data=[messages.ProduceRequest.PartitionProduceData(index=partition, records=batch_bytes)],
            )
        ],
    )
    return frame(body, PRODUCE_VERSION)


def produce_error_offset(topic: str) -> int:
    """Where the first partition's error stands in a v9 Produce reply: after size, header, counts, name and index."""
    return 4 + 4 + 1 + 1 + 1 + len(topic) + 1 + 4


def fetch(topic: str, partition: int, offset: int, max_bytes: int) -> bytes:
    return frame(fetch_request(topic, partition, offset, max_bytes), FETCH_VERSION)


def fetch_request(topic: str, partition: int, offset: int, max_bytes: int) -> messages.FetchRequest:
    return messages.FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=max_bytes,
        session_id=0,
        session_epoch=-1,
        topics=[
            messages.FetchRequest.FetchTopic(
                topic=topic,
                partitions=[
                    messages.FetchRequest.FetchPartition(
                        partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes
                    )
                ],
            )
        ],
    )


def fetch_offset_at(topic: str) -> int:
    """Where the fetch offset stands in a frame that `fetch` made."""
    mark = 0x0123_4567_89AB_CDEF
    return fetch(topic, 0, mark, 1).index(struct.pack(">q", mark))


FETCH_ERROR_OFFSET = 4 + 4 + 1 + 4  # size, header, throttle time


def api_versions() -> bytes:
    body = messages.ApiVersionsRequest(client_software_name="race", client_software_version="1")
    return frame(body, 3)


def metadata(topic: str) -> bytes:
    body = messages.MetadataRequest(
        topics=[messages.MetadataRequest.Topic(name=topic)], allow_auto_topic_creation=False
    )
    return frame(body, 12)
