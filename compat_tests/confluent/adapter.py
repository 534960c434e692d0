from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import admin as confluent_admin

from compat_tests.client import (
    MEGABYTE,
    WAIT_SECONDS,
    Client,
    ClientError,
    ProduceOptions,
    Received,
    Record,
    TopicPlan,
)

_LOCAL_TIMED_OUT = -185
_admin_names: Any = confluent_admin  # re-exported names, which the library's hints do not say


def _code(error: Exception) -> ClientError:
    inner = error.args[0] if error.args else None
    if isinstance(inner, KafkaError):
        return ClientError(inner.code(), inner.str())
    raise error


class ConfluentClient(Client):
    name = "confluent-kafka"
    version = str(confluent_kafka.__version__)

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._common: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "broker.address.family": "v4",
            "topic.metadata.refresh.fast.interval.ms": 20,
            "log_level": 0,
        }
        self._admin_client: Any = None

    @property
    def _admin(self) -> Any:
        if self._admin_client is None:
            self._admin_client = _admin_names.AdminClient(self._common)
        return self._admin_client

    def produce(self, topic: str, records: Sequence[Record], options: ProduceOptions) -> list[int]:
        producer = Producer(
            {
                **self._common,
                "acks": options.acks,
                "compression.type": options.codec,
                "enable.idempotence": options.idempotent,
                "batch.size": options.batch_bytes,
                "message.max.bytes": options.max_request_bytes,
                "linger.ms": 5,
                "message.timeout.ms": int(WAIT_SECONDS * 1000),
            }
        )
        offsets = [-1] * len(records)
        failures: list[KafkaError] = []

        def delivered(index: int) -> Callable[[KafkaError | None, Any], None]:
            def note(error: KafkaError | None, message: Any) -> None:
                if error is not None:
                    failures.append(error)
                elif options.acks != 0:
                    offsets[index] = message.offset()

            return note

        for index, record in enumerate(records):
            extra: dict[str, Any] = {} if record.timestamp_ms is None else {"timestamp": record.timestamp_ms}
            try:
                producer.produce(
                    topic,
                    record.value,
                    record.key,
                    record.partition,
                    on_delivery=delivered(index),
                    headers=list(record.headers),
                    **extra,
                )
            except KafkaException as error:  # librdkafka refuses some records by itself
                raise _code(error) from error
            producer.poll(0)
        producer.flush(WAIT_SECONDS)
        if failures:
            raise ClientError(failures[0].code(), failures[0].str())
        return offsets

    def _consumer(self, *, committed: bool = False) -> Consumer:
        return Consumer(
            {
                **self._common,
                "group.id": "never-joined",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "fetch.message.max.bytes": 4 * MEGABYTE,
            }
        )

    @staticmethod
    def _take(consumer: Consumer, count: int) -> list[Received]:
        taken: list[Received] = []
        while len(taken) < count:
            messages: list[Any] = consumer.consume(min(count - len(taken), 10_000), WAIT_SECONDS)
            if not messages:
                raise ClientError(_LOCAL_TIMED_OUT, f"{len(taken)} of {count} records arrived")
            for message in messages:
                error = message.error()
                if error is not None:
                    raise ClientError(error.code(), error.str())
                headers = tuple((name, value) for name, value in message.headers() or ())
                taken.append(
                    Received(message.offset(), message.key(), message.value(), headers, message.timestamp()[1])
                )
        return taken

    def consume(
        self, topic: str, partition: int, offset: int, count: int, *, committed: bool = False
    ) -> list[Received]:
        consumer = self._consumer(committed=committed)
        try:
            consumer.assign([TopicPartition(topic, partition, offset)])
            return self._take(consumer, count)
        finally:
            consumer.close()

    def consume_while(self, topic: str, count: int, produce: Callable[[], None]) -> list[Received]:
        consumer = self._consumer()
        try:
            consumer.assign([TopicPartition(topic, 0, 0)])
            consumer.poll(0)
            produce()
            return self._take(consumer, count)
        finally:
            consumer.close()

    def _done(self, futures: dict[Any, Any]) -> Any:
        (future,) = futures.values()
        try:
            return future.result(WAIT_SECONDS)
        except KafkaException as error:
            raise _code(error) from error

    def create_topic(self, name: str, plan: TopicPlan) -> None:
        topic = _admin_names.NewTopic(name, plan.partitions, plan.replication_factor, config=plan.configs)
        self._done(self._admin.create_topics([topic], validate_only=plan.validate_only))

    def delete_topic(self, name: str) -> None:
        self._done(self._admin.delete_topics([name]))

    def create_partitions(self, name: str, total: int) -> None:
        self._done(self._admin.create_partitions([_admin_names.NewPartitions(name, total)]))

    def describe_topic(self, name: str) -> dict[str, Any]:
        topic = self._admin.list_topics(name, WAIT_SECONDS).topics[name]
        if topic.error is not None:
            raise ClientError(topic.error.code(), topic.error.str())
        return {
            "partitions": {
                index: {"leader": p.leader, "replicas": list(p.replicas), "isr": list(p.isrs)}
                for index, p in sorted(topic.partitions.items())
            }
        }

    def list_topics(self) -> list[str]:
        return sorted(self._admin.list_topics(timeout=WAIT_SECONDS).topics)

    def describe_configs(self, name: str) -> dict[str, str | None]:
        resource = _admin_names.ConfigResource(_admin_names.ConfigResource.Type.TOPIC, name)
        entries = self._done(self._admin.describe_configs([resource]))
        return {entry.name: entry.value for entry in entries.values()}

    def alter_configs(self, name: str, settings: dict[str, str]) -> None:
        operation = _admin_names.AlterConfigOpType.SET
        entries = [
            _admin_names.ConfigEntry(key, value, incremental_operation=operation) for key, value in settings.items()
        ]
        kind = _admin_names.ConfigResource.Type.TOPIC
        resource = _admin_names.ConfigResource(kind, name, incremental_configs=entries)
        self._done(self._admin.incremental_alter_configs([resource]))

    def describe_cluster(self) -> dict[str, Any]:
        cluster = self._admin.list_topics(timeout=WAIT_SECONDS)
        nodes = [[node.id, f"{node.host}:{node.port}"] for node in cluster.brokers.values()]
        return {"nodes": sorted(nodes), "controller": cluster.controller_id}

    def list_offset(self, topic: str, partition: int, timestamp: int) -> int:
        specs = _admin_names.OffsetSpec
        spec = {-1: specs.latest(), -2: specs.earliest()}.get(timestamp) or specs.for_timestamp(timestamp)
        found = self._done(self._admin.list_offsets({TopicPartition(topic, partition): spec}))
        return int(found.offset)
