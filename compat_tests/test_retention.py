"""Retention: the same records into the same topics, and after the check the same offsets, segments and files."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compat_tests.client import WAIT_SECONDS
from compat_tests.confluent import ConfluentClient
from compat_tests.harness import Broker, Results, compare
from compat_tests.kbroker_server import KBroker
from compat_tests.oracle import ApacheKafka
from compat_tests.raw.talk import Talk, Topic
from compat_tests.until import until
from kbroker._core.record.records import Record, build_batch

# Often enough for a test to wait for, and no cleaner's own pace: Apache has `compact,delete` topics checked by it.
_SETTINGS = {
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "100",
    "log.segment.delete.delay.ms": "300",
    "log.cleaner.backoff.ms": "100",
}
_DAY_MS = 86_400_000
_SMALL = {"segment.bytes": "1048576"}  # Kafka allows no smaller one
_BLOCK = bytes(range(256)) * 2400  # 600 kB: a segment per record
_UNTOUCHED = {"min.cleanable.dirty.ratio": "1"}  # by a cleaner: only retention is looked at
_OLD, _NEW, _NONE = "old", "new", "without a time"

Story = tuple[dict[str, str], tuple[str, ...]]
_STORIES: dict[str, Story] = {
    "old ones go": ({"retention.ms": str(_DAY_MS)}, (_OLD, _OLD, _NEW)),
    "the active one goes too": ({"retention.ms": str(_DAY_MS)}, (_OLD, _OLD)),
    "a younger one keeps those behind it": ({"retention.ms": str(_DAY_MS)}, (_OLD, _NEW, _OLD, _NEW)),
    "time without limit": ({"retention.ms": "-1"}, (_OLD, _OLD, _NEW)),
    "no time at all": ({"retention.ms": "0"}, (_OLD, _OLD)),
    "without timestamps": ({"retention.ms": str(_DAY_MS)}, (_NONE, _NONE, _NEW)),
    "too large": ({"retention.ms": "-1", "retention.bytes": "1300000"}, (_NEW,) * 5),
    "not too large by less than a segment": ({"retention.ms": "-1", "retention.bytes": "2000000"}, (_NEW,) * 4),
    "no byte at all": ({"retention.ms": "-1", "retention.bytes": "0"}, (_NEW, _NEW)),
    "size and time": ({"retention.ms": str(_DAY_MS), "retention.bytes": "1900000"}, (_OLD, _OLD, _NEW, _OLD, _NEW)),
    "compacted": ({**_UNTOUCHED, "retention.ms": "1", "cleanup.policy": "compact"}, (_OLD, _OLD, _NEW)),
    "compacted and deleted": (
        {**_UNTOUCHED, "retention.ms": str(_DAY_MS), "cleanup.policy": "compact,delete"},
        (_OLD, _OLD, _NEW),
    ),
    "no policy": ({"retention.ms": "1", "retention.bytes": "0", "cleanup.policy": ""}, (_OLD, _OLD, _NEW)),
}


def _batch(kind: str, key: int) -> bytes:
    now = int(time.time() * 1000)
    at = {_OLD: now - 2 * _DAY_MS, _NEW: now, _NONE: -1}[kind]
    return build_batch([Record(timestamp=at, key=b"%d" % key, value=_BLOCK)])


def _earliest(talk: Talk, topic: Topic) -> int:
    asked = {"name": topic.name, "partitions": [{"timestamp": -2}]}
    answer = talk.quietly("ListOffsets", 7, {"replica_id": -1, "topics": [asked]})
    part = answer["topics"][0]["partitions"][0]
    return int(part["offset"]) if part["error_code"] == 0 else -1


def _after_a_whole_check(talk: Talk) -> None:
    """What is old goes at one check; that it went twice means that one check began and ended in between."""
    topic = talk.topic(configs={"retention.ms": "1000"})
    for turn in range(3):
        talk.append(topic, _batch(_OLD, turn))
        until(lambda end=turn + 1: _earliest(talk, topic) == end, WAIT_SECONDS)  # type: ignore[misc]


def _segments(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.suffix in (".log", ".deleted"))


def _look(talk: Talk, label: str, topic: Topic, directory: Path) -> None:
    for when in (-2, -1):
        asked = {"name": topic.name, "partitions": [{"timestamp": when}]}
        talk.ask(f"{label}: offset {when}", "ListOffsets", 7, {"replica_id": -1, "topics": [asked]})
    for offset in (0, 1):
        part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1}
        body = {"max_wait_ms": 0, "max_bytes": 1, "topics": [{"topic": topic.name, "partitions": [part]}]}
        answer = talk.quietly("Fetch", 12, body)["responses"][0]["partitions"][0]
        answer["records"] = bool(answer["records"])
        talk.say(f"{label}: fetch at {offset}", answer)
    until(lambda: not any(name.endswith(".deleted") for name in _segments(directory)), WAIT_SECONDS)
    talk.say(f"{label}: segments", _segments(directory))


def _live(broker: Any, between: Callable[[Talk, dict[str, Topic]], None]) -> dict[str, Any]:
    """Every story on one broker, looked at after a check and again after a restart."""
    with broker:
        talk = Talk(broker.bootstrap, "retention")
        topics = {name: talk.topic(configs={**_SMALL, **configs}) for name, (configs, _) in _STORIES.items()}
        for name, (_, kinds) in _STORIES.items():
            for key, kind in enumerate(kinds):
                talk.append(topics[name], _batch(kind, key))
        between(talk, topics)
        _after_a_whole_check(talk)
        until(lambda: _earliest(talk, topics["compacted and deleted"]) == 2, WAIT_SECONDS)
        directories = {name: broker.data_directory / f"{topic.name}-0" for name, topic in topics.items()}
        for name, topic in topics.items():
            _look(talk, name, topic, directories[name])
        talk.close()
        told: dict[str, Any] = {"running": talk.said}
    told["epochs"] = {name: (path / "leader-epoch-checkpoint").read_text() for name, path in directories.items()}
    with broker:
        talk = Talk(broker.bootstrap, "retention")
        until(lambda: all(_earliest(talk, topic) >= 0 for topic in topics.values()), WAIT_SECONDS)
        told["started again"] = {name: _earliest(talk, topic) for name, topic in topics.items()}
        talk.close()
    return told


def _brokers(pytestconfig: pytest.Config, directory: Path) -> dict[str, Broker]:
    wanted = pytestconfig.getoption("--brokers").split(",")
    options = tuple(part for name, value in _SETTINGS.items() for part in ("--config", f"{name}={value}"))
    made: dict[str, Any] = {
        "apache": ApacheKafka(directory / "apache", settings=_SETTINGS),
        "kbroker": KBroker(directory / "kbroker", options=options),
    }
    if pytestconfig.getoption("--rehearse"):
        made["kbroker"] = ApacheKafka(directory / "kbroker", settings=_SETTINGS)
    return {name: broker for name, broker in made.items() if name in wanted}


def test_the_same_segments_go(pytestconfig: pytest.Config, java_tools: None, tmp_path: Path, results: Results) -> None:
    def delete_some(talk: Talk, topics: dict[str, Topic]) -> None:
        """Not at a segment's edge: what lies wholly below goes, whatever the policy."""
        topic = topics["time without limit"]
        parts = [{"partition_index": 0, "offset": 2}]
        answer = talk.quietly("DeleteRecords", 2, {"topics": [{"name": topic.name, "partitions": parts}]})
        assert answer["topics"][0]["partitions"][0]["error_code"] == 0

    compare(
        results,
        "data directory",
        "retention by time, size and request",
        _brokers(pytestconfig, tmp_path),
        lambda broker: _live(broker, delete_some),
    )


