"""A clean stop and a new start: sequences, epochs and offsets go on where they stopped, on both brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compat_tests.harness import Broker, Results, compare
from compat_tests.kbroker_server import KBroker
from compat_tests.oracle import ApacheKafka
from compat_tests.raw.batches import Batch, Rec
from compat_tests.raw.talk import Talk, Topic, produce_body


def _batch(sequence: int, epoch: int = 0) -> bytes:
    records = (Rec(b"k", b"%d" % sequence), Rec(None, b"x", 1))
    return Batch(records, producer_id=7000, producer_epoch=epoch, base_sequence=sequence).encode()


def _before(bootstrap: str) -> Topic:
    talk = Talk(bootstrap, "restart")
    topic = talk.topic()
    talk.append(topic, *(_batch(n * 2) for n in range(7)))
    talk.close()
    return topic


def _after(bootstrap: str, topic: Topic) -> dict[str, Any]:
    talk = Talk(bootstrap, "restart")
    for label, batch in (
        ("repeat of the last", _batch(12)),
        ("repeat of an older one", _batch(10)),  # a snapshot keeps only the last batch of a producer
        ("gap", _batch(16)),
        ("next", _batch(14)),
        ("old epoch", _batch(16, epoch=-1)),
        ("new epoch not from zero", _batch(3, epoch=1)),
        ("new epoch", _batch(0, epoch=1)),
    ):
        talk.ask(label, "Produce", 12, produce_body(topic, batch))
    for when in (-1, -2, -3):
        asked = {"name": topic.name, "partitions": [{"timestamp": when}]}
        talk.ask(f"offset {when}", "ListOffsets", 7, {"replica_id": -1, "topics": [asked]})
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    talk.ask("log", "Fetch", 12, {"max_wait_ms": 0, "topics": [{"topic": topic.name, "partitions": [part]}]})
    for epoch in (0, 1, 2, 3):
        asked = {"topic": topic.name, "partitions": [{"leader_epoch": epoch, "current_leader_epoch": -1}]}
        talk.ask(f"end of epoch {epoch}", "OffsetForLeaderEpoch", 4, {"replica_id": -1, "topics": [asked]})
    talk.ask("metadata", "Metadata", 12, {"topics": [{"name": topic.name}]})
    talk.close()
    return talk.said


def test_a_restart_changes_nothing(
    pytestconfig: pytest.Config, java_tools: None, tmp_path: Path, results: Results
) -> None:
    wanted = pytestconfig.getoption("--brokers").split(",")
    understudy = pytestconfig.getoption("--rehearse")
    kinds: dict[str, Any] = {"apache": ApacheKafka, "kbroker": ApacheKafka if understudy else KBroker}
    brokers: dict[str, Broker] = {name: kind(tmp_path / name) for name, kind in kinds.items() if name in wanted}

    def run(broker: Any) -> Any:
        with broker:
            topic = _before(broker.bootstrap)
        with broker:
            return _after(broker.bootstrap, topic)

    compare(results, "data directory", "a restart keeps sequences, epochs and offsets", brokers, run)
