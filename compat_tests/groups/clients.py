"""Real consumers of the new protocol: librdkafka's, and Java's console consumer."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, Producer

from compat_tests.client import WAIT_SECONDS
from compat_tests.harness import Broker
from compat_tests.oracle.tools import run_tool
from compat_tests.raw.talk import Talk
from compat_tests.until import until


def _filled(broker: Broker, name: str, partitions: int, count: int) -> str:
    talk = Talk(broker.bootstrap, name)
    try:
        topic = talk.topic(partitions).name
    finally:
        talk.close()
    _produce(broker, topic, partitions, range(count))
    return topic


def _produce(broker: Broker, topic: str, partitions: int, values: range) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, str(value).encode(), partition=value % partitions)
    assert producer.flush(WAIT_SECONDS) == 0


class Reader:
    def __init__(self, broker: Broker, group: str, pattern: str) -> None:
        self.read: list[bytes] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self.consumer.subscribe([pattern])

    def poll(self) -> None:
        message = self.consumer.poll(0.05)
        if message is not None:
            assert message.error() is None, message.error()
            value = message.value()
            assert value is not None
            self.read.append(value)

    def partitions(self) -> list[int]:
        return sorted(one.partition for one in self.consumer.assignment())


def librdkafka(broker: Broker, *, expression: bool) -> Any:
    """One reads everything and commits; a second shares with it; the first leaves and the second has all."""
    kind = "expression" if expression else "name"
    topic = _filled(broker, f"librdkafka-{kind}", 4, 100)
    pattern = f"^{topic[:-1]}[0-9]$" if expression else topic
    seen: dict[str, Any] = {}
    first, second = Reader(broker, f"librdkafka-{kind}", pattern), Reader(broker, f"librdkafka-{kind}", pattern)

    def shared(*wanted: int) -> bool:
        first.poll()
        second.poll()
        return [len(first.partitions()), len(second.partitions())] == list(wanted)

    until(lambda: shared(2, 2), WAIT_SECONDS)
    seen["disjoint"] = not set(first.partitions()) & set(second.partitions())
    until(lambda: (shared(2, 2), len({*first.read, *second.read}) == 100)[1], WAIT_SECONDS)
    first.consumer.commit(asynchronous=False)
    second.consumer.commit(asynchronous=False)
    first.consumer.close()

    def alone() -> bool:
        second.poll()
        return len(second.partitions()) == 4

    until(alone, WAIT_SECONDS)
    seen["all read"] = len({*first.read, *second.read})
    told = second.consumer.committed(second.consumer.assignment(), WAIT_SECONDS)
    assert sum(one.offset for one in told if one.offset > 0) <= 100  # how much of it whom, the rebalance decides
    seen["told"] = sorted((one.partition, one.error is None) for one in told)
    second.consumer.close()
    return seen


def java_console_consumer(broker: Broker) -> Any:
    topic = _filled(broker, "java-console", 3, 30)
    told = []
    for expected in (30, 3):  # the second one goes on where the first one has stopped
        done = run_tool(
            *("kafka-console-consumer", "--bootstrap-server", broker.bootstrap, "--topic", topic),
            *("--group", "java-console", "--from-beginning", "--max-messages", str(expected), "--timeout-ms", "60000"),
            *("--consumer-property", "group.protocol=consumer"),
        )
        told.append([done.exit_code, sorted(int(line) for line in done.lines if line.isdigit())])
        _produce(broker, topic, 3, range(100, 103))
    return told