def test_an_admin_client_deletes_records(brokers: dict[str, Broker], results: Results) -> None:
    confluent: Any = pytest.importorskip("confluent_kafka")
    admin_module: Any = pytest.importorskip("confluent_kafka.admin")

    def run(broker: Broker) -> Any:
        talk = Talk(broker.bootstrap, "admin-deletes")
        topic = talk.topic(partitions=2)
        for partition in range(2):
            talk.append(topic, build_batch([Record(timestamp=1, value=b"x")] * 5), partition=partition)
        told: dict[str, Any] = {}
        admin = admin_module.AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        with ConfluentClient(broker.bootstrap) as client:
            for name, offsets in (("one", (2, 0)), ("end", (confluent.OFFSET_END, 3)), ("beyond", (6, 4))):
                asked = [confluent.TopicPartition(topic.name, p, offset) for p, offset in enumerate(offsets)]
                for part, done in admin.delete_records(asked).items():
                    try:
                        told[f"{name} {part.partition}"] = done.result(WAIT_SECONDS).low_watermark
                    except confluent.KafkaException as error:
                        told[f"{name} {part.partition}"] = error.args[0].code()
            told["starts"] = [client.list_offset(topic.name, partition, -2) for partition in range(2)]
        talk.close()
        assert told["starts"] == [5, 4]
        return told

    compare(results, "confluent-kafka", "an admin client deletes records", brokers, run)
