"""Kafka's command-line tools, unchanged, on both brokers: what they print and how they end."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from compat_tests.client import CODECS, WAIT_SECONDS
from compat_tests.harness import Broker
from compat_tests.oracle import ToolResult, run_tool
from compat_tests.plugin import Compare
from compat_tests.until import until

_TOPIC_ID = re.compile(r"TopicId: \S+")
_SENTENCE = re.compile(r"(Error while executing \w+ command) : .*")  # the words are each broker's own
_SERVED = (
    "Produce",
    "Fetch",
    "ListOffsets",
    "Metadata",
    "OffsetCommit",
    "OffsetFetch",
    "FindCoordinator",
    "JoinGroup",
    "Heartbeat",
    "LeaveGroup",
    "SyncGroup",
    "DescribeGroups",
    "ListGroups",
    "ApiVersions",
    "CreateTopics",
    "DeleteTopics",
    "DeleteRecords",
    "InitProducerId",
    "OffsetForLeaderEpoch",
    "DescribeConfigs",
    "AlterConfigs",
    "IncrementalAlterConfigs",
    "AlterReplicaLogDirs",
    "DescribeLogDirs",
    "CreatePartitions",
    "DescribeCluster",
    "DescribeTopicPartitions",
    "DeleteGroups",
    "OffsetDelete",
)


def _tool(broker: Broker, tool: str, *arguments: str, stdin: bytes | None = None) -> ToolResult:
    return run_tool(tool, "--bootstrap-server", broker.bootstrap, *arguments, stdin=stdin)


def _told(result: ToolResult) -> dict[str, Any]:
    """Exit code and lines, without ids and without the trace that a tool prints beneath an error's name."""
    lines = [_SENTENCE.sub(r"\1", _TOPIC_ID.sub("TopicId: *", line.rstrip())) for line in result.lines]
    kept = [line for line in lines if "Exception" not in line and "\tat " not in line]
    errors = sorted(set(re.findall(r"\b(\w+Exception)\b", result.out + result.err)))
    return {"exit": result.exit_code, "out": kept, "errors": errors}


def _create(broker: Broker, topic: str, *arguments: str) -> ToolResult:
    made = _tool(broker, "kafka-topics", "--create", "--topic", topic, *arguments)
    assert made.exit_code == 0, made.out + made.err
    return made


def topics_from_birth_to_death(broker: Broker, topic: str) -> Any:
    steps = {
        "create": ("--create", "--topic", topic, "--partitions", "3", "--config", "retention.ms=60000"),
        "create again": ("--create", "--topic", topic),
        "create if not exists": ("--create", "--if-not-exists", "--topic", topic),
        "describe": ("--describe", "--topic", topic),
        "describe overrides": ("--describe", "--topics-with-overrides", "--topic", topic),
        "under-replicated": ("--describe", "--under-replicated-partitions"),
        "alter": ("--alter", "--topic", topic, "--partitions", "5"),
        "alter down": ("--alter", "--topic", topic, "--partitions", "2"),
    }
    outcome = {name: _told(_tool(broker, "kafka-topics", *arguments)) for name, arguments in steps.items()}
    until(
        lambda: "PartitionCount: 5" in _tool(broker, "kafka-topics", "--describe", "--topic", topic).out, WAIT_SECONDS
    )
    outcome["describe five"] = _told(_tool(broker, "kafka-topics", "--describe", "--topic", topic))
    listed = _tool(broker, "kafka-topics", "--list").lines
    assert topic in listed
    outcome["delete"] = _told(_tool(broker, "kafka-topics", "--delete", "--topic", topic))
    until(lambda: topic not in _tool(broker, "kafka-topics", "--list").lines, WAIT_SECONDS)
    outcome["delete again"] = _told(_tool(broker, "kafka-topics", "--delete", "--topic", topic))
    outcome["describe unknown"] = _told(_tool(broker, "kafka-topics", "--describe", "--topic", topic))
    return outcome


def topics_refused(broker: Broker, topic: str) -> Any:
    wrong = {
        "name": ("--topic", "a/b"),
        "replication": ("--topic", topic, "--replication-factor", "2"),
        "config": ("--topic", topic, "--config", "retention.ms=never"),
    }
    return {name: _told(_tool(broker, "kafka-topics", "--create", *arguments)) for name, arguments in wrong.items()}


