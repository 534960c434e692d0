"""Kafka's own tools for groups, unchanged, on both brokers: what operators ask, reset and delete."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest

from compat_tests.client import WAIT_SECONDS
from compat_tests.groups.members import PARTITIONS, RECORDS, Confluent, consumers, make_topic, shares, wait_for
from compat_tests.groups.verifiable import a_group_of_verifiable_consumers
from compat_tests.harness import Broker
from compat_tests.oracle import ToolResult, run_tool
from compat_tests.plugin import Compare
from compat_tests.scenarios.records import FIRST_MS
from compat_tests.until import until

# A name and a uuid, or a uuid as Java and librdkafka shorten it.
_ID = re.compile(r"\S*[0-9a-f]{8}-[0-9a-f-]{27}|(?<!\S)[A-Za-z0-9+/_-]{22}(?!\S)")
LONGEST = 2_000  # characters of a line
_PROTOCOLS = {"classic": {"partition.assignment.strategy": "range"}, "consumer": {"group.protocol": "consumer"}}


def _tool(broker: Broker, tool: str, *arguments: str) -> ToolResult:
    return run_tool(tool, "--bootstrap-server", broker.bootstrap, *arguments)


def _told(result: ToolResult) -> dict[str, Any]:
    """Exit code and lines; ids, ports and the width of columns are each run's own."""
    lines = []
    for line in [*result.lines, *result.err.splitlines()]:
        words = " ".join(line.split())  # columns are as wide as the longest name that any group of the broker has
        if len(words) > LONGEST:
            continue  # one that has such a name
        told = _ID.sub("*", words).replace(f"{_place(words)}", "*:*")
        if told and "Exception" not in told and "\tat " not in line:
            lines.append(told)
    return {"exit": result.exit_code, "lines": sorted(lines)}


def _place(line: str) -> str:
    found = re.search(r"127\.0\.0\.1:\d+", line)
    return found.group(0) if found else "\0"


def a_group_from_birth_to_death(broker: Broker, topic: str) -> Any:
    make_topic(broker, topic)
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
    with consumers(1, lambda: Confluent(broker, group, **{"client.id": "watched"}), topic) as members:
        wait_for(members, lambda: shares(members) == [PARTITIONS])
        outcome["live"] = tool(*about)
        outcome["live members"] = tool(*about, "--members")
        outcome["live state"] = tool(*about, "--state")
        outcome["delete live"] = tool("--delete", "--group", group)
        outcome["reset live"] = tool(*reset, "--to-latest", "--execute")
    outcome["delete"] = tool("--delete", "--group", group)
    outcome["delete again"] = tool("--delete", "--group", group)
    outcome["describe nothing"] = tool(*about)
    return outcome


def offsets_reset_in_every_way(broker: Broker, topic: str) -> Any:
    """Records a second apart, ten a partition; after each reset the tool tells where the group stands."""
    make_topic(broker, topic, first_ms=FIRST_MS)
    group, other = f"g-{topic}", f"h-{topic}"
    outcome: dict[str, Any] = {}

    def tool(label: str, *arguments: str) -> ToolResult:
        told = _tool(broker, "kafka-consumer-groups", *arguments)
        outcome[label] = _told(told)
        return told

    def reset(label: str, *how: str, whose: str = group) -> None:
        tool(label, "--reset-offsets", "--group", whose, *how)

    def moment(seconds: float) -> str:
        when = datetime.fromtimestamp(FIRST_MS / 1000 + seconds, timezone.utc)
        return when.strftime("%Y-%m-%dT%H:%M:%S.") + f"{when.microsecond // 1000:03}Z"

    named = ("--topic", topic)
    reset("a group that is not there yet", *named, "--to-earliest", "--execute")
    reset("to latest", *named, "--to-latest", "--execute")
    reset("back by 4", *named, "--shift-by", "-4", "--execute")
    reset("back beyond the start", *named, "--shift-by", "-400", "--execute")
    reset("on beyond the end", *named, "--shift-by", "400", "--execute")
    reset("to a moment", *named, "--to-datetime", moment(17.5), "--execute")
    reset("to a moment after all", *named, "--to-datetime", moment(9000), "--execute")
    reset("to a moment before all", *named, "--to-datetime", moment(-9000), "--execute")
    reset("by a long time", *named, "--by-duration", "P9000D", "--execute")
    reset("by no time", *named, "--by-duration", "PT0S", "--execute")
    reset("partitions", "--topic", f"{topic}:0,2", "--to-offset", "3", "--execute")
    reset("an offset that is not there", *named, "--to-offset", "77", "--execute")
    reset("to where it is", *named, "--to-current", "--execute")
    reset("all topics", "--all-topics", "--shift-by", "-1", "--execute")
    exported = tool("export", "--reset-offsets", "--group", group, *named, "--to-current", "--export")
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        file.write(re.sub(r",(\d+)$", lambda found: f",{int(found[1]) // 2}", exported.out, flags=re.MULTILINE))
        file.flush()
        reset("by file", "--from-file", file.name, "--execute")
        reset("by file, another group", "--from-file", file.name, "--execute", whose=other)
    reset("nothing to do said", *named, "--to-latest")
    reset("no such topic", "--topic", f"{topic}-none", "--to-latest", "--execute")
    reset("no such partition", "--topic", f"{topic}:9", "--to-latest", "--execute")
    tool("both groups", "--describe", "--group", group, "--group", other, "--offsets", "--verbose")
    tool("delete offsets of a partition", "--delete-offsets", "--group", other, "--topic", f"{topic}:1")
    tool("delete offsets of no partition", "--delete-offsets", "--group", other, "--topic", f"{topic}:9")
    tool("delete offsets", "--delete-offsets", "--group", other, "--topic", topic)
    tool("delete offsets of nobody", "--delete-offsets", "--group", f"{topic}-none", "--topic", topic)
    tool("what is left", "--describe", "--group", other)
    tool("delete both", "--delete", "--group", group, "--group", other)
    return outcome


