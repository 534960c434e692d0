"""The consumer protocol, frame by frame: the same tales to Apache and to kbroker, the same answers and records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from compat_tests.groups import clients, rolling, tales  # noqa: F401 - tales is imported for what it tells
from compat_tests.groups.migration_tales import MIGRATIONS, POLICIES, a_restart_in_the_middle
from compat_tests.groups.story import PARTITIONS, TALES, Story
from compat_tests.harness import Broker, Results, compare
from compat_tests.kbroker_server import KBroker
from compat_tests.oracle import ApacheKafka
from compat_tests.plugin import Compare

# Assignments at once: when they happen must not depend on the clock. Sessions short enough to wait for their end.
_SETTINGS = {
    "offsets.topic.num.partitions": str(PARTITIONS),
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.max.size": "6",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
}


@contextmanager
def _pair(pytestconfig: pytest.Config, directory: Path, **more: str) -> Iterator[dict[str, Broker]]:
    settings = {**_SETTINGS, **more}
    options = tuple(part for name, value in settings.items() for part in ("--config", f"{name}={value}"))
    made: dict[str, Any] = {
        "apache": ApacheKafka(directory / "apache", settings=settings),
        "kbroker": KBroker(directory / "kbroker", options=options),
    }
    if pytestconfig.getoption("--rehearse"):
        made["kbroker"] = ApacheKafka(directory / "kbroker", settings=settings)
    wanted = pytestconfig.getoption("--brokers").split(",")
    running = {name: broker.start() for name, broker in made.items() if name in wanted}
    try:
        yield running
    finally:
        for broker in running.values():
            broker.stop()


@pytest.fixture(scope="module")
def pair(
    pytestconfig: pytest.Config, java_tools: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Broker]]:
    with _pair(pytestconfig, tmp_path_factory.mktemp("pair")) as running:
        yield running


def _tell(name: str, broker: Broker, again: str = "") -> dict[str, Any]:
    story = Story(broker, name.replace(" ", "-") + again)
    try:
        {**TALES, **MIGRATIONS, **POLICIES}[name](story)
        story.talk.say("written", story.written())
    finally:
        story.talk.close()
    return story.talk.said


@pytest.mark.parametrize("name", list(TALES))
def test_a_tale_is_answered_and_written_alike(name: str, pair: dict[str, Broker], results: Results, again: str) -> None:
    tell = partial(_tell, name, again=again)
    compare(results, "wire ConsumerGroupHeartbeat", name, pair, tell, together=True)


@pytest.mark.parametrize("name", list(MIGRATIONS))
def test_a_group_of_both_protocols_is_answered_and_written_alike(
    name: str, pair: dict[str, Broker], results: Results, again: str
) -> None:
    compare(results, "wire group migration", name, pair, partial(_tell, name, again=again))


def test_a_restart_in_the_middle_is_survived_alike(
    pytestconfig: pytest.Config, java_tools: None, tmp_path: Path, results: Results
) -> None:
    def tell(broker: Any) -> dict[str, Any]:
        story = Story(broker, "restart")

        def restart() -> None:
            broker.stop()
            broker.start()
            story.move(broker)

        a_restart_in_the_middle(story, restart)
        story.talk.say("written", story.written())
        story.talk.close()
        return story.talk.said

    with _pair(pytestconfig, tmp_path) as pair:
        compare(results, "wire group migration", "restarts in the middle", pair, tell)


@pytest.mark.parametrize("policy", ["upgrade", "downgrade", "disabled"])
def test_a_policy_is_held_alike(
    policy: str, pytestconfig: pytest.Config, java_tools: None, tmp_path: Path, results: Results
) -> None:
    with _pair(pytestconfig, tmp_path, **{"group.consumer.migration.policy": policy}) as pair:
        for name in POLICIES:
            scenario = f"{name}: {policy}"
            compare(results, "wire group migration", scenario, pair, lambda broker: _tell(name, broker))  # noqa: B023


@pytest.mark.parametrize("expression", [False, True], ids=["by name", "by expression"])
def test_librdkafka_shares_a_topic(expression: bool, comparing_together: Compare) -> None:
    scenario = f"consumer protocol, subscribed {'by expression' if expression else 'by name'}"
    comparing_together("confluent-kafka", scenario, lambda one: clients.librdkafka(one, expression=expression))


def test_a_service_rolls_over_and_back(comparing_together: Compare) -> None:
    scenario = "rolled over to the consumer protocol and back"
    comparing_together("confluent-kafka", scenario, lambda one: rolling.rolled_over_and_back(one, "range"))


def test_a_cooperative_service_rolls_over_and_back(pair: dict[str, Broker]) -> None:
    """Apache refuses such a group, because librdkafka's assignor sends data along with the partitions."""
    if "kbroker" in pair:
        told = rolling.rolled_over_and_back(pair["kbroker"], "cooperative-sticky")
        assert told["committed"] == told["different"] == told["sent"]


def test_the_java_console_consumer_goes_on_where_it_stopped(comparing_together: Compare) -> None:
    comparing_together("java tools", "console consumer, consumer protocol", clients.java_console_consumer)
