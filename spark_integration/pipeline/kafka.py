"""Kafka's side of the pipeline: its topics, its clients, where a topic ends. All clients hash keys as Java's do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from spark_integration.pipeline.settings import Settings

SECONDS = 30.0
GRACE_SECONDS = 5.0  # for a call to return after its own timeout
Answer = TypeVar("Answer")


def now_ms() -> int:
    return int(time.time() * 1000)


def create_topics(settings: Settings) -> None:
    """The topics of the pipeline, where they are not there yet.

    The broker's clock dates the input: a producer's wrong clock must not move the watermark. The retry topic has one
    partition per attempt, so that in each of them the records fall due in their order.
    """
    compacted = {"cleanup.policy": "compact"}
    plans = {
        settings.input_topic: (settings.partitions, {"message.timestamp.type": "LogAppendTime"}),
        settings.retry_topic: (max(settings.attempts, settings.malformed_attempts, 2) - 1, {}),
        settings.dead_topic: (1, {}),
        settings.totals_topic: (settings.partitions, compacted),
        settings.pages_topic: (1, compacted),
    }
    new = [NewTopic(topic, partitions, 1, config=config) for topic, (partitions, config) in plans.items()]
    admin = AdminClient({"bootstrap.servers": settings.bootstrap})
    for created in admin.create_topics(new).values():
        try:
            created.result(SECONDS)
        except KafkaException as failed:
            if failed.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def patiently(settings: Settings, ask: Callable[[], Answer]) -> Answer:
    """The answer, when there is one: a broker that is away is asked again."""
    deadline = time.monotonic() + settings.patience_s
    while True:
        try:
            return ask()
        except KafkaException:
            if time.monotonic() > deadline:
                raise


def _common(settings: Settings) -> dict[str, Any]:
    """A broker that is away is told by what fails, and not by a line for every try to reach it."""
    return {"bootstrap.servers": settings.bootstrap, "log_level": 2}


def producer(settings: Settings, transactional_id: str | None = None) -> Producer:
    """Idempotent; with an id transactional too, and then whoever had the id before is fenced off."""
    config: dict[str, Any] = {
        **_common(settings),
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        "linger.ms": 5,
    }
    if transactional_id is not None:
        config["transactional.id"] = transactional_id
    made = Producer(config)
    if transactional_id is not None:
        made.init_transactions(SECONDS)
    return made


def consumer(settings: Settings, group: str) -> Consumer:
    """Reads what is committed, from where it is told, and says where a partition ends; commits when it is told.

    The end must be said: the markers of transactions take offsets too and are never handed out, so that after the last
    record there may be more to pass.
    """
    return Consumer(
        {
            **_common(settings),
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )


def partitions_of(client: Consumer, topic: str) -> list[TopicPartition]:
    known = client.list_topics(topic, timeout=SECONDS).topics[topic]
    if known.error is not None:
        raise KafkaException(known.error)
    return [TopicPartition(topic, number) for number in sorted(known.partitions)]


def bounds(client: Consumer, partition: TopicPartition) -> tuple[int, int]:
    """The first offset there is, and the first that is not."""
    low, high = client.get_watermark_offsets(partition, timeout=SECONDS)
    return low, high


def end_offsets(client: Consumer, topic: str) -> dict[int, int]:
    return {partition.partition: bounds(client, partition)[1] for partition in partitions_of(client, topic)}


def committed(client: Consumer, partitions: list[TopicPartition]) -> dict[int, int]:
    """The group's offsets, where it has any."""
    found = client.committed(partitions, timeout=SECONDS)
    return {partition.partition: partition.offset for partition in found if partition.offset >= 0}


def commit_transaction(producer: Producer, consumer: Consumer, offsets: list[TopicPartition]) -> None:
    """Commits the open transaction together with offsets of the consumer's group; raises KafkaException on failure.

    librdkafka ignores the timeout of send_offsets_to_transaction and may wait for ever if the broker restarts during
    the call (confluentinc/librdkafka#5456). Hence the call has a thread of its own, which is abandoned after the
    timeout. The next producer with the same transactional id fences the abandoned one.
    """
    group = consumer.consumer_group_metadata()
    failures: list[KafkaException] = []

    def send_offsets() -> None:
        try:
            producer.send_offsets_to_transaction(offsets, group, SECONDS)
        except KafkaException as failed:
            failures.append(failed)

    sender = threading.Thread(target=send_offsets, name="send-offsets", daemon=True)
    sender.start()
    sender.join(SECONDS + GRACE_SECONDS)
    if sender.is_alive():
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "send_offsets_to_transaction did not return"))
    if failures:
        raise failures[0]
    producer.commit_transaction(SECONDS)


@dataclass(frozen=True)
class Record:
    """As it was read; or, with `is_end`, no record but the word that the partition ends at this offset."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, str]
    is_end: bool


def take(client: Consumer, most: int, seconds: float) -> list[Record]:
    """What comes within this time, as soon as there are so many."""
    taken = []
    messages: list[Any] = client.consume(most, seconds)
    for message in messages:
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        headers = {} if error is not None else {name: (text or b"").decode() for name, text in message.headers() or []}
        place = (message.topic(), message.partition(), message.offset(), message.timestamp()[1])
        value = None if error is not None else message.value()  # of an end: the word itself
        taken.append(Record(*place, message.key(), value, headers, error is not None))
    return taken


def read_between(client: Consumer, start: list[TopicPartition], ends: dict[int, int]) -> Iterator[Record]:
    """Every committed record of one topic from these positions to these ends."""
    client.assign(start)
    open_partitions = {at.partition for at in start if at.offset < ends[at.partition]}
    while open_partitions:
        for record in take(client, 1000, 0.5):
            end = ends[record.partition]
            if not record.is_end and record.offset < end:
                yield record
            if record.offset >= end - 1:
                open_partitions.discard(record.partition)


def read_all(settings: Settings, topic: str) -> list[Record]:
    """Every committed record between the topic's bounds as they are now."""
    client = consumer(settings, f"{settings.name}.look")
    try:
        limits = {partition.partition: bounds(client, partition) for partition in partitions_of(client, topic)}
        start = [TopicPartition(topic, number, low) for number, (low, _) in limits.items()]
        return list(read_between(client, start, {number: high for number, (_, high) in limits.items()}))
    finally:
        client.close()
