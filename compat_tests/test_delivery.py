"""At most once, at least once, by hand and automatically: consumers killed at the critical moment, on both brokers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from compat_tests.client import WAIT_SECONDS
from compat_tests.groups.worker import DIES_AT, TICK_AT
from compat_tests.harness import Broker
from compat_tests.plugin import Compare
from compat_tests.raw.connection import Connection

RECORDS = 20
# What a mode promises, in counts of records.
LOST = {"commit first": 1, "work first": 0, "between ticks": 0, "tick at work": 1}
REPEATED = {"commit first": 0, "work first": 1, "between ticks": DIES_AT - TICK_AT, "tick at work": 0}
KINDS = {
    "confluent-kafka": ("confluent-kafka", "classic", tuple(LOST)),
    "confluent-kafka consumer protocol": ("confluent-kafka", "consumer", tuple(LOST)),
    "kafka-python": ("kafka-python", "classic", ("commit first", "work first", "between ticks")),  # ticks within polls
    "aiokafka": ("aiokafka", "classic", ("between ticks", "tick at work")),
}
_SESSION = {"name": "consumer.session.timeout.ms", "config_operation": 0, "value": "2000"}
_GROUP_RESOURCE = 32


def _made(broker: Broker, topic: str) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(WAIT_SECONDS)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, str(number).encode())
    assert producer.flush(WAIT_SECONDS) == 0


def _forget_sooner(broker: Broker, group: str) -> None:
    """A killed member of the consumer protocol is waited for as long as its group says."""
    connection = Connection(broker.bootstrap)
    resource = {"resource_type": _GROUP_RESOURCE, "resource_name": group, "configs": [_SESSION]}
    answer = connection.ask("IncrementalAlterConfigs", 1, {"resources": [resource], "validate_only": False})
    connection.close()
    assert isinstance(answer, dict)
    assert answer["responses"][0]["error_code"] == 0, answer


def _live(about: dict[str, Any], mode: str) -> int:
    told = {**about, "mode": mode, "auto": "tick" in mode}
    process = subprocess.run(
        [sys.executable, "-m", "compat_tests.groups.worker", json.dumps(told)],
        capture_output=True,
        text=True,
        timeout=3 * WAIT_SECONDS,
        check=False,
    )
    assert process.returncode in (0, -signal.SIGKILL), process.stderr
    return process.returncode


def _two_lives(broker: Broker, kind: str, mode: str, topic: str, *, static: bool = True) -> dict[str, Any]:
    client, protocol, _ = KINDS[kind]
    _made(broker, topic)
    if protocol == "consumer":
        _forget_sooner(broker, f"g-{topic}")
    with tempfile.TemporaryDirectory() as directory:
        ledger = Path(directory, "ledger")
        about = {
            "client": client,
            "protocol": protocol,
            "topic": topic,
            "group": f"g-{topic}",
            "bootstrap": broker.bootstrap,
            "instance": "worker" if protocol == "classic" and static else None,  # taken over at once
            "ledger": str(ledger),
            "last": RECORDS - 1,
        }
        codes = [_live(about, mode), _live(about, "finish")]
        worked = Counter(int(line) for line in ledger.read_text().split())
    return {
        "exit codes": codes,
        "lost": sorted(set(range(RECORDS)) - worked.keys()),
        "repeated": sorted(value for value, times in worked.items() if times > 1),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_mode_keeps_its_promise(
    kind: str, topic: str, comparing_together: Compare, request: pytest.FixtureRequest
) -> None:
    request.node.compat_row = (kind, "delivery: killed at the critical moment")
    modes = KINDS[kind][2]

    def run(broker: Broker) -> Any:
        with ThreadPoolExecutor(len(modes)) as pool:
            begun = {
                mode: pool.submit(_two_lives, broker, kind, mode, f"{topic}-{mode.replace(' ', '-')}") for mode in modes
            }
            told = {mode: one.result() for mode, one in begun.items()}
        for mode, seen in told.items():
            assert len(seen["lost"]) == LOST[mode], (mode, seen)
            assert len(seen["repeated"]) == REPEATED[mode], (mode, seen)
        return told

    comparing_together(kind, "delivery: killed at the critical moment", run)


def test_a_killed_member_without_a_name_is_waited_for(topic: str, comparing_together: Compare) -> None:
    """Its session has to end before its partition is another's."""
    comparing_together(
        "confluent-kafka",
        "delivery: a dynamic member killed",
        lambda broker: _two_lives(broker, "confluent-kafka", "work first", topic or "t-dynamic", static=False),
    )
