from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import kafka
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
from kafka.errors import KafkaError

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

_WAIT_MS = int(WAIT_SECONDS * 1000)


@contextmanager
def _codes() -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        raise ClientError(getattr(error, "errno", -1), repr(error)) from error


def _first_error(items: list[dict[str, Any]]) -> None:
    if items[0]["error_code"] != 0:
        raise ClientError(items[0]["error_code"])


class KafkaPythonClient(Client):
    name = "kafka-python"
    version = kafka.__version__
    sends_nothing_at_all = False
    sends_null_headers = False

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._admin_client: Any = None

    @property
    def _admin(self) -> Any:
        if self._admin_client is None:
            self._admin_client = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        return self._admin_client

    def close(self) -> None:
        if self._admin_client is not None:
            self._admin_client.close()

    def produce(self, topic: str, records: Sequence[Record], options: ProduceOptions) -> list[int]:
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            acks="all" if options.acks == -1 else options.acks,
            compression_type=None if options.codec == "none" else options.codec,
            enable_idempotence=options.idempotent,
            batch_size=options.batch_bytes,
            max_request_size=options.max_request_bytes,
            linger_ms=5,
            delivery_timeout_ms=_WAIT_MS,
            request_timeout_ms=_WAIT_MS - 1000,
        )
        try:
            with _codes():
                sent = [
                    producer.send(
                        topic,
                        value=record.value,
                        key=record.key,
                        headers=list(record.headers),
                        partition=record.partition,
                        timestamp_ms=record.timestamp_ms,
                    )
                    for record in records
                ]
                producer.flush(WAIT_SECONDS)
                offsets = [future.get(WAIT_SECONDS).offset for future in sent]
            return offsets if options.acks != 0 else [-1] * len(records)
        finally:
            producer.close(WAIT_SECONDS)

    def _consumer(self, *, committed: bool = False) -> Any:
        return KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed" if committed else "read_uncommitted",
            max_partition_fetch_bytes=4 * MEGABYTE,
            max_poll_records=10_000,
        )

    @staticmethod
    def _take(consumer: Any, count: int) -> list[Received]:
        taken: list[Received] = []
        while len(taken) < count:
            with _codes():
                polled = consumer.poll(_WAIT_MS, max_records=min(count - len(taken), 10_000))
            if not polled:
                raise ClientError(-185, f"{len(taken)} of {count} records arrived")
            for records in polled.values():
                taken += [Received(r.offset, r.key, r.value, tuple(r.headers), r.timestamp) for r in records]
        return taken

    def consume(
        self, topic: str, partition: int, offset: int, count: int, *, committed: bool = False
    ) -> list[Received]:
        consumer = self._consumer(committed=committed)
        try:
            place = TopicPartition(topic, partition)
            consumer.assign([place])
            consumer.seek(place, offset)
            return self._take(consumer, count)
        finally:
            consumer.close()

    def consume_while(self, topic: str, count: int, produce: Callable[[], None]) -> list[Received]:
        consumer = self._consumer()
        try:
            place = TopicPartition(topic, 0)
            consumer.assign([place])
            consumer.seek(place, 0)
            consumer.poll(1)
            produce()
            return self._take(consumer, count)
        finally:
            consumer.close()

    def create_topic(self, name: str, plan: TopicPlan) -> None:
        wanted = {
            "num_partitions": plan.partitions,
            "replication_factor": plan.replication_factor,
            "configs": plan.configs,
        }
        with _codes():
            answer = self._admin.create_topics({name: wanted}, validate_only=plan.validate_only, raise_errors=False)
        _first_error(answer["topics"])

    def delete_topic(self, name: str) -> None:
        with _codes():
            answer = self._admin.delete_topics([name], raise_errors=False)
        _first_error(answer["topics"])

    def create_partitions(self, name: str, total: int) -> None:
        with _codes():
            answer = self._admin.create_partitions({name: total}, raise_errors=False)
        _first_error(answer.to_dict()["results"] if hasattr(answer, "to_dict") else answer["results"])

    def describe_topic(self, name: str) -> dict[str, Any]:
        with _codes():
            (topic,) = self._admin.describe_topics([name])
        _first_error([topic])
        return {
            "partitions": {
                p["partition_index"]: {"leader": p["leader_id"], "replicas": p["replica_nodes"], "isr": p["isr_nodes"]}
                for p in sorted(topic["partitions"], key=lambda p: p["partition_index"])
            }
        }

    def list_topics(self) -> list[str]:
        with _codes():
            return sorted(self._admin.list_topics())

    def describe_configs(self, name: str) -> dict[str, str | None]:
        with _codes():
            answer = self._admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)], config_filter="all")
        return {key: entry["value"] for key, entry in answer["topic"][name].items()}

    def alter_configs(self, name: str, settings: dict[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, name, configs=settings)
        with _codes():
            answer = self._admin.alter_configs([resource], raise_on_unknown=False)
        told = str(answer["topic"][name])
        if told != "OK":
            raise ClientError(int(re.findall(r"-?\d+", told)[0]), told)

    def describe_cluster(self) -> dict[str, Any]:
        with _codes():
            cluster = self._admin.describe_cluster()
        nodes = [[b.get("node_id", b.get("broker_id")), f"{b['host']}:{b['port']}"] for b in cluster["brokers"]]
        return {"nodes": sorted(nodes), "controller": cluster["controller_id"]}

    def list_offset(self, topic: str, partition: int, timestamp: int) -> int:
        place = TopicPartition(topic, partition)
        spec = {-1: OffsetSpec.LATEST, -2: OffsetSpec.EARLIEST}.get(timestamp, timestamp)
        with _codes():
            return int(self._admin.list_partition_offsets({place: spec})[place].offset)
