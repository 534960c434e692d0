from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

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

_T = TypeVar("_T")
_WAIT_MS = int(WAIT_SECONDS * 1000)


@contextmanager
def _codes() -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        raise ClientError(getattr(error, "errno", -1), repr(error)) from error


class AiokafkaClient(Client):
    """Every call opens what it needs in one run of an event loop of its own, and closes it."""

    name = "aiokafka"
    version = aiokafka.__version__
    sends_nothing_at_all = False

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        with _codes():
            return asyncio.run(work)

    def produce(self, topic: str, records: Sequence[Record], options: ProduceOptions) -> list[int]:
        return self._run(self._produce(topic, records, options))

    async def _produce(self, topic: str, records: Sequence[Record], options: ProduceOptions) -> list[int]:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            acks="all" if options.acks == -1 else options.acks,
            compression_type=None if options.codec == "none" else options.codec,
            enable_idempotence=options.idempotent,
            max_batch_size=options.batch_bytes,
            max_request_size=options.max_request_bytes,
            linger_ms=5,
            request_timeout_ms=_WAIT_MS,
        )
        await producer.start()
        try:
            sent = [
                await producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            await producer.flush()
            delivered = [await future for future in sent]
        finally:
            await producer.stop()
        return [-1 if options.acks == 0 else d.offset for d in delivered]

    def _consumer(self, *, committed: bool = False) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed" if committed else "read_uncommitted",
            max_partition_fetch_bytes=4 * MEGABYTE,
        )

    @staticmethod
    async def _take(consumer: AIOKafkaConsumer, count: int) -> list[Received]:
        taken: list[Received] = []
        while len(taken) < count:
            polled = await consumer.getmany(timeout_ms=_WAIT_MS, max_records=count - len(taken))
            if not polled:
                raise ClientError(-185, f"{len(taken)} of {count} records arrived")
            for records in polled.values():
                taken += [Received(r.offset, r.key, r.value, tuple(r.headers), r.timestamp) for r in records]
        return taken

    def consume(
        self, topic: str, partition: int, offset: int, count: int, *, committed: bool = False
    ) -> list[Received]:
        async def work() -> list[Received]:
            consumer = self._consumer(committed=committed)
            await consumer.start()
            try:
                place = TopicPartition(topic, partition)
                consumer.assign([place])
                consumer.seek(place, offset)
                return await self._take(consumer, count)
            finally:
                await consumer.stop()

        return self._run(work())

    def consume_while(self, topic: str, count: int, produce: Callable[[], None]) -> list[Received]:
        async def work() -> list[Received]:
            consumer = self._consumer()
            await consumer.start()
            try:
                place = TopicPartition(topic, 0)
                consumer.assign([place])
                consumer.seek(place, 0)
                waiting = asyncio.ensure_future(self._take(consumer, count))
                await asyncio.to_thread(produce)
                return await waiting
            finally:
                await consumer.stop()

        return self._run(work())

    def _ask(self, question: Callable[[AIOKafkaAdminClient], Coroutine[Any, Any, _T]]) -> _T:
        async def work() -> _T:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
            await admin.start()
            try:
                return await question(admin)
            finally:
                await admin.close()

        return self._run(work())

    @staticmethod
    def _first_error(errors: Sequence[Sequence[Any]]) -> None:
        if errors[0][1] != 0:
            raise ClientError(errors[0][1])

    def create_topic(self, name: str, plan: TopicPlan) -> None:
        topic = NewTopic(name, plan.partitions, plan.replication_factor, topic_configs=plan.configs)
        answer: Any = self._ask(lambda admin: admin.create_topics([topic], validate_only=plan.validate_only))
        self._first_error(answer.topic_errors)

    def delete_topic(self, name: str) -> None:
        answer: Any = self._ask(lambda admin: admin.delete_topics([name]))
        self._first_error(answer.topic_error_codes)

    def create_partitions(self, name: str, total: int) -> None:
        self._ask(lambda admin: admin.create_partitions({name: NewPartitions(total)}))

    def describe_topic(self, name: str) -> dict[str, Any]:
        (topic,) = self._ask(lambda admin: admin.describe_topics([name]))
        if topic["error_code"] != 0:
            raise ClientError(topic["error_code"])
        return {
            "partitions": {
                p["partition"]: {"leader": p["leader"], "replicas": p["replicas"], "isr": p["isr"]}
                for p in sorted(topic["partitions"], key=lambda p: p["partition"])
            }
        }

    def list_topics(self) -> list[str]:
        return sorted(self._ask(lambda admin: admin.list_topics()))

    def describe_configs(self, name: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        answers: Any = self._ask(lambda admin: admin.describe_configs([resource]))
        ((code, _, _, _, entries),) = answers[0].resources
        if code != 0:
            raise ClientError(code)
        return {entry[0]: entry[1] for entry in entries}

    def alter_configs(self, name: str, settings: dict[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, name, configs=settings)
        answers: Any = self._ask(lambda admin: admin.alter_configs([resource]))
        ((code, message, _, _),) = answers[0].resources
        if code != 0:
            raise ClientError(code, message)

    def describe_cluster(self) -> dict[str, Any]:
        cluster = self._ask(lambda admin: admin.describe_cluster())
        nodes = [[b["node_id"], f"{b['host']}:{b['port']}"] for b in cluster["brokers"]]
        return {"nodes": sorted(nodes), "controller": cluster["controller_id"]}

    def list_offset(self, topic: str, partition: int, timestamp: int) -> int:
        async def work() -> int:
            consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, group_id=None)
            await consumer.start()
            try:
                place = TopicPartition(topic, partition)
                consumer.assign([place])
                if timestamp == -1:
                    return int((await consumer.end_offsets([place]))[place])
                if timestamp == -2:
                    return int((await consumer.beginning_offsets([place]))[place])
                found = (await consumer.offsets_for_times({place: timestamp}))[place]
                return -1 if found is None else int(found.offset)
            finally:
                await consumer.stop()

        return self._run(work())
