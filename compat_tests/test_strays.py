"""Partitions that no topic owns at a start: of a topic that was deleted, and of one that nobody has heard of."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from compat_tests.client import WAIT_SECONDS
from compat_tests.harness import Broker, Results, compare
from compat_tests.kbroker_server import KBroker
from compat_tests.oracle import ApacheKafka
from compat_tests.oracle.apache import random_uuid
from compat_tests.raw.batches import Batch
from compat_tests.raw.talk import Talk, produce_body
from compat_tests.until import until


def _names(data: Path) -> list[str]:
    """Without what is made up anew each time."""
    found = (path.name for path in data.glob("*-*") if path.is_dir() and not path.name.startswith("__"))
    return sorted(f"{name.split('.')[0]} {name.rpartition('-')[2]}" if "." in name else name for name in found)


def _told(broker: Any) -> dict[str, Any]:
    data = broker.data_directory
    aside = broker.directory / "aside"
    with broker:
        talk = Talk(broker.bootstrap, "strays")
        gone, stays = talk.topic(), talk.topic()
        for topic in (gone, stays):
            talk.quietly("Produce", 12, produce_body(topic, Batch().encode()))
        until((data / f"{gone.name}-0").is_dir, WAIT_SECONDS)
        shutil.copytree(data / f"{gone.name}-0", aside)
        talk.quietly("DeleteTopics", 6, {"topics": [{"name": gone.name, "topic_id": bytes(16)}], "timeout_ms": 30_000})
        until(lambda: not (data / f"{gone.name}-0").exists(), WAIT_SECONDS)
        talk.close()
        broker.kill()
    # As a kill between the commit and the renaming leaves it.
    aside.rename(data / f"{gone.name}-0")
    unheard = data / "unheard-of-0"
    shutil.copytree(data / f"{stays.name}-0", unheard)
    (unheard / "partition.metadata").write_text(f"version: 0\ntopic_id: {random_uuid()}")
    told: dict[str, Any] = {}
    for start in ("first", "second"):
        with broker:
            talk = Talk(broker.bootstrap, "strays")
            told[f"{start} start, topics"] = sorted(
                one["name"] for one in talk.quietly("Metadata", 12, {"topics": None})["topics"]
            )
            talk.close()
        left = [name for name in _names(data) if not name.endswith(" delete")]
        told[f"{start} start, of the deleted topic"] = [name for name in left if name.startswith(gone.name)]
        told[f"{start} start, of others"] = [name for name in left if not name.startswith(gone.name)]
    return told


def test_what_nobody_owns_is_set_aside(
    pytestconfig: pytest.Config, java_tools: None, tmp_path: Path, results: Results
) -> None:
    wanted = pytestconfig.getoption("--brokers").split(",")
    made: dict[str, Broker] = {"apache": ApacheKafka(tmp_path / "apache"), "kbroker": KBroker(tmp_path / "kbroker")}
    brokers = {name: broker for name, broker in made.items() if name in wanted}
    compare(results, "data directory", "partitions that no topic owns", brokers, _told)
