"""A byte that flips in a settled segment: both brokers send the batch as it is, and the client's own check objects."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import CorruptRecordError

from compat_tests.client import WAIT_SECONDS
from compat_tests.harness import Results, Row
from compat_tests.kbroker_server import KBroker
from compat_tests.oracle import ApacheKafka
from compat_tests.raw.talk import Talk
from compat_tests.until import until
from kbroker._core.record.records import Record, batches, build_batch

_BATCHES = 6
_HARMED = 1  # of the first segment, which has two
_VALUE = bytes(range(256)) * 1600  # 400 kB: two batches a segment of 1 MiB
_NOW_MS = 1_794_000_000_000


def _fill(bootstrap: str) -> str:
    talk = Talk(bootstrap, "decay")
    topic = talk.topic(configs={"segment.bytes": "1048576", "retention.ms": "-1"})
    talk.append(topic, *(build_batch([Record(timestamp=_NOW_MS, value=_VALUE)]) for _ in range(_BATCHES)))
    talk.close()
    return topic.name


def _flip(data_directory: Path, topic: str) -> None:
    path = min(data_directory.glob(f"{topic}-0/*.log"))
    data = bytearray(path.read_bytes())
    header = batches(bytes(data), partial_tail=True)[_HARMED]
    assert len(list(data_directory.glob(f"{topic}-0/*.log"))) > 2, "the segment is to be settled"
    data[header.position + 1000] ^= 0x10
    path.write_bytes(data)


def _by_librdkafka(bootstrap: str, topic: str) -> list[str]:
    """What arrives, up to the first error, by its name: the client does not come past that batch."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "decay", "enable.auto.commit": False, "check.crcs": True}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen: list[str] = []

    def refused() -> bool:
        message = consumer.poll(1)
        if message is None:
            return False
        error = message.error()
        seen.append(f"offset {message.offset()}" if error is None else error.name())
        return error is not None

    until(refused, WAIT_SECONDS)
    consumer.close()
    return seen


def _by_kafka_python(bootstrap: str, topic: str) -> list[str]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, max_partition_fetch_bytes=500_000)
    partition = KafkaPythonPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    seen: list[str] = []

    def refused() -> bool:
        try:
            for records in consumer.poll(1000).values():
                seen.extend(f"offset {record.offset}" for record in records)
        except CorruptRecordError:
            seen.append("CorruptRecordError")
        return "CorruptRecordError" in seen

    until(refused, WAIT_SECONDS)
    consumer.close()
    return seen


def _story(kind: Any, directory: Path) -> dict[str, list[str]]:
    with kind(directory) as broker:
        topic = _fill(broker.bootstrap)
    _flip(broker.data_directory, topic)
    with kind.on_data_directory(broker.data_directory) as again:
        return {
            "librdkafka": _by_librdkafka(again.bootstrap, topic),
            "kafka-python": _by_kafka_python(again.bootstrap, topic),
        }


def test_a_flipped_byte_reaches_the_client_as_from_apache(
    pytestconfig: pytest.Config, java_tools: None, tmp_path: Path, results: Results
) -> None:
    if "kbroker" not in pytestconfig.getoption("--brokers").split(","):
        pytest.skip("kbroker is not among the brokers of this run")
    kind: Any = ApacheKafka if pytestconfig.getoption("--rehearse") else KBroker
    ours, apaches = _story(kind, tmp_path / "ours"), _story(ApacheKafka, tmp_path / "apaches")
    same = "same" if ours == apaches else "differs"
    results.add(Row("data directory", "a flipped byte in a settled segment reaches the client's check", same))
    assert ours == apaches
    assert ours == {"librdkafka": ["offset 0", "_BAD_MSG"], "kafka-python": ["offset 0", "CorruptRecordError"]}


def _topics_after(kind: Any, data_directory: Path) -> list[str] | str:
    """Whom a start on this directory serves, or that it is refused."""
    broker = kind.on_data_directory(data_directory)
    try:
        broker.start()
    except AssertionError:
        return "refused"
    try:
        talk = Talk(broker.bootstrap, "who")
        topics = talk.quietly("Metadata", 12, {"topics": None})["topics"]
        talk.close()
        return sorted(topic["name"] for topic in topics)
    finally:
        broker.kill()


@pytest.fixture(scope="module")
def crashed_apache(java_tools: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three topics, one after the other, and a kill."""
    with ApacheKafka(tmp_path_factory.mktemp("crashed")) as apache:
        talk = Talk(apache.bootstrap, "meta")
        for _ in range(3):
            talk.topic()
        talk.close()
        apache.kill()
    return apache.data_directory


def test_a_missing_quorum_state_is_made_from_the_log_by_both(crashed_apache: Path, tmp_path: Path) -> None:
    told = {}
    for kind in (KBroker, ApacheKafka):
        copy = tmp_path / kind.name / "data"
        shutil.copytree(crashed_apache, copy)
        (copy / "__cluster_metadata-0" / "quorum-state").unlink()
        told[kind.name] = _topics_after(kind, copy)
    assert told["kbroker"] == told["apache"] == ["w-meta-1", "w-meta-2", "w-meta-3"]


def test_a_damaged_metadata_log_is_refused_where_apache_goes_on_without_its_topics(
    crashed_apache: Path, tmp_path: Path
) -> None:
    """On purpose: docs/operations.md, "When a disk decays"."""
    told = {}
    for kind in (KBroker, ApacheKafka):
        copy = tmp_path / kind.name / "data"
        shutil.copytree(crashed_apache, copy)
        path = min(copy.glob("__cluster_metadata-0/*.log"))
        data = bytearray(path.read_bytes())
        data[data.index(b"w-meta-2")] ^= 1
        path.write_bytes(data)
        told[kind.name] = _topics_after(kind, copy)
    assert told == {"kbroker": "refused", "apache": ["w-meta-1"]}
