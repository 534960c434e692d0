"""The exactly-once Kafka sink: a batch is one transaction, and its number is committed in it.

Spark's own Kafka sink is at-least-once: a task or a batch that runs again writes its records again, and a task that
outlived its driver may write old ones late. Here the driver writes what a batch leaves behind, which is little beside
what it read: failed records and changed totals. The same transaction commits the batch's number as the offset of a
consumer group; a batch whose number is there was written whole, and is not written again. The transactional id fences
off a driver that was thought dead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from spark_integration.pipeline import kafka
from spark_integration.pipeline.settings import Settings


@dataclass(frozen=True)
class Outgoing:
    topic: str
    key: bytes | None
    value: bytes | None
    partition: int = -1
    headers: dict[str, str] = field(default_factory=dict)


def send(producer: Producer, record: Outgoing) -> None:
    """Into the producer's queue; a full queue is waited for."""
    headers: list[tuple[str, str | bytes | None]] = [(name, value.encode()) for name, value in record.headers.items()]
    while True:
        try:
            producer.produce(record.topic, record.value, record.key, record.partition, headers=headers)
            producer.poll(0)
        except BufferError:
            producer.poll(1.0)
        else:
            return


class ExactSink:
    """One per running pipeline. Clients that failed are thrown away: what counts is what Kafka knows."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._clients: tuple[Producer, Consumer] | None = None
        self._mark = TopicPartition(settings.totals_topic, 0)

    def write(self, batch: int, records: Callable[[], Iterable[Outgoing]]) -> bool:
        """Whether it was written now; False when it had been. A broker that is away is waited for."""
        deadline = time.monotonic() + self._settings.patience_s
        while True:
            try:
                return self._write(batch, records)
            except KafkaException:
                self.close()
                if time.monotonic() > deadline:
                    raise

    def close(self) -> None:
        if self._clients is not None:
            self._clients[1].close()
        self._clients = None

    def _write(self, batch: int, records: Callable[[], Iterable[Outgoing]]) -> bool:
        if self._clients is None:
            name = f"{self._settings.name}.sink"
            self._clients = (kafka.producer(self._settings, name), kafka.consumer(self._settings, f"{name}.batches"))
        producer, consumer = self._clients
        if kafka.committed(consumer, [self._mark]).get(0, 0) > batch:
            return False
        leaving = list(records())  # before it begins: an open transaction holds up those who read committed records
        producer.begin_transaction()
        for record in leaving:
            send(producer, record)
        done = TopicPartition(self._mark.topic, 0, batch + 1)
        kafka.commit_transaction(producer, consumer, [done])
        return True