def console_producer_and_consumer(broker: Broker, topic: str) -> Any:
    _create(broker, topic)
    lines = b"".join(b"h%d:x,k:y\tkey%d\tvalue %d\n" % (n, n, n) for n in range(50))
    properties = ("parse.key=true", "parse.headers=true")
    arguments = [part for p in properties for part in ("--reader-property", p)]
    produced = _tool(broker, "kafka-console-producer", "--topic", topic, *arguments, stdin=lines)
    shown = ("print.key=true", "print.headers=true", "print.offset=true", "print.partition=true")
    printing = [part for p in shown for part in ("--formatter-property", p)]
    place = ("--topic", topic, "--partition", "0")
    read = _tool(broker, "kafka-console-consumer", *place, "--offset", "0", "--max-messages", "50", *printing)
    assert len(read.lines) == 50, read.err
    tail = _tool(broker, "kafka-console-consumer", *place, "--offset", "45", "--max-messages", "5", *printing)
    first = _tool(broker, "kafka-console-consumer", *place, "--offset", "earliest", "--max-messages", "1", *printing)
    committed = ("--isolation-level", "read_committed", "--offset", "10", "--max-messages", "2")
    some = _tool(broker, "kafka-console-consumer", *place, *committed, *printing)
    return {
        "produced": _told(produced),
        "read": _told(read),
        "tail": _told(tail),
        "first": _told(first),
        "some": _told(some),
    }


def offsets(broker: Broker, topic: str) -> Any:
    _create(broker, topic, "--partitions", "2")
    _tool(broker, "kafka-console-producer", "--topic", topic, stdin=b"a\nb\nc\n")
    outcome = {}
    for when in ("-1", "-2", "max-timestamp", "-4", "-5", "1000", "9999999999999"):
        arguments = ("--topic-partitions", f"{topic}:0-2", "--time", when)
        told = _told(_tool(broker, "kafka-get-offsets", *arguments))
        found = sorted(line.rpartition(":")[2] for line in told["out"])  # which partition got them is chance
        told["out"] = len(found) if when == "max-timestamp" else found  # which was last, the clock decides
        outcome[when] = told
    return outcome


def deleted_records(broker: Broker, topic: str) -> Any:
    _create(broker, topic)
    _tool(broker, "kafka-console-producer", "--topic", topic, stdin=b"a\nb\nc\nd\n")
    outcome = {}
    for offset in (2, 9, -1):
        asked = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": offset}]}
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(asked, file)
            file.flush()
            told = _told(_tool(broker, "kafka-delete-records", "--offset-json-file", file.name))
        told["out"] = [line for line in told["out"] if " ERROR [AdminClient" not in line]  # the tool's log, with a time
        outcome[str(offset)] = told
        outcome[f"start after {offset}"] = _told(_tool(broker, "kafka-get-offsets", "--topic", topic, "--time", "-2"))
    return outcome


def api_versions(broker: Broker, topic: str) -> Any:
    """The ranges of what kbroker serves are Kafka's own."""
    told = _tool(broker, "kafka-broker-api-versions")
    ranges = dict(re.findall(r"(\w+)\(\d+\): ([^,\n]+)", told.out))
    return {"exit": told.exit_code, "ranges": {name: ranges.get(name) for name in _SERVED}}


def topic_configs(broker: Broker, topic: str) -> Any:
    _create(broker, topic, "--config", "cleanup.policy=compact", "--config", "max.message.bytes=2000000")
    entity = ("--entity-type", "topics", "--entity-name", topic)
    return {
        "set": _told(_tool(broker, "kafka-configs", "--describe", *entity)),
        "all": _told(_tool(broker, "kafka-configs", "--describe", "--all", *entity)),
        "unknown": _told(
            _tool(broker, "kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", "nope")
        ),
    }


def configs_altered(broker: Broker, topic: str) -> Any:
    _create(broker, topic)
    entity = ("--entity-type", "topics", "--entity-name", topic)
    steps = {
        "add": ("--alter", *entity, "--add-config", "retention.ms=60000,cleanup.policy=[compact,delete]"),
        "bad value": ("--alter", *entity, "--add-config", "retention.ms=soon"),
        "unknown name": ("--alter", *entity, "--add-config", "no.such.config=1"),
        "delete what is not there": ("--alter", *entity, "--delete-config", "segment.ms"),
        "read-only": ("--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config", "num.partitions=9"),
    }
    outcome = {name: _told(_tool(broker, "kafka-configs", *arguments)) for name, arguments in steps.items()}
    until(lambda: "compact" in _tool(broker, "kafka-configs", "--describe", *entity).out, WAIT_SECONDS)
    outcome["described"] = _told(_tool(broker, "kafka-configs", "--describe", *entity))
    return outcome


