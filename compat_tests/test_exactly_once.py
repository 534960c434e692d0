"""Exactly once, end to end: what is copied and counted in transactions is whole, whatever happens on the way.

Apache's own TransactionalMessageCopier copies lines from topic to topic, with its offsets in the transaction and some
transactions aborted at random; Kafka Streams counts their words. Both go on while their broker is stopped and killed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from compat_tests.client import WAIT_SECONDS
from compat_tests.harness import Broker, Results, compare
from compat_tests.java.streams import WordCount
from compat_tests.kbroker_server import KBroker
from compat_tests.oracle import ApacheKafka, tool_command
from compat_tests.oracle.apache import two_free_ports
from compat_tests.plugin import Compare
from compat_tests.telling import Telling
from compat_tests.until import until

PARTITIONS = 2
LINES = 600
PATIENCE_SECONDS = 120  # a broker starts meanwhile
WORDS = ("to", "be", "or", "not", "that", "is", "the")  # each line has two of them
COPIED_WITH_ABORTS = ("--enable-random-aborts", "--transaction-size", "10")


def _lines(times: int = 1) -> list[list[str]]:
    """By partition."""
    return [
        [f"{WORDS[number % 7]} {WORDS[number * number % 7]}" for number in range(first, LINES, PARTITIONS)] * times
        for first in range(PARTITIONS)
    ]


def _make_topics(bootstrap: str, *names: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]).values():
        made.result(WAIT_SECONDS)


def _produce_lines(bootstrap: str, topic: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap})
    for partition, lines in enumerate(_lines()):
        for line in lines:
            producer.produce(topic, line.encode(), partition=partition)
    assert producer.flush(WAIT_SECONDS) == 0


class Copier(Telling[dict[str, Any]]):
    """It tells of each transaction, and ends where its input ended when it began."""

    def __init__(self, bootstrap: str, source: str, target: str, *options: str) -> None:
        command = tool_command(
            *("transactional-message-copier", "--broker-list", bootstrap, "--transactional-id", f"{source}-copier"),
            *("--input-topic", source, "--input-partition", "0", "--output-topic", target),
            *("--consumer-group", f"{source}-copiers", *options),
        )
        super().__init__(command, json.loads)

    @property
    def copied(self) -> int:
        return max((int(event["consumed"]) for event in list(self.told)), default=0)


class Committed:
    """The committed records of a topic, read as they come: keys and values by partition."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self.records: list[list[tuple[str | None, str]]] = [[] for _ in range(PARTITIONS)]
        self._ended: set[int] = set()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "looks on",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "reconnect.backoff.max.ms": 200,
            }
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])

    def __len__(self) -> int:
        return sum(map(len, self.records))

    def poll(self) -> None:
        from confluent_kafka import KafkaError

        message = self._consumer.poll(0.1)
        if message is None:
            return
        partition, error = message.partition(), message.error()
        if error is None:
            assert partition is not None
            key, value = message.key(), message.value()
            assert value is not None
            self.records[partition].append((None if key is None else key.decode(), value.decode()))
        elif error.code() == KafkaError._PARTITION_EOF:
            assert partition is not None
            self._ended.add(partition)
        # Every other one tells of a broker that is away.

    def read_until(self, enough: Callable[[], bool]) -> None:
        def look() -> bool:
            self.poll()
            return enough()

        until(look, PATIENCE_SECONDS)

    def read_to_end(self) -> list[list[tuple[str | None, str]]]:
        """For the first time: what is read before counts as well."""
        self.read_until(lambda: len(self._ended) == PARTITIONS)
        return self.records

    def close(self) -> None:
        self._consumer.close()


def _group_offsets(bootstrap: str, group: str, topic: str) -> list[int]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        return [place.offset for place in consumer.committed(places, WAIT_SECONDS)]
    finally:
        consumer.close()


