"""Consumer groups with real clients, on both brokers: who gets what, what is committed, and what operators see."""

from __future__ import annotations

import asyncio
import queue
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from compat_tests.client import WAIT_SECONDS
from compat_tests.harness import Broker
from compat_tests.kbroker_server import KBroker
from compat_tests.oracle import ApacheKafka, ToolResult, run_tool
from compat_tests.plugin import Compare
from compat_tests.raw.connection import Connection
from compat_tests.until import until

PARTITIONS = 4
RECORDS = 40


def _topic(broker: Broker, topic: str) -> None:
    """Four partitions, ten records each."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(WAIT_SECONDS)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(WAIT_SECONDS) == 0


class Confluent:
    """A consumer whose partitions and records are looked at between polls."""

    def __init__(self, broker: Broker, group: str, **settings: Any) -> None:
        from confluent_kafka import Consumer

        self.got: list[int] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 200,
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
        self.consumer.subscribe([topic])

    def poll(self) -> None:
        for records in self.consumer.poll(timeout_ms=500).values():
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


class Driven:
    """A consumer on a thread of its own, as a process has one: it polls all the time, and is asked in between."""

    def __init__(self, build: Callable[[], Any], topic: str) -> None:
        self._questions: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._ended = False
        self._build, self._topic = build, topic
        self._owned: set[int] = set()
        self.got: list[int] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        consumer = self.consumer = self._build()
        consumer.subscribe(self._topic)
        while not self._ended:
            consumer.poll()
            self._owned, self.got = set(consumer.owns()), list(consumer.got)
            while not self._questions.empty():
                question, answer = self._questions.get()
                answer.set_result(question())

    def owns(self) -> set[int]:
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
    "kafka-python": (KafkaPython, {}),
    "aiokafka": (Aiokafka, {}),
}


@contextmanager
def _consumers(count: int, make: Callable[[], Any], topic: str) -> Iterator[list[Driven]]:
    with ExitStack() as stack:
        made = []
        for _ in range(count):
            one = Driven(make, topic)
            stack.callback(one.close)
            made.append(one)
        yield made


def _await(consumers: list[Driven], condition: Callable[[], bool]) -> None:
    try:
        until(condition, 2 * WAIT_SECONDS)
    except AssertionError:
        raise AssertionError([(sorted(one.owns()), len(one.got)) for one in consumers]) from None


def _shares(consumers: list[Driven]) -> list[int]:
    return sorted(len(one.owns()) for one in consumers)


def _committed(broker: Broker, group: str, topic: str) -> dict[str, int]:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, index) for index in range(PARTITIONS)])
    found = admin.list_consumer_group_offsets([asked])[group].result(WAIT_SECONDS)
    return {str(one.partition): one.offset for one in found.topic_partitions}


def one_member_then_two_then_one(broker: Broker, topic: str, kind: str) -> Any:
    build, settings = KINDS[kind]
    _topic(broker, topic)
    group = f"g-{topic}"
    outcome: dict[str, Any] = {}
    with _consumers(1, lambda: build(broker, group, **settings), topic) as first:
        _await(first, lambda: len(first[0].got) >= RECORDS)
        outcome["alone"] = _shares(first)
        first[0].commit()
        with _consumers(1, lambda: build(broker, group, **settings), topic) as second:
            both = [*first, *second]
            _await(both, lambda: _shares(both) == [2, 2])
            outcome["apart"] = not first[0].owns() & second[0].owns()
            outcome["nothing twice"] = len(second[0].got) == 0
        _await(first, lambda: _shares(first) == [PARTITIONS])
        outcome["alone again"] = _shares(first)
    outcome["committed"] = _committed(broker, group, topic)
    outcome["read"] = sorted(first[0].got) == list(range(RECORDS))
    return outcome


def more_members_than_partitions(broker: Broker, topic: str, kind: str) -> Any:
    build, settings = KINDS[kind]
    _topic(broker, topic)
    with _consumers(PARTITIONS + 1, lambda: build(broker, f"g-{topic}", **settings), topic) as members:
        _await(members, lambda: _shares(members) == [0, 1, 1, 1, 1])
        busy = next(one for one in members if one.owns())
        busy.close()
        rest = [one for one in members if one is not busy]
        everything = [{index} for index in range(PARTITIONS)]
        _await(rest, lambda: sorted((one.owns() for one in rest), key=sorted) == everything)
        return {"taken over": _shares(rest)}


def resumes_where_it_committed(broker: Broker, topic: str, kind: str) -> Any:
    build, settings = KINDS[kind]
    _topic(broker, topic)
    group = f"g-{topic}"
    with _consumers(1, lambda: build(broker, group, **settings), topic) as first:
        _await(first, lambda: len(first[0].got) >= RECORDS)
        first[0].commit()
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for index in range(PARTITIONS):
        producer.produce(topic, str(100 + index).encode(), partition=index)
    assert producer.flush(WAIT_SECONDS) == 0
    with _consumers(1, lambda: build(broker, group, **settings), topic) as second:
        _await(second, lambda: len(second[0].got) >= PARTITIONS)
        return {"read": sorted(second[0].got), "committed": _committed(broker, group, topic)}


SCENARIOS = {
    one.__name__.replace("_", " "): one
    for one in (one_member_then_two_then_one, more_members_than_partitions, resumes_where_it_committed)
}


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_group_sees_no_difference(
    request: pytest.FixtureRequest, kind: str, scenario: str, topic: str, comparing: Compare
) -> None:
    request.node.compat_row = (kind, f"group: {scenario}")
    comparing(kind, f"group: {scenario}", lambda broker: SCENARIOS[scenario](broker, topic, kind))


# ---- Kafka's own tools ----


def _tool(broker: Broker, tool: str, *arguments: str) -> ToolResult:
    return run_tool(tool, "--bootstrap-server", broker.bootstrap, *arguments)


def _told(result: ToolResult) -> dict[str, Any]:
    """Exit code and lines; ids, ports and the width of columns are each run's own."""
    lines = []
    for line in [*result.lines, *result.err.splitlines()]:
        words = re.sub(r"\S*[0-9a-f]{8}-[0-9a-f-]{27}", "*", line).split()
        told = " ".join(words).replace(f"{_place(line)}", "*:*") if words else ""
        if told and "Exception" not in told and "\tat " not in line:
            lines.append(told)
    return {"exit": result.exit_code, "lines": sorted(lines)}


