"""Records go in, the same records come out: codecs, acknowledgements, nulls, headers, timestamps, sizes, batches."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from compat_tests.client import (
    CODECS,
    MEGABYTE,
    Client,
    ClientError,
    Codec,
    ProduceOptions,
    Received,
    Record,
    TopicPlan,
)
from compat_tests.scenarios.catalogue import scenario, scenarios_for

FIRST_MS = 1_700_000_000_000  # a fixed moment: CreateTime stays what the client said


def sample_records(count: int) -> list[Record]:
    """Keys, values, headers and times of every shape, without randomness."""
    return [
        Record(
            key=None if n % 5 == 0 else f"key-{n % 7}".encode(),
            value=None if n % 11 == 3 and n % 5 else (f"value {n} " * (n % 13)).encode(),
            headers=tuple((f"h{h}", f"{n}-{h}".encode()) for h in range(n % 3)),
            timestamp_ms=FIRST_MS + n * 10,
        )
        for n in range(count)
    ]


def digest(received: Sequence[Received]) -> str:
    told = hashlib.sha256()
    for r in received:
        told.update(repr((r.offset, r.key, r.value, r.headers, r.timestamp_ms)).encode())
    return told.hexdigest()


def shown(received: Sequence[Received]) -> list[list[Any]]:
    return [[r.offset, repr(r.key), repr(r.value), repr(r.headers), r.timestamp_ms] for r in received]


def must_equal(sent: Sequence[Record], received: Sequence[Received], *, first_offset: int = 0) -> None:
    """Every byte back, in order."""
    assert [r.offset for r in received] == list(range(first_offset, first_offset + len(sent)))
    for record, got in zip(sent, received, strict=True):
        assert (got.key, got.value, got.headers) == (record.key, record.value, record.headers)
        if record.timestamp_ms is not None:
            assert got.timestamp_ms == record.timestamp_ms


def round_trip(client: Client, topic: str, sent: list[Record], options: ProduceOptions) -> dict[str, Any]:
    client.create_topic(topic, TopicPlan())
    offsets = client.produce(topic, sent, options)
    received = client.consume(topic, 0, 0, len(sent))
    must_equal(sent, received)
    return {"offsets": offsets, "records": digest(received), "end": client.list_offset(topic, 0, -1)}


@scenarios_for(CODECS, "produce and consume, {}")
def every_codec(client: Client, topic: str, codec: Codec) -> Any:
    return round_trip(client, topic, sample_records(500), ProduceOptions(codec=codec))


@scenarios_for(CODECS, "idempotent producer, {}")
def idempotent_producer(client: Client, topic: str, codec: Codec) -> Any:
    options = ProduceOptions(idempotent=True, codec=codec, batch_bytes=1024)
    return round_trip(client, topic, sample_records(800), options)


@scenario
def acks_0(client: Client, topic: str) -> Any:
    return round_trip(client, topic, sample_records(50), ProduceOptions(acks=0))


@scenario
def acks_1(client: Client, topic: str) -> Any:
    return round_trip(client, topic, sample_records(50), ProduceOptions(acks=1))


@scenario
def acks_all(client: Client, topic: str) -> Any:
    return round_trip(client, topic, sample_records(50), ProduceOptions(acks=-1))


@scenario
def null_and_empty_keys_and_values(client: Client, topic: str) -> Any:
    sent = [
        Record(key=key, value=value, timestamp_ms=FIRST_MS)
        for key in (None, b"", b"k")
        for value in (None, b"", b"v")
        if client.sends_nothing_at_all or key is not None or value is not None
    ]
    client.create_topic(topic, TopicPlan())
    client.produce(topic, sent, ProduceOptions())
    received = client.consume(topic, 0, 0, len(sent))
    must_equal(sent, received)
    return shown(received)


@scenario
def headers_repeated_null_and_empty(client: Client, topic: str) -> Any:
    shapes: tuple[tuple[str, bytes | None], ...] = (("a", b"1"), ("a", b"2"), ("", b"x"), ("e", b""), ("ü", b"\xff"))
    headers = (*shapes, ("n", None)) if client.sends_null_headers else shapes
    sent = [
        Record(key=b"k", value=b"v", headers=headers, timestamp_ms=FIRST_MS),
        Record(value=b"w", timestamp_ms=FIRST_MS),
    ]
    client.create_topic(topic, TopicPlan())
    client.produce(topic, sent, ProduceOptions())
    received = client.consume(topic, 0, 0, len(sent))
    must_equal(sent, received)
    return shown(received)


@scenario
def timestamps_are_the_clients(client: Client, topic: str) -> Any:
    times = [1, FIRST_MS, FIRST_MS - 1, FIRST_MS + 86_400_000, 1_000]
    sent = [Record(value=b"t", timestamp_ms=t) for t in times]
    client.create_topic(topic, TopicPlan())
    client.produce(topic, sent, ProduceOptions())
    received = client.consume(topic, 0, 0, len(sent))
    must_equal(sent, received)
    return shown(received)


@scenario
def log_append_time_is_the_brokers(client: Client, topic: str) -> Any:
    client.create_topic(topic, TopicPlan(configs={"message.timestamp.type": "LogAppendTime"}))
    sent = [Record(value=b"%d" % n, timestamp_ms=FIRST_MS) for n in range(20)]
    for codec in CODECS:
        client.produce(topic, sent, ProduceOptions(codec=codec))
    received = client.consume(topic, 0, 0, 20 * len(CODECS))
    assert all(r.timestamp_ms > FIRST_MS + 86_400_000 for r in received)
    assert [r.timestamp_ms for r in received] == sorted(r.timestamp_ms for r in received)
    return [[r.offset, repr(r.value)] for r in received]


@scenarios_for(CODECS, "1 MB records, {}")
def one_megabyte_records(client: Client, topic: str, codec: Codec) -> Any:
    client.create_topic(topic, TopicPlan(configs={"max.message.bytes": str(2 * MEGABYTE)}))
    block = hashlib.sha256(b"large").digest() * (MEGABYTE // 32)
    sent = [Record(key=b"%d" % n, value=block[n:] + block[:n], timestamp_ms=FIRST_MS) for n in range(3)]
    offsets = client.produce(topic, sent, ProduceOptions(codec=codec, max_request_bytes=2 * MEGABYTE))
    received = client.consume(topic, 0, 0, len(sent))
    must_equal(sent, received)
    return {"offsets": offsets, "records": digest(received)}


@scenario
def a_record_above_max_message_bytes_is_refused(client: Client, topic: str) -> Any:
    client.create_topic(topic, TopicPlan(configs={"max.message.bytes": "2000"}))
    client.produce(topic, [Record(value=b"s" * 1000, timestamp_ms=FIRST_MS)], ProduceOptions())
    code = 0
    try:
        client.produce(topic, [Record(value=b"x" * 5000, timestamp_ms=FIRST_MS)], ProduceOptions())
    except ClientError as error:
        code = error.code
    assert code != 0
    return {"error": code, "end": client.list_offset(topic, 0, -1)}


@scenario
def a_compacted_topic_refuses_a_record_without_key(client: Client, topic: str) -> Any:
    client.create_topic(topic, TopicPlan(configs={"cleanup.policy": "compact"}))
    code = 0
    try:
        client.produce(topic, [Record(value=b"x", timestamp_ms=FIRST_MS)], ProduceOptions())
    except ClientError as error:
        code = error.code
    assert code != 0
    kept = client.produce(topic, [Record(key=b"k", value=b"x", timestamp_ms=FIRST_MS)], ProduceOptions())
    return {"error": code, "offsets": kept}


@scenario
def many_batches_over_three_partitions(client: Client, topic: str) -> Any:
    client.create_topic(topic, TopicPlan(partitions=3))
    sent = [
        Record(key=r.key, value=r.value, headers=r.headers, timestamp_ms=r.timestamp_ms, partition=n % 3)
        for n, r in enumerate(sample_records(6000))
    ]
    # Idempotent: a retry keeps its place. Apache may answer the first request before it leads every partition.
    offsets = client.produce(topic, sent, ProduceOptions(batch_bytes=2048, idempotent=True))
    outcome = {}
    for partition in range(3):
        received = client.consume(topic, partition, 0, 2000)
        must_equal([r for r in sent if r.partition == partition], received)
        outcome[str(partition)] = digest(received)
    return {"offsets": offsets, "records": outcome}


@scenario
def reading_starts_inside_a_batch(client: Client, topic: str) -> Any:
    client.create_topic(topic, TopicPlan())
    sent = sample_records(100)
    client.produce(topic, sent, ProduceOptions(codec="gzip", batch_bytes=64 * 1024))
    received = client.consume(topic, 0, 37, 63)
    must_equal(sent[37:], received, first_offset=37)
    return digest(received)


@scenario
def read_committed_sees_plain_records(client: Client, topic: str) -> Any:
    client.create_topic(topic, TopicPlan())
    sent = sample_records(40)
    client.produce(topic, sent, ProduceOptions())
    received = client.consume(topic, 0, 0, 40, committed=True)
    must_equal(sent, received)
    return digest(received)


@scenario
def a_waiting_consumer_is_woken_by_a_record(client: Client, topic: str) -> Any:
    client.create_topic(topic, TopicPlan())
    sent = sample_records(3)
    received = client.consume_while(topic, 3, lambda: client.produce(topic, sent, ProduceOptions()))
    must_equal(sent, received)
    return digest(received)


@scenario
def reading_beyond_the_end_is_out_of_range(client: Client, topic: str) -> Any:
    client.create_topic(topic, TopicPlan())
    client.produce(topic, sample_records(5), ProduceOptions())
    code = 0
    try:
        client.consume(topic, 0, 6, 1)
    except ClientError as error:
        code = error.code
    assert code != 0
    return code


@scenario
def producing_creates_the_topic(client: Client, topic: str) -> Any:
    sent = sample_records(5)
    offsets = client.produce(topic, sent, ProduceOptions())
    must_equal(sent, client.consume(topic, 0, 0, 5))
    return {"offsets": offsets, "topic": client.describe_topic(topic)}


@scenarios_for(("gzip", "snappy", "lz4", "zstd", "uncompressed"), "topic compression.type {}")
def broker_side_compression(client: Client, topic: str, kind: str) -> Any:
    """The topic's codec differs from the producer's: the broker compresses anew and no byte of a record changes."""
    client.create_topic(topic, TopicPlan(configs={"compression.type": kind}))
    sent = sample_records(60)
    offsets: list[int] = []
    for codec in CODECS:
        offsets += client.produce(topic, sent, ProduceOptions(codec=codec, batch_bytes=32 * 1024))
    received = client.consume(topic, 0, 0, 60 * len(CODECS))
    for turn in range(len(CODECS)):
        must_equal(sent, received[turn * 60 : turn * 60 + 60], first_offset=turn * 60)
    return {"offsets": offsets, "records": digest(received)}