@pytest.mark.parametrize("how", ["of one partition", "of a group"])
def test_the_copier_copies_each_record_once(
    request: pytest.FixtureRequest, how: str, topic: str, comparing_together: Compare
) -> None:
    options = {
        "of one partition": (),
        "of a group": ("--group-mode", "--use-group-metadata"),
    }[how]
    request.node.compat_row = ("java tools", f"TransactionalMessageCopier, {how}")
    source, target = f"{topic}-read", f"{topic}-copied"

    def run(broker: Broker) -> Any:
        _make_topics(broker.bootstrap, source, target)
        _produce_lines(broker.bootstrap, source)
        with ExitStack() as stack:
            copier = Copier(broker.bootstrap, source, target, *COPIED_WITH_ABORTS, *options)
            stack.callback(copier.close)
            code = copier.end(PATIENCE_SECONDS)
            seen = Committed(broker.bootstrap, target)
            stack.callback(seen.close)
            copied = [[value for _, value in records] for records in seen.read_to_end()]
        assert copied == (_lines() if options else [_lines()[0], []])
        return {
            "exit": code,
            "last words": {name: value for name, value in copier.told[-1].items() if name != "time"},
            "copied": copied,
            "offsets": _group_offsets(broker.bootstrap, f"{source}-copiers", source),
        }

    comparing_together("java tools", f"TransactionalMessageCopier, {how}", run)


def test_words_are_counted_exactly_once_while_the_broker_is_stopped_and_killed(
    pytestconfig: pytest.Config, java_tools: None, tmp_path: Path, results: Results
) -> None:
    """Lines -> the copier -> Kafka Streams -> counts. Every count of every word is there, once and in order."""
    wanted = pytestconfig.getoption("--brokers").split(",")
    understudy = pytestconfig.getoption("--rehearse")
    kinds: dict[str, Any] = {"apache": ApacheKafka, "kbroker": ApacheKafka if understudy else KBroker}
    ports = dict(zip(kinds, two_free_ports(), strict=True))
    brokers: dict[str, Broker] = {
        name: kind(tmp_path / name, port=ports[name]) for name, kind in kinds.items() if name in wanted
    }

    def run(broker: Any) -> Any:
        with ExitStack() as stack:
            broker.start()
            stack.callback(broker.kill)
            bootstrap = broker.bootstrap
            _make_topics(bootstrap, "lines", "copied", "counts")
            counter = WordCount(bootstrap, "words", "copied", "counts", tmp_path / f"{broker.name}-state")
            stack.callback(counter.close)
            counts = Committed(bootstrap, "counts")
            stack.callback(counts.close)
            counter.await_running()
            codes = []
            for away in (broker.stop, broker.kill):
                _produce_lines(bootstrap, "lines")
                before = len(counts)
                copier = Copier(bootstrap, "lines", "copied", "--group-mode", *COPIED_WITH_ABORTS)
                stack.callback(copier.close)
                counts.read_until(lambda: copier.copied >= LINES // 6 and len(counts) > before)  # noqa: B023
                away()
                broker.start()
                codes.append(copier.end(PATIENCE_SECONDS))
            counts.read_until(lambda: len(counts) >= 2 * 2 * LINES)
            codes.append(counter.stop())
            copied, counted = (Committed(bootstrap, topic) for topic in ("copied", "counts"))
            stack.callback(copied.close)
            stack.callback(counted.close)
            outcome = {
                "exit codes": codes,
                "copied": [[value for _, value in records] for records in copied.read_to_end()],
                "counts": {
                    word: [int(value) for records in counted.read_to_end() for key, value in records if key == word]
                    for word in WORDS
                },
                "offsets": _group_offsets(bootstrap, "lines-copiers", "lines"),
                "failed": [line for line in counter.told if "failed" in line],
            }
        words = [word for lines in _lines(2) for line in lines for word in line.split()]
        assert outcome["copied"] == _lines(2)
        assert outcome["counts"] == {word: list(range(1, words.count(word) + 1)) for word in WORDS}
        return outcome

    compare(results, "Kafka Streams", "an exactly-once word count over restarts", brokers, run, together=True)