def _place(line: str) -> str:
    found = re.search(r"127\.0\.0\.1:\d+", line)
    return found.group(0) if found else "\0"


def consumer_groups_tool(broker: Broker, topic: str) -> Any:
    _topic(broker, topic)
    group = f"g-{topic}"

    def tool(*arguments: str) -> dict[str, Any]:
        return _told(_tool(broker, "kafka-consumer-groups", *arguments))

    read = _tool(
        broker, "kafka-console-consumer", "--topic", topic, "--group", group, "--from-beginning",
        "--max-messages", str(RECORDS), "--timeout-ms", "60000",
    )  # fmt: skip
    outcome: dict[str, Any] = {"read": sorted(int(line) for line in read.lines if line.isdigit())}
    until(lambda: group in _tool(broker, "kafka-consumer-groups", "--list").lines, WAIT_SECONDS)
    about = ("--describe", "--group", group)
    outcome["describe"] = tool(*about)
    outcome["members"] = tool(*about, "--members", "--verbose")
    outcome["state"] = tool(*about, "--state")
    reset = ("--reset-offsets", "--group", group, "--topic", topic)
    outcome["dry run"] = tool(*reset, "--shift-by", "-3", "--dry-run")
    outcome["reset"] = tool(*reset, "--to-earliest", "--execute")
    outcome["reset one"] = tool(
        "--reset-offsets", "--group", group, "--topic", f"{topic}:2", "--to-offset", "7", "--execute"
    )
    outcome["lag"] = tool(*about)
    outcome["delete offsets"] = tool("--delete-offsets", "--group", group, "--topic", f"{topic}:1")
    outcome["without"] = tool(*about)
    with _consumers(1, lambda: Confluent(broker, group, **{"client.id": "watched"}), topic) as members:
        _await(members, lambda: _shares(members) == [PARTITIONS])
        outcome["live"] = tool(*about)
        outcome["live members"] = tool(*about, "--members")
        outcome["live state"] = tool(*about, "--state")
        outcome["delete live"] = tool("--delete", "--group", group)
        outcome["reset live"] = tool(*reset, "--to-latest", "--execute")
    outcome["delete"] = tool("--delete", "--group", group)
    outcome["delete again"] = tool("--delete", "--group", group)
    outcome["describe nothing"] = tool(*about)
    return outcome


