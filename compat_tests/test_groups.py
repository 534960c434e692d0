"""Consumer groups with real clients, on both brokers: who gets what, what is committed, and what operators see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compat_tests.client import WAIT_SECONDS
from compat_tests.groups.members import (
    KINDS,
    PARTITIONS,
    RECORDS,
    Confluent,
    committed,
    consumers,
    make_topic,
    need,
    produce_to,
    shares,
    wait_for,
)
from compat_tests.harness import Broker
from compat_tests.kbroker_server import KBroker
from compat_tests.oracle import ApacheKafka, run_tool
from compat_tests.plugin import Compare
from compat_tests.raw.connection import Connection
from compat_tests.until import until


def one_member_then_two_then_one(broker: Broker, topic: str, kind: str) -> Any:
    build, settings = KINDS[kind]
    make_topic(broker, topic)
    group = f"g-{topic}"
    outcome: dict[str, Any] = {}
    with consumers(1, lambda: build(broker, group, **settings), topic) as first:
        wait_for(first, lambda: len(first[0].got) >= RECORDS)
        outcome["alone"] = shares(first)
        first[0].commit()
        with consumers(1, lambda: build(broker, group, **settings), topic) as second:
            both = [*first, *second]
            wait_for(both, lambda: shares(both) == [2, 2])
            outcome["apart"] = not first[0].owns() & second[0].owns()
            outcome["nothing twice"] = len(second[0].got) == 0
        wait_for(first, lambda: shares(first) == [PARTITIONS])
        outcome["alone again"] = shares(first)
    outcome["committed"] = committed(broker, group, topic)
    outcome["read"] = sorted(first[0].got) == list(range(RECORDS))
    return outcome


def more_members_than_partitions(broker: Broker, topic: str, kind: str) -> Any:
    build, settings = KINDS[kind]
    make_topic(broker, topic)
    with consumers(PARTITIONS + 1, lambda: build(broker, f"g-{topic}", **settings), topic) as members:
        wait_for(members, lambda: shares(members) == [0, 1, 1, 1, 1])
        busy = next(one for one in members if one.owns())
        busy.close()
        rest = [one for one in members if one is not busy]
        everything = [{index} for index in range(PARTITIONS)]
        wait_for(rest, lambda: sorted((one.owns() for one in rest), key=sorted) == everything)
        return {"taken over": shares(rest)}


def resumes_where_it_committed(broker: Broker, topic: str, kind: str) -> Any:
    build, settings = KINDS[kind]
    make_topic(broker, topic)
    group = f"g-{topic}"
    with consumers(1, lambda: build(broker, group, **settings), topic) as first:
        wait_for(first, lambda: len(first[0].got) >= RECORDS)
        first[0].commit()
    produce_to(broker, topic, PARTITIONS, first=100)
    with consumers(1, lambda: build(broker, group, **settings), topic) as second:
        wait_for(second, lambda: len(second[0].got) >= PARTITIONS)
        return {"read": sorted(second[0].got), "committed": committed(broker, group, topic)}


SCENARIOS = {
    one.__name__.replace("_", " "): one
    for one in (one_member_then_two_then_one, more_members_than_partitions, resumes_where_it_committed)
}


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_group_sees_no_difference(
    request: pytest.FixtureRequest, kind: str, scenario: str, topic: str, comparing_together: Compare
) -> None:
    request.node.compat_row = (kind, f"group: {scenario}")
    need(kind)
    comparing_together(kind, f"group: {scenario}", lambda broker: SCENARIOS[scenario](broker, topic, kind))


# ---- the log ----


def _a_used_group(broker: Broker, topic: str) -> dict[str, int]:
    make_topic(broker, topic)
    group = f"g-{topic}"
    with consumers(1, lambda: Confluent(broker, group), topic) as members:
        wait_for(members, lambda: len(members[0].got) >= RECORDS)
        members[0].commit()
    return committed(broker, group, topic)


def test_kafkas_dump_tool_reads_our_offsets(java_tools: None, tmp_path: Path) -> None:
    with KBroker(tmp_path) as broker:
        kept = _a_used_group(broker, "dumped")
    files = str(tmp_path / "data" / "__consumer_offsets-0" / "00000000000000000000.log")
    dumped = run_tool("kafka-dump-log", "--offsets-decoder", "--files", files)
    assert dumped.exit_code == 0, dumped.err
    assert kept == {str(index): RECORDS // PARTITIONS for index in range(PARTITIONS)}
    keys = [line for line in dumped.lines if '"group":"g-dumped"' in line]
    assert sum('"type":"1"' in line and '"offset":10' in line for line in keys) == PARTITIONS, dumped.out
    assert any('"type":"2"' in line and '"protocolType":"consumer"' in line for line in keys), dumped.out


def test_a_group_goes_on_where_the_other_broker_left_it(java_tools: None, tmp_path: Path) -> None:
    one = ("--config", "offsets.topic.num.partitions=1", "--config", "offsets.topic.replication.factor=1")
    with KBroker(tmp_path / "ours", options=one) as broker:
        ours = _a_used_group(broker, "handed-over")
    with ApacheKafka.on_data_directory(tmp_path / "ours" / "data") as apache:
        until(lambda: _state(apache, "g-handed-over") == "Empty", WAIT_SECONDS)
        assert committed(apache, "g-handed-over", "handed-over") == ours
        theirs = _a_used_group(apache, "handed-back")
    with KBroker.on_data_directory(tmp_path / "ours" / "data", options=one) as broker:
        until(lambda: _state(broker, "g-handed-back") == "Empty", WAIT_SECONDS)
        assert committed(broker, "g-handed-over", "handed-over") == ours
        assert committed(broker, "g-handed-back", "handed-back") == theirs


def _state(broker: Broker, group: str) -> str:
    connection = Connection(broker.bootstrap)
    connection.ask("FindCoordinator", 3, {"key": group, "key_type": 0})
    answer = connection.ask("DescribeGroups", 5, {"groups": [group]})
    connection.close()
    assert isinstance(answer, dict)
    return str(answer["groups"][0]["group_state"])
