"""Reading again: by seek, from a moment, and where a group without an offset begins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.client import WAIT_SECONDS
from compat_tests.groups.members import PARTITIONS, RECORDS, make_topic, produce_to
from compat_tests.harness import Broker
from compat_tests.plugin import Compare
from compat_tests.scenarios.records import FIRST_MS
from compat_tests.until import until

EACH = RECORDS // PARTITIONS
TIMES = (FIRST_MS - 1, FIRST_MS, FIRST_MS + 17_500, FIRST_MS + 1000 * (RECORDS - 1), FIRST_MS + 10**9)
POLICIES = ("earliest", "latest", "none")


class Confluent:
    """A reader of one group, with partitions that it was given by the group."""

    def __init__(self, broker: Broker, group: str, topic: str, policy: str, protocol: str = "classic") -> None:
        from confluent_kafka import Consumer

        self.topic = topic
        self._failed: list[str] = []
        reset = "error" if policy == "none" else policy
        about = {"bootstrap.servers": broker.bootstrap, "group.id": group, "group.protocol": protocol}
        soon = {"fetch.wait.max.ms": 20, "fetch.error.backoff.ms": 20}  # other questions wait behind a fetch
        self._consumer = Consumer({**about, **soon, "auto.offset.reset": reset, "enable.auto.commit": False})
        self._consumer.subscribe([topic])

    def poll(self) -> list[int]:
        record = self._consumer.poll(0.05)
        if record is None:
            return []
        error = record.error()
        if error is not None:
            assert error.name() == "_AUTO_OFFSET_RESET", error
            self._failed.append("no offset")
            return []
        return [int(record.value() or b"")]

    def failed(self) -> bool:
        return len(self._failed) > 0

    def assigned(self) -> bool:
        return len(self._consumer.assignment()) == PARTITIONS

    def seek(self, partition: int, offset: int) -> None:
        from confluent_kafka import TopicPartition

        self._consumer.seek(TopicPartition(self.topic, partition, offset))

    def for_time(self, when: int) -> list[int | None]:
        from confluent_kafka import TopicPartition

        asked = [TopicPartition(self.topic, partition, when) for partition in range(PARTITIONS)]
        found = self._consumer.offsets_for_times(asked, WAIT_SECONDS)
        return [one.offset if one.offset >= 0 else None for one in sorted(found, key=lambda one: one.partition)]

    def ends(self) -> list[tuple[int, int]]:
        from confluent_kafka import TopicPartition

        return [
            self._consumer.get_watermark_offsets(TopicPartition(self.topic, partition), WAIT_SECONDS)
            for partition in range(PARTITIONS)
        ]

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


class KafkaPython:
    def __init__(self, broker: Broker, group: str, topic: str, policy: str) -> None:
        from kafka import KafkaConsumer, TopicPartition

        self._at = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        self._failed = False
        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            auto_offset_reset=policy,
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
        )

    def poll(self) -> list[int]:
        from kafka.errors import NoOffsetForPartitionError

        try:
            polled = self._consumer.poll(timeout_ms=200)
        except NoOffsetForPartitionError:
            self._failed = True
            return []
        return [int(one.value) for records in polled.values() for one in records]

    def failed(self) -> bool:
        return self._failed

    def assigned(self) -> bool:
        return len(self._consumer.assignment()) == PARTITIONS

    def seek(self, partition: int, offset: int) -> None:
        self._consumer.seek(self._at[partition], offset)

    def for_time(self, when: int) -> list[int | None]:
        found = self._consumer.offsets_for_times(dict.fromkeys(self._at, when))
        told = [found[one] for one in self._at]
        return [None if one is None else one.offset for one in told]

    def ends(self) -> list[tuple[int, int]]:
        first, last = self._consumer.beginning_offsets(self._at), self._consumer.end_offsets(self._at)
        return [(first[one], last[one]) for one in self._at]

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()


class Aiokafka:
    def __init__(self, broker: Broker, group: str, topic: str, policy: str) -> None:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        self._at = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        self._failed = False
        self._loop = asyncio.new_event_loop()

        async def begun() -> Any:
            consumer = AIOKafkaConsumer(
                topic,
                bootstrap_servers=broker.bootstrap,
                group_id=group,
                auto_offset_reset=policy,
                enable_auto_commit=False,
                heartbeat_interval_ms=200,
                fetch_max_wait_ms=20,
            )
            await consumer.start()
            return consumer

        self._consumer = self._loop.run_until_complete(begun())

    def _do(self, what: Any) -> Any:
        return self._loop.run_until_complete(what)

    def poll(self) -> list[int]:
        from aiokafka.errors import NoOffsetForPartitionError

        try:
            polled = self._do(self._consumer.getmany(timeout_ms=50))
        except NoOffsetForPartitionError:
            self._failed = True
            return []
        return [int(one.value) for records in polled.values() for one in records]

    def failed(self) -> bool:
        return self._failed

    def assigned(self) -> bool:
        return len(self._consumer.assignment()) == PARTITIONS

    def seek(self, partition: int, offset: int) -> None:
        async def sought() -> None:
            self._consumer.seek(self._at[partition], offset)

        self._do(sought())

    def for_time(self, when: int) -> list[int | None]:
        found = self._do(self._consumer.offsets_for_times(dict.fromkeys(self._at, when)))
        told = [found[one] for one in self._at]
        return [None if one is None else one.offset for one in told]

    def ends(self) -> list[tuple[int, int]]:
        first = self._do(self._consumer.beginning_offsets(self._at))
        last = self._do(self._consumer.end_offsets(self._at))
        return [(first[one], last[one]) for one in self._at]

    def commit(self) -> None:
        self._do(self._consumer.commit())

    def close(self) -> None:
        self._do(self._consumer.stop())
        self._loop.close()


KINDS: dict[str, Callable[..., Any]] = {
    "confluent-kafka": Confluent,
    "confluent-kafka consumer protocol": lambda broker, group, topic, policy: Confluent(
        broker, group, topic, policy, "consumer"
    ),
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
}


def _read(reader: Any, wanted: int) -> list[int]:
    got: list[int] = []

    def arrived() -> bool:
        got.extend(reader.poll())
        return len(got) >= wanted

    until(arrived, WAIT_SECONDS)
    return sorted(got)


def a_reader_goes_back(broker: Broker, topic: str, kind: str) -> Any:
    """To the start of one partition, to a moment in all, and on from what was committed."""
    make_topic(broker, topic, first_ms=FIRST_MS)
    outcome: dict[str, Any] = {}
    reader = KINDS[kind](broker, f"g-{topic}", topic, "earliest")
    try:
        outcome["all"] = _read(reader, RECORDS)
        reader.commit()
        reader.seek(1, 0)
        reader.seek(3, EACH - 2)
        outcome["again"] = _read(reader, EACH + 2)
        outcome["times"] = {str(when - FIRST_MS): reader.for_time(when) for when in TIMES}
        for partition, offset in enumerate(reader.for_time(FIRST_MS + 17_500)):
            reader.seek(partition, offset)
        outcome["from a moment"] = _read(reader, RECORDS - 18)
        outcome["ends"] = reader.ends()
        reader.seek(2, EACH + 5)  # nothing is there: the policy decides, and it says the start
        outcome["beyond the end"] = _read(reader, EACH)
    finally:
        reader.close()
    produce_to(broker, topic, PARTITIONS, first=100)
    reader = KINDS[kind](broker, f"g-{topic}", topic, "earliest")
    try:
        outcome["on from the commit"] = _read(reader, PARTITIONS)
    finally:
        reader.close()
    return outcome


def where_a_new_group_begins(broker: Broker, topic: str, kind: str) -> Any:
    make_topic(broker, topic)
    outcome: dict[str, Any] = {}
    for policy in POLICIES:
        reader = KINDS[kind](broker, f"{policy}-{topic}", topic, policy)
        try:
            if policy == "none":
                until(lambda: (reader.poll(), reader.failed())[1], WAIT_SECONDS)  # noqa: B023 - asked at once
                outcome[policy] = "refused"
            elif policy == "earliest":
                outcome[policy] = _read(reader, RECORDS)
            else:
                outcome[policy] = _read_from_the_end(broker, reader, topic)
        finally:
            reader.close()
    return outcome


def _read_from_the_end(broker: Broker, reader: Any, topic: str) -> list[int]:
    """It has no place to begin until it has asked for one: what is sent before does not arrive."""
    got: set[int] = set()
    sent = 0

    def arrived() -> bool:
        nonlocal sent
        got.update(reader.poll())
        if reader.assigned():
            sent += 1
            produce_to(broker, topic, PARTITIONS, first=1000 + PARTITIONS * sent)
        return len({value % PARTITIONS for value in got}) == PARTITIONS

    until(arrived, WAIT_SECONDS)
    return sorted(value for value in got if value < 1000)


SCENARIOS = {one.__name__.replace("_", " "): one for one in (a_reader_goes_back, where_a_new_group_begins)}


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_replay_sees_no_difference(
    request: pytest.FixtureRequest, kind: str, scenario: str, topic: str, comparing_together: Compare
) -> None:
    request.node.compat_row = (kind, f"replay: {scenario}")
    comparing_together(kind, f"replay: {scenario}", lambda broker: SCENARIOS[scenario](broker, topic, kind))
