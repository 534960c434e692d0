"""Batches whose codec has no native engine: the control side inflates them and appends, with the same answers."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

import kbroker
from kbroker._core.record.records import Record, build_batch
from kbroker.protocol.messages import ProduceRequest, ProduceResponse
from kbroker.tests.integration.test_clients import VALUES, consume_with_confluent
from kbroker.tests.integration.wire import Connection

CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
EVERY_CODEC = sum(1 << codec for codec in CODECS.values())


@pytest.fixture
def broker() -> Iterator[kbroker.Broker]:
    without_engines = kbroker.Broker()
    without_engines.core_options = {"force_fallback_codecs": EVERY_CODEC}
    with without_engines as running:
        yield running


@pytest.fixture
def connection(broker: kbroker.Broker) -> Iterator[Connection]:
    with Connection(broker.port) as connected:
        connected.create_topic("t", 2)
        yield connected


def batch(codec: int = CODECS["zstd"], **more: Any) -> bytes:
    return build_batch([Record(value=b"v" * 100), Record(value=None, key=b"k")], codec=codec, **more)


def produce(connection: Connection, records: bytes | None, version: int = 9, acks: int = -1, topic: str = "t") -> Any:
    one = ProduceRequest.PartitionProduceData(index=0, records=records)
    data = ProduceRequest.TopicProduceData(name=topic, partition_data=[one])
    answer: ProduceResponse = connection.ask(ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[data]), version)
    return answer.responses[0].partition_responses[0]


@pytest.mark.parametrize("codec", CODECS)
def test_clients_get_back_what_they_produced(broker: kbroker.Broker, codec: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 5,
        }
    )
    for value in VALUES:
        producer.produce("t", value, partition=0)
    assert producer.flush(20) == 0
    assert consume_with_confluent(broker, "t") == VALUES


@pytest.mark.parametrize("version", range(7, 13))
def test_every_version_by_name_appends(connection: Connection, version: int) -> None:
    first, second = (produce(connection, batch(), version) for _ in range(2))
    assert (first.error_code, first.base_offset, second.base_offset) == (0, 0, 2)


def test_version_13_finds_the_topic_by_its_id(connection: Connection) -> None:
    topic_id = connection.topic_id("t")
    answers = []
    for asked in (topic_id, b"\x01" * 16):
        one = ProduceRequest.PartitionProduceData(index=1, records=batch())
        data = ProduceRequest.TopicProduceData(topic_id=asked, partition_data=[one])
        answer = connection.ask(ProduceRequest(acks=1, timeout_ms=5000, topic_data=[data]), 13)
        answers.append(answer.responses[0].partition_responses[0].error_code)
    assert answers == [0, 100]


def test_a_repeated_idempotent_batch_is_answered_with_its_first_offset(connection: Connection) -> None:
    once = batch(producer_id=7, producer_epoch=0, base_sequence=0)
    assert [produce(connection, once).base_offset for _ in range(2)] == [0, 0]


def garbage_inside() -> bytes:
    """A right checksum over contents that no decoder accepts."""
    from kbroker._core.record.crc32c import checksum

    broken = bytearray(batch())
    broken[61:] = b"\xee" * (len(broken) - 61)
    broken[17:21] = checksum(bytes(broken[21:])).to_bytes(4, "big")
    return bytes(broken)


def wrong_checksum() -> bytes:
    return batch()[:-1] + b"\x00"


def with_magic(magic: int) -> bytes:
    changed = bytearray(batch())
    changed[16] = magic
    return bytes(changed)


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (garbage_inside(), -1),
        (wrong_checksum(), 2),
        (with_magic(1), 87),
        (batch() + batch(), 87),
        (b"", 87),
    ],
    ids=["garbage", "checksum", "magic 1", "two batches", "empty"],
)
def test_bad_batches_are_refused_as_the_data_plane_refuses_them(
    connection: Connection, records: bytes, error: int
) -> None:
    # A second, good partition of a fallback codec takes the whole request to the control side.
    good = ProduceRequest.PartitionProduceData(index=1, records=batch())
    bad = ProduceRequest.PartitionProduceData(index=0, records=records)
    data = ProduceRequest.TopicProduceData(name="t", partition_data=[bad, good])
    answer = connection.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), 9)
    refused, accepted = answer.responses[0].partition_responses
    assert (refused.error_code, refused.base_offset, accepted.error_code) == (error, -1, 0)


def test_a_batch_that_can_be_none_fails_the_whole_request_before_anything_is_inflated(connection: Connection) -> None:
    parts = [
        ProduceRequest.PartitionProduceData(index=index, records=records)
        for index, records in enumerate([with_magic(3), batch()])
    ]
    data = ProduceRequest.TopicProduceData(name="t", partition_data=parts)
    answer = connection.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), 9)
    assert [one.error_code for one in answer.responses[0].partition_responses] == [2, 2]


def test_acks_0_gets_no_answer_and_a_refusal_closes_the_connection(connection: Connection) -> None:
    connection.send(_with_acks_0(batch()), 9)
    assert produce(connection, batch()).base_offset == 2
    connection.send(_with_acks_0(garbage_inside()), 9)
    assert connection.is_closed()


def _with_acks_0(records: bytes) -> ProduceRequest:
    one = ProduceRequest.PartitionProduceData(index=0, records=records)
    data = ProduceRequest.TopicProduceData(name="t", partition_data=[one])
    return ProduceRequest(acks=0, timeout_ms=5000, topic_data=[data])


def test_records_that_inflate_past_the_cap_are_too_large(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbroker.api.k00_produce.DECOMPRESSED_BATCH_MAX_BYTES", 50)
    assert produce(connection, batch()).error_code == 10