def broker_configs_altered(broker: Broker, topic: str) -> Any:
    """One broker, then the default of all; both are left as they were found."""
    outcome: dict[str, Any] = {}
    for label, whose in (("one", ("--entity-name", "1")), ("all", ("--entity-default",))):
        entity = ("--entity-type", "brokers", *whose)
        alter = partial(_tool, broker, "kafka-configs", "--alter", *entity)
        settings = partial(_lines_about, broker, "log.roll.jitter.ms", entity)
        outcome[f"add, {label}"] = _told(alter("--add-config", "log.roll.jitter.ms=5"))
        until(lambda: bool(settings()), WAIT_SECONDS)  # noqa: B023 - asked before the next turn
        outcome[f"described, {label}"] = settings()
        outcome[f"delete, {label}"] = _told(alter("--delete-config", "log.roll.jitter.ms"))
        until(lambda: not settings(), WAIT_SECONDS)  # noqa: B023
    return outcome


def _lines_about(broker: Broker, setting: str, entity: tuple[str, ...]) -> list[str]:
    described = _tool(broker, "kafka-configs", "--describe", *entity)
    return [line.strip() for line in described.lines if setting in line]


def cluster_id(broker: Broker, topic: str) -> Any:
    told = run_tool("kafka-cluster", "cluster-id", "--bootstrap-server", broker.bootstrap)
    return {"exit": told.exit_code, "out": re.sub(r"Cluster ID: \S{22}\b", "Cluster ID: *", told.out)}


def verifiable_producer(broker: Broker, topic: str) -> Any:
    _create(broker, topic)
    told = _tool(broker, "kafka-verifiable-producer", "--topic", topic, "--max-messages", "300", "--acks", "-1")
    sent = [json.loads(line) for line in told.lines]
    places = [[one["partition"], one["offset"], one["value"]] for one in sent if one["name"] == "producer_send_success"]
    assert len(places) == 300
    return {"exit": told.exit_code, "sent": places}


TOOL_SCENARIOS: dict[str, Callable[[Broker, str], Any]] = {
    "kafka-topics, birth to death": topics_from_birth_to_death,
    "kafka-topics, refused": topics_refused,
    "kafka-console-producer and -consumer": console_producer_and_consumer,
    "kafka-get-offsets": offsets,
    "kafka-delete-records": deleted_records,
    "kafka-broker-api-versions": api_versions,
    "kafka-configs, topic": topic_configs,
    "kafka-configs, a topic altered": configs_altered,
    "kafka-configs, brokers altered": broker_configs_altered,
    "kafka-cluster": cluster_id,
    "kafka-verifiable-producer": verifiable_producer,
}


@pytest.mark.parametrize("scenario", TOOL_SCENARIOS)
def test_a_tool_sees_no_difference(
    request: pytest.FixtureRequest, scenario: str, topic: str, comparing: Compare
) -> None:
    request.node.compat_row = ("java tools", scenario)
    comparing("java tools", scenario, lambda broker: TOOL_SCENARIOS[scenario](broker, topic))


@pytest.mark.parametrize("codec", CODECS)
def test_the_perf_tool_delivers_every_record(
    request: pytest.FixtureRequest, codec: str, topic: str, comparing: Compare
) -> None:
    scenario = f"kafka-producer-perf-test, {codec}"
    request.node.compat_row = ("java tools", scenario)

    def run(broker: Broker) -> Any:
        _create(broker, topic)
        settings = (f"compression.type={codec}", "batch.size=16384", "acks=all")
        properties = [part for setting in settings for part in ("--command-property", setting)]
        load = ("--num-records", "20000", "--record-size", "100", "--throughput", "-1")
        sent = _tool(broker, "kafka-producer-perf-test", "--topic", topic, *load, *properties)
        assert sent.exit_code == 0, sent.out + sent.err
        end = _tool(broker, "kafka-get-offsets", "--topic", topic)
        return {"sent": sent.lines[-1].split(",")[0], "end": end.out.strip()}

    comparing("java tools", scenario, run)
