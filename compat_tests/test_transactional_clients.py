"""Transactions with real clients, on both brokers: what is read afterwards, which offsets count, and who is fenced.

librdkafka, aiokafka and kafka-python follow the older flow; Java and franz-go transaction version 2 (KIP-890).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.aiokafka_client import AiokafkaClient
from compat_tests.client import WAIT_SECONDS
from compat_tests.confluent import ConfluentClient
from compat_tests.go import FranzGoClient
from compat_tests.harness import Broker, Results
from compat_tests.java import JavaClient
from compat_tests.kafka_python import KafkaPythonClient
from compat_tests.leash import LeashedClient
from compat_tests.oracle import MissingToolError, run_tool
from compat_tests.plugin import Compare

READ = 20  # records to be read, in a topic of their own
TURNS = 6


def _topics(broker: Broker, topic: str) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics([NewTopic(topic, 2, 1), NewTopic(f"{topic}-read", 1, 1)]).values():
        made.result(WAIT_SECONDS)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(READ):
        producer.produce(f"{topic}-read", b"record %d" % number, partition=0)
    assert producer.flush(WAIT_SECONDS) == 0


def _seen(broker: Broker, topic: str, group: str) -> dict[str, Any]:
    """What readers get of both kinds, and where the group is."""
    from confluent_kafka import Consumer, TopicPartition

    found: dict[str, Any] = {}
    for isolation in ("read_committed", "read_uncommitted"):
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        for partition in range(2):
            consumer.assign([TopicPartition(topic, partition, 0)])
            values: list[tuple[int | None, str]] = []
            while True:
                record = consumer.poll(WAIT_SECONDS)
                assert record is not None
                if record.error() is not None:
                    found[f"{isolation}, partition {partition}"] = (values, record.offset())
                    break
                values.append((record.offset(), (record.value() or b"").decode()))
        found[f"{isolation}, offsets"] = consumer.committed([TopicPartition(f"{topic}-read", 0)], WAIT_SECONDS)[
            0
        ].offset
        consumer.close()
    return found


def _confluent(broker: Broker, topic: str, group: str) -> object:
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": f"{topic}-id"}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    first = Producer(settings)
    first.init_transactions(WAIT_SECONDS)
    for turn in range(TURNS):
        first.begin_transaction()
        for partition in range(2):
            first.produce(topic, b"turn %d" % turn, partition=partition)
        first.flush(WAIT_SECONDS)
        if turn >= 2:
            place = TopicPartition(f"{topic}-read", 0, 10 + turn)
            first.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), WAIT_SECONDS)
        (first.abort_transaction if turn % 2 else first.commit_transaction)(WAIT_SECONDS)
    consumer.close()
    first.begin_transaction()
    first.produce(topic, b"of the fenced", partition=0)
    first.flush(WAIT_SECONDS)
    second = Producer(settings)
    second.init_transactions(WAIT_SECONDS)
    second.begin_transaction()
    second.produce(topic, b"of the second", partition=1)
    second.commit_transaction(WAIT_SECONDS)
    try:
        first.commit_transaction(WAIT_SECONDS)
    except KafkaException as refused:
        return refused.args[0].name()
    return "committed"


def _kafka_python(broker: Broker, topic: str, group: str) -> object:
    from kafka import KafkaProducer
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata, TopicPartition

    def producer() -> Any:
        made = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=f"{topic}-id")
        made.init_transactions()
        return made

    first = producer()
    for turn in range(TURNS):
        first.begin_transaction()
        for partition in range(2):
            first.send(topic, b"turn %d" % turn, partition=partition)
        first.flush(WAIT_SECONDS)
        if turn >= 2:
            offsets = {TopicPartition(f"{topic}-read", 0): OffsetAndMetadata(10 + turn, "", -1)}
            first.send_offsets_to_transaction(offsets, group)
        (first.abort_transaction if turn % 2 else first.commit_transaction)()
    first.begin_transaction()
    first.send(topic, b"of the fenced", partition=0).get(WAIT_SECONDS)
    second = producer()
    second.begin_transaction()
    second.send(topic, b"of the second", partition=1)
    second.commit_transaction()
    second.close(WAIT_SECONDS)
    try:
        first.commit_transaction()
    except KafkaError as refused:
        return type(refused).__name__
    finally:
        first.close(0)
    return "committed"


def _aiokafka(broker: Broker, topic: str, group: str) -> object:
    return asyncio.run(_aiokafka_turns(broker, topic, group))


async def _aiokafka_turns(broker: Broker, topic: str, group: str) -> object:
    from aiokafka import AIOKafkaProducer, TopicPartition
    from aiokafka.errors import KafkaError

    def producer() -> Any:
        return AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=f"{topic}-id")

    first = producer()
    await first.start()
    for turn in range(TURNS):
        await first.begin_transaction()
        for partition in range(2):
            await first.send_and_wait(topic, b"turn %d" % turn, partition=partition)
        if turn >= 2:
            await first.send_offsets_to_transaction({TopicPartition(f"{topic}-read", 0): 10 + turn}, group)
        await (first.abort_transaction() if turn % 2 else first.commit_transaction())
    await first.begin_transaction()
    await first.send_and_wait(topic, b"of the fenced", partition=0)
    second = producer()
    await second.start()
    await second.begin_transaction()
    await second.send_and_wait(topic, b"of the second", partition=1)
    await second.commit_transaction()
    await second.stop()
    try:
        await first.commit_transaction()
    except KafkaError as refused:
        return type(refused).__name__
    finally:
        await first.stop()
    return "committed"


def _leashed(kind: type[LeashedClient]) -> Callable[[Broker, str, str], object]:
    def transact(broker: Broker, topic: str, group: str) -> object:
        with kind(broker.bootstrap) as client:
            assert isinstance(client, LeashedClient)
            return client._ask("transact", topic=topic, id=f"{topic}-id", group=group, read=f"{topic}-read", count=READ)

    return transact


CLIENTS: dict[str, tuple[Any, Callable[[Broker, str, str], object]]] = {
    "confluent-kafka": (ConfluentClient, _confluent),
    "kafka-python": (KafkaPythonClient, _kafka_python),
    "aiokafka": (AiokafkaClient, _aiokafka),
    "java": (JavaClient, _leashed(JavaClient)),
    "franz-go": (FranzGoClient, _leashed(FranzGoClient)),
}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_commits_aborts_and_is_fenced(
    request: pytest.FixtureRequest, client: str, topic: str, comparing: Compare, results: Results
) -> None:
    kind, transact = CLIENTS[client]
    request.node.compat_row = (kind.name, "transactions")
    results.client_versions[kind.name] = kind.version

    def run(broker: Broker) -> object:
        try:
            _topics(broker, topic)
            told = transact(broker, topic, f"{topic}-group")
        except MissingToolError as missing:
            pytest.skip(str(missing))
        return {"told": told, **_seen(broker, topic, f"{topic}-group")}

    comparing(kind.name, "transactions", run)


def test_operators_see_and_end_transactions(topic: str, comparing: Compare) -> None:
    """kafka-transactions: listed, described, and a transaction that nobody goes on with is ended by force."""
    from confluent_kafka import Producer

    def run(broker: Broker) -> object:
        _topics(broker, topic)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"{topic}-id"})
        producer.init_transactions(WAIT_SECONDS)
        producer.begin_transaction()
        producer.produce(topic, b"open", partition=0)
        producer.flush(WAIT_SECONDS)
        told = []
        for words in (
            ("list",),
            ("describe", "--transactional-id", f"{topic}-id"),
            ("describe-producers", "--topic", topic, "--partition", "0"),
            ("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0"),
            ("abort", "--topic", topic, "--partition", "0", "--start-offset", "0"),
            ("describe-producers", "--topic", topic, "--partition", "0"),
            ("forceTerminateTransaction", "--transactional-id", f"{topic}-id"),
            ("describe", "--transactional-id", f"{topic}-id"),
        ):
            done = run_tool("kafka-transactions", "--bootstrap-server", broker.bootstrap, *words)
            told.append((words[0], done.exit_code, _shape(done.out, topic)))
        return told

    comparing("java", "kafka-transactions", run)


def _shape(out: str, topic: str) -> list[list[str]]:
    """The columns of the lines about this topic or its headings, without what depends on the time and the run."""
    lines = [line for line in out.splitlines() if topic in line or "Producer" in line or line[:1].isdigit()]
    return [[re.sub(r"\b\d{3,}\b", "a number", word) for word in line.split()] for line in lines]
