"""Members of groups, one class per client, all driven alike: they poll on a thread of their own and are looked at."""

from __future__ import annotations

import asyncio
import queue
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from compat_tests.client import WAIT_SECONDS
from compat_tests.go import FranzGoClient
from compat_tests.harness import Broker
from compat_tests.leash import Leash
from compat_tests.node import KafkaJsClient
from compat_tests.oracle import MissingToolError
from compat_tests.until import until

PARTITIONS = 4
RECORDS = 40


def make_topic(broker: Broker, topic: str, first_ms: int | None = None) -> None:
    """Four partitions, ten records each; from `first_ms` on they are a second apart."""
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(WAIT_SECONDS)
    produce_to(broker, topic, RECORDS, first_ms=first_ms)


def produce_to(broker: Broker, topic: str, count: int, *, first: int = 0, first_ms: int | None = None) -> None:
    """Numbers, from partition to partition."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(first, first + count):
        when = 0 if first_ms is None else first_ms + 1000 * (number - first)  # 0: now
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS, timestamp=when)
    assert producer.flush(WAIT_SECONDS) == 0


class Confluent:
    """A consumer whose partitions and records are looked at between polls."""

    def __init__(self, broker: Broker, group: str, **settings: Any) -> None:
        from confluent_kafka import Consumer

        self.got: list[int] = []
        ours = settings.get("group.protocol") != "consumer"  # then the broker says how often and how long
        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **({"session.timeout.ms": 6_000, "heartbeat.interval.ms": 200} if ours else {}),
                **settings,
            }
        )

    def subscribe(self, topic: str) -> None:
        self.consumer.subscribe([topic])

    def poll(self) -> None:
        record = self.consumer.poll(0.02)
        if record is not None and record.error() is None:
            self.got.append(int(record.value() or b""))

    def owns(self) -> set[int]:
        return {one.partition for one in self.consumer.assignment()}

    def commit(self) -> None:
        self.consumer.commit(asynchronous=False)

    def close(self) -> None:
        self.consumer.close()


class KafkaPython:
    def __init__(self, broker: Broker, group: str, **settings: Any) -> None:
        from kafka import KafkaConsumer

        self.got: list[int] = []
        self.consumer = KafkaConsumer(
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=200,
            **settings,
        )

    def subscribe(self, topic: str) -> None:
        self.consumer.partitions_for_topic(topic)  # else it may join, and assign, before it knows the topic
        self.consumer.subscribe([topic])

    def poll(self) -> None:
        for records in self.consumer.poll(timeout_ms=100).values():
            self.got += [int(one.value) for one in records]

    def owns(self) -> set[int]:
        return {one.partition for one in self.consumer.assignment()}

    def commit(self) -> None:
        self.consumer.commit()

    def close(self) -> None:
        self.consumer.close()


class Aiokafka:
    """On a loop of its own, which runs while it is asked something."""

    def __init__(self, broker: Broker, group: str, **settings: Any) -> None:
        from aiokafka import AIOKafkaConsumer

        self.got: list[int] = []
        self.loop = asyncio.new_event_loop()

        async def made() -> Any:
            return AIOKafkaConsumer(
                bootstrap_servers=broker.bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                session_timeout_ms=6_000,
                heartbeat_interval_ms=200,
                **settings,
            )

        self.consumer = self.loop.run_until_complete(made())
        self.started = False

    def subscribe(self, topic: str) -> None:
        self.consumer.subscribe([topic])

    def poll(self) -> None:
        if not self.started:
            self.started = True
            self.loop.run_until_complete(self.consumer.start())
        for records in self.loop.run_until_complete(self.consumer.getmany(timeout_ms=20)).values():
            self.got += [int(one.value) for one in records]

    def owns(self) -> set[int]:
        return {one.partition for one in self.consumer.assignment()}

    def commit(self) -> None:
        self.loop.run_until_complete(self.consumer.commit())

    def close(self) -> None:
        self.loop.run_until_complete(self.consumer.stop())
        self.loop.close()


class Leashed:
    """A member in the process of another language, which polls on its own: polling here is looking at it."""

    def __init__(self, broker: Broker, group: str, *, leash: Leash, balancer: str = "") -> None:
        self.got: list[int] = []
        self._owned: set[int] = set()
        self._leash = leash
        self._pause = threading.Event()
        self._about = {
            "member": uuid.uuid4().hex,
            "bootstrap": broker.bootstrap,
            "group": group,
            "balancer": balancer,
        }

    def _ask(self, op: str, **more: Any) -> Any:
        return self._leash.ask({"op": f"member_{op}", **self._about, **more})

    def subscribe(self, topic: str) -> None:
        self._ask("join", topic=topic)

    def poll(self) -> None:
        self._pause.wait(0.02)
        seen = self._ask("look")
        self._owned, self.got = set(seen["owned"]), [int(one) for one in seen["read"]]

    def owns(self) -> set[int]:
        return self._owned

    def commit(self) -> None:
        self._ask("commit")

    def close(self) -> None:
        self._ask("leave")


class Driven:
    """A consumer on a thread of its own, as a process has one: it polls all the time, and is asked in between."""

    def __init__(self, build: Callable[[], Any], topic: str) -> None:
        self._questions: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._ended = False
        self._build, self._topic = build, topic
        self._owned: set[int] = set()
        self._problem: Exception | None = None
        self.got: list[int] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._consume()
        except Exception as problem:  # whoever looks at it is told
            self._problem = problem

    def _consume(self) -> None:
        consumer = self.consumer = self._build()
        consumer.subscribe(self._topic)
        while not self._ended:
            consumer.poll()
            self._owned, self.got = set(consumer.owns()), list(consumer.got)
            while not self._questions.empty():
                question, answer = self._questions.get()
                answer.set_result(question())

    def owns(self) -> set[int]:
        if self._problem is not None:
            raise self._problem
        return self._owned

    def commit(self) -> None:
        answer: Future[Any] = Future()
        self._questions.put((self.consumer.commit, answer))
        answer.result(WAIT_SECONDS)

    def close(self) -> None:
        """Leaves the group, in its own thread."""
        if self._thread.is_alive() and not self._ended:
            answer: Future[Any] = Future()
            self._questions.put((self._end, answer))
            answer.result(WAIT_SECONDS)
            self._thread.join(WAIT_SECONDS)

    def _end(self) -> None:
        self._ended = True
        self.consumer.close()


KINDS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "confluent-kafka eager": (Confluent, {"partition.assignment.strategy": "range"}),
    "confluent-kafka cooperative": (Confluent, {"partition.assignment.strategy": "cooperative-sticky"}),
    "confluent-kafka consumer protocol": (Confluent, {"group.protocol": "consumer"}),
    "kafka-python": (KafkaPython, {}),
    "aiokafka": (Aiokafka, {}),
    "franz-go eager": (Leashed, {"leash": FranzGoClient.leash, "balancer": "eager"}),
    "franz-go cooperative": (Leashed, {"leash": FranzGoClient.leash, "balancer": "cooperative"}),
    "franz-go consumer protocol": (Leashed, {"leash": FranzGoClient.leash, "balancer": "server"}),
    "kafkajs": (Leashed, {"leash": KafkaJsClient.leash}),
}


def need(kind: str) -> None:
    """Skips, by name, what a client of another language needs and is not there."""
    leash = KINDS[kind][1].get("leash")
    if leash is not None:
        try:
            leash.start()
        except MissingToolError as missing:
            pytest.skip(str(missing))


@contextmanager
def consumers(count: int, make: Callable[[], Any], topic: str) -> Iterator[list[Driven]]:
    with ExitStack() as stack:
        made = []
        for _ in range(count):
            one = Driven(make, topic)
            stack.callback(one.close)
            made.append(one)
        yield made


def wait_for(consumers: list[Driven], condition: Callable[[], bool]) -> None:
    try:
        until(condition, 2 * WAIT_SECONDS)
    except AssertionError:
        raise AssertionError([(sorted(one.owns()), len(one.got)) for one in consumers]) from None


def shares(consumers: list[Driven]) -> list[int]:
    return sorted(len(one.owns()) for one in consumers)


def committed(broker: Broker, group: str, topic: str) -> dict[str, int]:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, index) for index in range(PARTITIONS)])
    found = admin.list_consumer_group_offsets([asked])[group].result(WAIT_SECONDS)
    return {str(one.partition): one.offset for one in found.topic_partitions}
