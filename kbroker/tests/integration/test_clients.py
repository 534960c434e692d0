"""Smoke: real clients produce and consume by assign() on a broker in this process. The wide suite is compat_tests/."""

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PurePythonTopicPartition

import kbroker

COUNT = 200
VALUES = [f"value {number}".encode() for number in range(COUNT)]


def consume_with_confluent(broker: kbroker.Broker, topic: str, count: int = COUNT) -> list[bytes | None]:
    # Without a group coordinator there is nobody to commit to: a commit on close would wait for one.
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes | None] = []
    try:
        while len(values) < count:
            message = consumer.poll(10)
            assert message is not None, f"only {len(values)} records came"
            assert message.error() is None, message.error()
            values.append(message.value())
    finally:
        consumer.close()
    return values


@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_confluent_kafka_gets_back_what_it_produced(broker: kbroker.Broker, codec: str, idempotent: bool) -> None:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": idempotent,
            "compression.type": codec,
            "linger.ms": 5,
        }
    )
    for value in VALUES:
        producer.produce("t", value, b"key", partition=0)
    assert producer.flush(20) == 0
    assert consume_with_confluent(broker, "t") == VALUES


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_kafka_python_gets_back_what_it_produced(broker: kbroker.Broker, acks: int | str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks=acks, enable_idempotence=acks == "all")
    for value in VALUES:
        producer.send("t", value, partition=0)
    producer.flush(20)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
    consumer.assign([PurePythonTopicPartition("t", 0)])
    consumer.seek_to_beginning()
    values: list[bytes] = []
    while len(values) < COUNT:
        found = consumer.poll(timeout_ms=10_000)
        assert found, f"only {len(values)} records came"
        values += [record.value for records in found.values() for record in records]
    consumer.close()
    assert values == VALUES


def test_aiokafka_gets_back_what_it_produced(broker: kbroker.Broker) -> None:
    async def round_trip() -> list[bytes]:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, enable_idempotence=True) as producer:
            for value in VALUES:
                await producer.send("t", value, partition=0)
        consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
        consumer.assign([AioTopicPartition("t", 0)])
        async with consumer:
            return [(await asyncio.wait_for(consumer.getone(), 10)).value for _ in range(COUNT)]

    assert asyncio.run(round_trip()) == VALUES


def test_records_survive_a_restart(start_broker: Callable[..., kbroker.Broker], tmp_path: object) -> None:
    first = start_broker(tmp_path)
    producer = Producer({"bootstrap.servers": first.bootstrap_servers})
    for value in VALUES:
        producer.produce("t", value, partition=0)
    assert producer.flush(20) == 0
    first.stop()
    second = start_broker(tmp_path)
    assert consume_with_confluent(second, "t") == VALUES


def test_brokers_of_one_process_know_nothing_of_each_other(start_broker: Callable[..., kbroker.Broker]) -> None:
    one, other = start_broker(), start_broker()
    assert one.port != other.port
    producer = Producer({"bootstrap.servers": one.bootstrap_servers})
    producer.produce("only-here", b"x")
    assert producer.flush(20) == 0
    admin_view = Producer({"bootstrap.servers": other.bootstrap_servers}).list_topics(timeout=10)
    assert "only-here" not in admin_view.topics