def groups_listed(broker: Broker, topic: str) -> Any:
    """Two that live, one of each kind, and one that is empty: by state, by type, and while they work."""
    make_topic(broker, topic)
    outcome: dict[str, Any] = {}
    names = {kind: f"{kind}-{topic}" for kind in (*_PROTOCOLS, "empty")}

    def tool(label: str, *arguments: str) -> None:
        told = _told(_tool(broker, "kafka-consumer-groups", *arguments))
        told["lines"] = [line for line in told["lines"] if topic in line or "GROUP" in line]
        outcome[label] = told

    reset = ("--reset-offsets", "--group", names["empty"], "--topic", topic, "--to-earliest", "--execute")
    tool("made by a reset", *reset)
    makes = {kind: _maker(broker, names[kind], kind) for kind in _PROTOCOLS}
    with consumers(1, makes["classic"], topic) as classic, consumers(1, makes["consumer"], topic) as consumer:
        both = [*classic, *consumer]
        wait_for(both, lambda: shares(both) == [PARTITIONS, PARTITIONS])
        wait_for(both, lambda: all(len(one.got) == RECORDS for one in both))
        for one in both:
            one.commit()
        tool("names", "--list")
        tool("states", "--list", "--state")
        tool("stable", "--list", "--state", "stable")
        tool("empty", "--list", "--state", "Empty")
        tool("wrong state", "--list", "--state", "asleep")
        tool("types", "--list", "--type")
        tool("consumer", "--list", "--type", "consumer")
        tool("classic, empty", "--list", "--type", "classic", "--state", "empty")
        tool("wrong type", "--list", "--type", "modern")
        for kind in _PROTOCOLS:
            about = ("--describe", "--group", names[kind])
            tool(f"{kind}, state", *about, "--state")
            tool(f"{kind}, state, verbose", *about, "--state", "--verbose")
            tool(f"{kind}, members", *about, "--members")
            tool(f"{kind}, members, verbose", *about, "--members", "--verbose")
            tool(f"{kind}, offsets", *about, "--offsets")
            tool(f"{kind}, offsets, verbose", *about, "--offsets", "--verbose")
            tool(f"{kind}, delete", "--delete", "--group", names[kind])
            tool(f"{kind}, delete offsets", "--delete-offsets", "--group", names[kind], "--topic", topic)
            tool(
                f"{kind}, reset",
                "--reset-offsets",
                "--group",
                names[kind],
                "--topic",
                topic,
                "--to-latest",
                "--execute",
            )
    for kind, name in names.items():
        tool(f"{kind}, deleted", "--delete", "--group", name)
    return outcome


def _maker(broker: Broker, group: str, kind: str) -> Callable[[], Confluent]:
    return lambda: Confluent(broker, group, **{"client.id": kind, **_PROTOCOLS[kind]})


SCENARIOS: dict[str, Callable[[Broker, str], Any]] = {
    "a group from birth to death": a_group_from_birth_to_death,
    "offsets reset in every way": offsets_reset_in_every_way,
    "groups listed": groups_listed,
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_tool_sees_no_difference(
    scenario: str, topic: str, comparing_together: Compare, request: pytest.FixtureRequest
) -> None:
    request.node.compat_row = ("kafka-consumer-groups", scenario)
    comparing_together("kafka-consumer-groups", scenario, lambda broker: SCENARIOS[scenario](broker, topic))


@pytest.mark.parametrize("protocol", _PROTOCOLS)
def test_verifiable_consumers_see_no_difference(
    protocol: str, topic: str, comparing_together: Compare, request: pytest.FixtureRequest
) -> None:
    scenario = f"kafka-verifiable-consumer, {protocol} protocol"
    request.node.compat_row = ("java tools", scenario)
    comparing_together("java tools", scenario, lambda broker: a_group_of_verifiable_consumers(broker, topic, protocol))
