"""Broker settings changed while it runs: the same are refused, and limits of connections hold for the next one."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

import pytest

from compat_tests.client import WAIT_SECONDS
from compat_tests.harness import Broker, Results, compare
from compat_tests.kbroker_server import KBroker
from compat_tests.oracle import ApacheKafka
from compat_tests.raw.talk import Talk
from compat_tests.until import until

_BROKER = 4
_CLEANER = (
    ("log.cleaner.dedupe.buffer.size", "1000"),
    ("log.cleaner.dedupe.buffer.size", "1048576"),
    ("log.cleaner.dedupe.buffer.size", "1048577"),
    ("log.cleaner.threads", "2"),
    ("log.cleaner.dedupe.buffer.size", "2097154"),
    ("log.cleaner.threads", "2"),
    ("log.cleaner.threads", "5"),
    ("log.cleaner.io.buffer.size", "0"),
    ("log.cleaner.io.max.bytes.per.second", "-1"),
)


def _set(talk: Talk, name: str, value: str | None) -> int:
    entry = {"name": name, "config_operation": 1 if value is None else 0, "value": value}
    resource = {"resource_type": _BROKER, "resource_name": "1", "configs": [entry]}
    answer = talk.quietly("IncrementalAlterConfigs", 1, {"resources": [resource]})
    return int(answer["responses"][0]["error_code"])


def _held(talk: Talk, name: str) -> str | None:
    resource = {"resource_type": _BROKER, "resource_name": "1", "configuration_keys": [name]}
    answer = talk.quietly("DescribeConfigs", 4, {"resources": [resource]})
    return answer["results"][0]["configs"][0]["value"]  # type: ignore[no-any-return]


def _welcome(bootstrap: str, wanted: int) -> int:
    """How many of so many connections stay open."""
    host, _, port = bootstrap.rpartition(":")
    opened = [socket.create_connection((host, int(port))) for _ in range(wanted)]
    deadline = time.monotonic() + 1.0  # whoever is not wanted hears of it long before
    staying = 0
    for one in opened:
        one.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            staying += one.recv(1) != b""
        except TimeoutError:
            staying += 1
        except ConnectionError:
            pass
        one.close()
    return staying


def _live(broker: Any) -> dict[str, Any]:
    with broker:
        talk = Talk(broker.bootstrap, "live-settings")
        told: dict[str, Any] = {"cleaner": []}
        for name, value in _CLEANER:
            error = _set(talk, name, value)
            told["cleaner"].append([name, value, error])
            if error == 0:  # Apache answers first and follows a moment later
                until(lambda n=name, v=value: _held(talk, n) in (v, v + ".0"), WAIT_SECONDS)  # type: ignore[misc]
        limit, overrides = "max.connections.per.ip", "max.connections.per.ip.overrides"
        steps: list[tuple[str, str, str | None, int]] = [
            ("four", limit, "4", 3),  # beside the one that asks
            ("but six from here", overrides, "127.0.0.1:6", 5),
            ("four again", overrides, None, 3),
            ("as many as come", limit, None, 8),
        ]
        for label, key, wanted, stay in steps:
            assert _set(talk, key, wanted) == 0, (broker.name, label)
            until(lambda n=stay: _welcome(broker.bootstrap, 8) == n, WAIT_SECONDS)  # type: ignore[misc]
            told[label] = stay
        talk.close()
    return told


def test_limits_and_the_cleaners_settings_change_alike(
    pytestconfig: pytest.Config, java_tools: None, tmp_path: Path, results: Results
) -> None:
    wanted = pytestconfig.getoption("--brokers").split(",")
    made: dict[str, Broker] = {"apache": ApacheKafka(tmp_path / "apache"), "kbroker": KBroker(tmp_path / "kbroker")}
    brokers = {name: broker for name, broker in made.items() if name in wanted}
    compare(results, "settings while it runs", "connections and the cleaner", brokers, _live)


# (AlterConfigs, or the operation of an incremental change; whose; setting; value). Apache follows a moment later: what
# is accepted is waited for.
_ALTER, _SET, _DELETE = "alter", 0, 1
_HIDDEN: tuple[tuple[str | int, str, str | None, str | None], ...] = (
    (_ALTER, "1", "log.retention.ms", "1"),
    (_ALTER, "", "log.retention.ms", "0"),  # this broker has its own
    (_ALTER, "1", None, None),  # what was hidden would hold
    (_DELETE, "1", "log.retention.ms", None),
    (_ALTER, "1", "log.retention.ms", "2"),
    (_SET, "1", "log.cleaner.backoff.ms", "20000"),
    (_DELETE, "1", "log.cleaner.backoff.ms", None),
    (_ALTER, "", None, None),
    (_DELETE, "1", "log.retention.ms", None),
    (_SET, "1", "num.io.threads", "16"),
    (_SET, "1", "num.io.threads", "32"),
    (_DELETE, "1", "num.io.threads", None),  # less than half
    (_SET, "1", "num.io.threads", "16"),
    (_ALTER, "1", None, None),
)


def _alter(talk: Talk, how: str | int, whose: str, name: str | None, value: str | None) -> int:
    configs = [] if name is None else [{"name": name, "value": value}]
    if how != _ALTER:
        configs[0]["config_operation"] = how  # type: ignore[assignment]
    resource = {"resource_type": _BROKER, "resource_name": whose, "configs": configs}
    api, version = ("AlterConfigs", 2) if how == _ALTER else ("IncrementalAlterConfigs", 1)
    return int(talk.quietly(api, version, {"resources": [resource]})["responses"][0]["error_code"])


def _own(talk: Talk, whose: str) -> dict[str, str]:
    """What was set there at run time."""
    resource = {"resource_type": _BROKER, "resource_name": whose, "configuration_keys": None}
    answer = talk.quietly("DescribeConfigs", 4, {"resources": [resource]})
    source = 2 if whose else 3
    return {one["name"]: one["value"] for one in answer["results"][0]["configs"] if one["config_source"] == source}


def _taken_away(broker: Any) -> dict[str, Any]:
    broker.start()
    try:
        talk = Talk(broker.bootstrap, "hidden-settings")
        told: dict[str, Any] = {}
        expected: dict[str, dict[str, str]] = {"1": {}, "": {}}
        for number, (how, whose, name, value) in enumerate(_HIDDEN):
            error = _alter(talk, how, whose, name, value)
            if error == 0:
                held = {} if how == _ALTER else dict(expected[whose])
                if name is not None and value is not None:
                    held[name] = value
                elif name is not None:
                    held.pop(name, None)
                expected[whose] = held
                until(lambda w=whose, h=held: _own(talk, w) == h, WAIT_SECONDS)  # type: ignore[misc]
            told[f"{number}: {how} {whose} {name}={value}"] = error
        topic = talk.topic()
        asked = {"resource_type": 2, "resource_name": topic.name, "configuration_keys": ["flush.ms"]}
        answer = talk.quietly("DescribeConfigs", 4, {"resources": [asked], "include_synonyms": True})
        (found,) = answer["results"][0]["configs"]
        told["flush.ms of a topic that has none"] = {key: found[key] for key in ("value", "config_source", "synonyms")}
        talk.close()
    finally:
        broker.kill()  # Apache, whose threads were counted anew, may take more than a minute to stop
    return told


def test_what_a_deleted_setting_hid_is_judged_alike(
    pytestconfig: pytest.Config, java_tools: None, tmp_path: Path, results: Results
) -> None:
    wanted = pytestconfig.getoption("--brokers").split(",")
    every = "log.flush.scheduler.interval.ms"
    made: dict[str, Broker] = {
        "apache": ApacheKafka(tmp_path / "apache", settings={every: "20000"}),
        "kbroker": KBroker(tmp_path / "kbroker", options=("--config", f"{every}=20000")),
    }
    brokers = {name: broker for name, broker in made.items() if name in wanted}
    compare(results, "settings while it runs", "what is taken away", brokers, _taken_away)