def test_consumer_groups_tool_sees_no_difference(
    topic: str, comparing: Compare, request: pytest.FixtureRequest
) -> None:
    request.node.compat_row = ("kafka-consumer-groups", "a group from birth to death")
    topic = topic or "t-tool"
    comparing(
        "kafka-consumer-groups", "a group from birth to death", lambda broker: consumer_groups_tool(broker, topic)
    )


# ---- the log ----


def _a_used_group(broker: Broker, topic: str) -> dict[str, int]:
    _topic(broker, topic)
    group = f"g-{topic}"
    with _consumers(1, lambda: Confluent(broker, group), topic) as members:
        _await(members, lambda: len(members[0].got) >= RECORDS)
        members[0].commit()
    return _committed(broker, group, topic)


def test_kafkas_dump_tool_reads_our_offsets(java_tools: None, tmp_path: Path) -> None:
    with KBroker(tmp_path) as broker:
        committed = _a_used_group(broker, "dumped")
    files = str(tmp_path / "data" / "__consumer_offsets-0" / "00000000000000000000.log")
    dumped = run_tool("kafka-dump-log", "--offsets-decoder", "--files", files)
    assert dumped.exit_code == 0, dumped.err
    assert committed == {str(index): RECORDS // PARTITIONS for index in range(PARTITIONS)}
    keys = [line for line in dumped.lines if '"group":"g-dumped"' in line]
    assert sum('"type":"1"' in line and '"offset":10' in line for line in keys) == PARTITIONS, dumped.out
    assert any('"type":"2"' in line and '"protocolType":"consumer"' in line for line in keys), dumped.out


def test_a_group_goes_on_where_the_other_broker_left_it(java_tools: None, tmp_path: Path) -> None:
    one = ("--config", "offsets.topic.num.partitions=1", "--config", "offsets.topic.replication.factor=1")
    with KBroker(tmp_path / "ours", options=one) as broker:
        ours = _a_used_group(broker, "handed-over")
    with ApacheKafka.on_data_directory(tmp_path / "ours" / "data") as apache:
        until(lambda: _state(apache, "g-handed-over") == "Empty", WAIT_SECONDS)
        assert _committed(apache, "g-handed-over", "handed-over") == ours
        theirs = _a_used_group(apache, "handed-back")
    with KBroker.on_data_directory(tmp_path / "ours" / "data", options=one) as broker:
        until(lambda: _state(broker, "g-handed-back") == "Empty", WAIT_SECONDS)
        assert _committed(broker, "g-handed-over", "handed-over") == ours
        assert _committed(broker, "g-handed-back", "handed-back") == theirs


def _state(broker: Broker, group: str) -> str:
    connection = Connection(broker.bootstrap)
    connection.ask("FindCoordinator", 3, {"key": group, "key_type": 0})
    answer = connection.ask("DescribeGroups", 5, {"groups": [group]})
    connection.close()
    assert isinstance(answer, dict)
    return str(answer["groups"][0]["group_state"])
