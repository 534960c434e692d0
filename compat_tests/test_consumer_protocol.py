"""The consumer protocol, frame by frame: the same tales to Apache and to kbroker, the same answers and records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests.groups import clients, tales  # noqa: F401 - tales is imported for what it tells
from compat_tests.groups.story import PARTITIONS, TALES, Story
from compat_tests.harness import Broker, Results, compare
from compat_tests.kbroker_server import KBroker
from compat_tests.oracle import ApacheKafka

# Assignments at once: when they happen must not depend on the clock. Sessions short enough to wait for their end.
_SETTINGS = {
    "offsets.topic.num.partitions": str(PARTITIONS),
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.max.size": "6",
}


@pytest.fixture(scope="module")
def pair(
    pytestconfig: pytest.Config, java_tools: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Broker]]:
    directory = tmp_path_factory.mktemp("pair")
    options = tuple(part for name, value in _SETTINGS.items() for part in ("--config", f"{name}={value}"))
    made: dict[str, Any] = {
        "apache": ApacheKafka(directory / "apache", settings=_SETTINGS),
        "kbroker": KBroker(directory / "kbroker", options=options),
    }
    if pytestconfig.getoption("--rehearse"):
        made["kbroker"] = ApacheKafka(directory / "kbroker", settings=_SETTINGS)
    wanted = pytestconfig.getoption("--brokers").split(",")
    running = {name: broker.start() for name, broker in made.items() if name in wanted}
    yield running
    for broker in running.values():
        broker.stop()


def _tell(name: str, broker: Broker) -> dict[str, Any]:
    story = Story(broker, name.replace(" ", "-"))
    try:
        TALES[name](story)
        story.talk.say("written", story.written())
    finally:
        story.talk.close()
    return story.talk.said


@pytest.mark.parametrize("name", list(TALES))
def test_a_tale_is_answered_and_written_alike(name: str, pair: dict[str, Broker], results: Results) -> None:
    compare(results, "wire ConsumerGroupHeartbeat", name, pair, lambda broker: _tell(name, broker))


@pytest.mark.parametrize("expression", [False, True], ids=["by name", "by expression"])
def test_librdkafka_shares_a_topic(expression: bool, pair: dict[str, Broker], results: Results) -> None:
    scenario = f"consumer protocol, subscribed {'by expression' if expression else 'by name'}"
    compare(results, "confluent-kafka", scenario, pair, lambda one: clients.librdkafka(one, expression=expression))


def test_the_java_console_consumer_goes_on_where_it_stopped(pair: dict[str, Broker], results: Results) -> None:
    compare(results, "java tools", "console consumer, consumer protocol", pair, clients.java_console_consumer)
