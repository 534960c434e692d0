"""Data directories that nobody had the time to close: each broker opens what the other left when it was killed.

Two copies are made of what the killed one left. Apache recovers one, kbroker the other, and a client must find the same
in both; Kafka's dump tool has no complaint about what either has recovered.
"""

from __future__ import annotations

import itertools
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from compat_tests.client import WAIT_SECONDS, Client, ClientError, TopicPlan
from compat_tests.confluent import ConfluentClient
from compat_tests.harness import Broker, Results, Row
from compat_tests.kbroker_server import KBroker
from compat_tests.oracle import ApacheKafka, run_tool
from compat_tests.until import until
from kbroker._core.clock import BrokerClock
from kbroker._core.log.partition_log import PartitionLog
from kbroker.storage.checkpoints import CLEANER_OFFSETS, RECOVERY_POINTS, read_offsets

_COMPLAINTS = re.compile(
    r"mismatch|corrupt|invalid|not ?valid|found log segment|isvalid: false|exception|error", re.IGNORECASE
)
_SMALL = {"segment.bytes": "1048576", "index.interval.bytes": "512"}
_TOPICS = {
    "loaded": TopicPlan(partitions=2, configs=_SMALL),
    "compacted": TopicPlan(
        configs={**_SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
    ),
    "aged": TopicPlan(configs={**_SMALL, "retention.bytes": "1500000"}),
}
# What is written down often is near the truth when the kill comes.
_LIVELY = {
    "log.flush.offset.checkpoint.interval.ms": "200",
    "log.flush.start.offset.checkpoint.interval.ms": "200",
    "replica.high.watermark.checkpoint.interval.ms": "200",
    "log.cleaner.backoff.ms": "200",
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "200",
    "log.segment.delete.delay.ms": "200",
}
# Both copies stay as the kill left them: nothing ages while they are looked at.
_STILL = {"log.cleaner.enable": "false", "log.initial.task.delay.ms": "86400000"}
_INDEX_BYTES = 10_485_760  # segment.index.bytes
_VALUE = bytes(range(256)) * 8


def _options(settings: dict[str, str]) -> tuple[str, ...]:
    return tuple(part for name, value in settings.items() for part in ("--config", f"{name}={value}"))


@contextmanager
def _load(bootstrap: str) -> Iterator[Callable[[], int]]:
    """A producer that goes on until its broker is gone; how many records were acknowledged so far."""
    done, ended = [0], threading.Event()

    def count(error: KafkaError | None, _message: object) -> None:
        done[0] += error is None

    def work() -> None:
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1, "batch.size": 8192}
        producer = Producer({**settings, "log_level": 0, "message.timeout.ms": 5000})
        number = 0
        while not ended.is_set():
            for topic, plan in _TOPICS.items():
                key = b"key-%d" % (number % 50)
                producer.produce(topic, _VALUE, key, partition=number % plan.partitions, on_delivery=count)
            number += 1
            producer.poll(0)
            if len(producer) > 400:
                producer.poll(0.05)
        producer.purge()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield lambda: done[0]
    finally:
        ended.set()
        thread.join()


def _offset(client: Client, topic: str, partition: int, timestamp: int) -> int:
    try:
        return client.list_offset(topic, partition, timestamp)
    except ClientError:  # a broker that has just started
        return -1


def _has_lived(data: Path, client: Client, acknowledged: Callable[[], int]) -> bool:
    """Segments have rolled, were synced, compacted and deleted."""
    try:
        points, cleaned = read_offsets(data / RECOVERY_POINTS), read_offsets(data / CLEANER_OFFSETS)
    except ValueError:  # just being replaced
        return False
    return (
        acknowledged() > 6000
        and len(list((data / "loaded-0").glob("*.log"))) > 2
        and points.get(("loaded", 0), 0) > 0
        and cleaned.get(("compacted", 0), 0) > 0
        and _offset(client, "aged", 0, -2) > 0
    )


def _live_and_die(broker: ApacheKafka | KBroker) -> None:
    """Load, rolls, compaction, retention, and in the middle of it the kill."""
    broker.start()
    with ConfluentClient(broker.bootstrap) as client:
        for name, plan in _TOPICS.items():
            client.create_topic(name, plan)
        with _load(broker.bootstrap) as acknowledged:
            until(lambda: _has_lived(broker.data_directory, client, acknowledged), WAIT_SECONDS)
            broker.kill()


def _read(bootstrap: str, topic: str, partition: int) -> list[tuple[Any, ...]]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "looks", "enable.auto.commit": False}
    consumer = Consumer(
        {**settings, "enable.partition.eof": True, "isolation.level": "read_uncommitted", "check.crcs": True}
    )
    found: list[tuple[Any, ...]] = []
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(WAIT_SECONDS)
            assert message is not None, f"{topic}-{partition} has no end"
            problem = message.error()
            if problem is not None:
                assert problem.code() == KafkaError._PARTITION_EOF, problem
                return found
            found.append((message.offset(), message.timestamp(), message.key(), message.value(), message.headers()))
    finally:
        consumer.close()


def _look(broker: Broker) -> dict[tuple[str, int], Any]:
    seen = {}
    with ConfluentClient(broker.bootstrap) as client:
        for topic, plan in _TOPICS.items():
            for partition in range(plan.partitions):
                until(lambda: _offset(client, topic, partition, -1) >= 0, WAIT_SECONDS)  # noqa: B023
                ends = [_offset(client, topic, partition, timestamp) for timestamp in (-2, -1)]
                seen[topic, partition] = (*ends, _read(broker.bootstrap, topic, partition))
    return seen


def _must_look_alike(ours: dict[tuple[str, int], Any], theirs: dict[tuple[str, int], Any]) -> None:
    for key, (start, end, records) in theirs.items():
        assert ours[key][:2] == (start, end), key
        assert [one[0] for one in ours[key][2]] == [one[0] for one in records], key
        assert ours[key][2] == records, key


def _dump(data: Path) -> None:
    for endings, options in (
        ((".log",), ["--deep-iteration"]),
        ((".index", ".timeindex", ".txnindex", ".snapshot"), []),
        ((".index",), ["--index-sanity-check"]),
        ((".index", ".timeindex"), ["--verify-index-only"]),
    ):
        files = [
            path
            for topic, plan in _TOPICS.items()
            for partition in range(plan.partitions)
            for path in sorted((data / f"{topic}-{partition}").iterdir())
            if path.name.endswith(endings) and path.stat().st_size > 0
        ]
        result = run_tool("kafka-dump-log", *options, "--files", ",".join(map(str, files)))
        assert result.exit_code == 0, result.err
        said = [line.replace("isvalid: true", "") for line in result.lines]
        assert not [line for line in said if _COMPLAINTS.search(line)]


def _settled(data: Path) -> dict[Path, tuple[int, int, int]]:
    """The files of segments that lie wholly below the recovery point: inode, size and when each was last written."""
    found = {}
    points = read_offsets(data / RECOVERY_POINTS)
    for topic, plan in _TOPICS.items():
        for partition in range(plan.partitions):
            directory = data / f"{topic}-{partition}"
            bases = sorted(int(path.stem) for path in directory.glob("*.log"))
            for base, following in itertools.pairwise(bases):
                if following <= points.get((topic, partition), 0):
                    for ending in ("log", "index", "timeindex"):
                        path = directory / f"{base:020}.{ending}"
                        facts = path.stat()
                        found[path] = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
    return found


def _must_pass(results: Results, name: str, work: Callable[[], None]) -> None:
    try:
        work()
    except Exception as error:
        results.add(Row("data directory", name, "differs", type(error).__name__))
        raise
    results.add(Row("data directory", name, "same"))


def _skip_without_kbroker(pytestconfig: pytest.Config) -> None:
    if "kbroker" not in pytestconfig.getoption("--brokers").split(","):
        pytest.skip("kbroker is not among the brokers of this run")


def _recover_both(tmp_path: Path, data: Path) -> None:
    for kind in ("apache", "kbroker"):
        shutil.copytree(data, tmp_path / kind / "data")
    with ApacheKafka.on_data_directory(tmp_path / "apache" / "data", settings=dict(_STILL)) as apache:
        theirs = _look(apache)
        assert not [line for line in apache.output().splitlines() if line.startswith("ERROR")]
    settled = _settled(tmp_path / "kbroker" / "data")
    assert settled, "some segments were synced"
    with KBroker.on_data_directory(tmp_path / "kbroker" / "data", options=_options(_STILL)) as ours:
        _must_look_alike(_look(ours), theirs)
    assert all(theirs[key][2] for key in theirs)
    assert {path: (s := path.stat()) and (s.st_ino, s.st_size, s.st_mtime_ns) for path in settled} == settled
    for kind in ("apache", "kbroker"):
        _dump(tmp_path / kind / "data")


def test_kbroker_recovers_what_a_killed_apache_left(
    pytestconfig: pytest.Config, java_tools: None, tmp_path: Path, results: Results
) -> None:
    _skip_without_kbroker(pytestconfig)

    def work() -> None:
        apache = ApacheKafka(tmp_path / "first", settings=dict(_LIVELY))
        _live_and_die(apache)
        active = sorted((apache.data_directory / "loaded-0").glob("*.index"))[-1]
        assert active.stat().st_size == _INDEX_BYTES, "preallocated"
        assert active.read_bytes().endswith(bytes(4096))
        _recover_both(tmp_path, apache.data_directory)

    _must_pass(results, "kbroker recovers what a killed Apache Kafka left", work)


def test_apache_recovers_what_a_killed_kbroker_left(
    pytestconfig: pytest.Config, java_tools: None, tmp_path: Path, results: Results
) -> None:
    _skip_without_kbroker(pytestconfig)

    def work() -> None:
        broker = KBroker(tmp_path / "first", options=_options(_LIVELY))
        _live_and_die(broker)
        _recover_both(tmp_path, broker.data_directory)

    _must_pass(results, "Apache Kafka recovers what a killed kbroker left", work)


# ---- transactions ----

_TXN_TOPIC = "transactions"


def _transact(bootstrap: str) -> None:
    """Producers whose transactions overlap: some commit, some abort, one is still open when the broker dies."""
    names = ("one", "two", "three", "four")
    producers = {}
    for name in names:
        producers[name] = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0})
        producers[name].init_transactions(WAIT_SECONDS)

    def put(name: str, count: int = 20) -> None:
        for i in range(count):
            producers[name].produce(_TXN_TOPIC, _VALUE * 4, b"%s-%d" % (name.encode(), i))
        assert producers[name].flush(WAIT_SECONDS) == 0

    for turn in range(12):
        producers["one"].begin_transaction()
        put("one")
        producers["two"].begin_transaction()
        put("two")
        if turn % 3 == 0:
            producers["three"].begin_transaction()
            put("three", 5)
        producers["one"].abort_transaction(WAIT_SECONDS)
        put("two")
        if turn % 2:
            producers["two"].abort_transaction(WAIT_SECONDS)
        else:
            producers["two"].commit_transaction(WAIT_SECONDS)
        if turn % 3 == 1:
            producers["three"].abort_transaction(WAIT_SECONDS)
    producers["four"].begin_transaction()
    put("four", 3)


def _txn_indexes(partition: Path) -> dict[str, bytes]:
    return {path.name: data for path in sorted(partition.glob("*.txnindex")) if (data := path.read_bytes())}


def _producers(snapshot: Path) -> set[bytes]:
    data = snapshot.read_bytes()
    return {data[at : at + 46] for at in range(10, len(data), 46)}


def test_transaction_indexes_made_anew_are_apaches_to_the_byte(
    pytestconfig: pytest.Config, java_tools: None, tmp_path: Path, results: Results
) -> None:
    _skip_without_kbroker(pytestconfig)

    def work() -> None:
        apache = ApacheKafka(tmp_path / "first").start()
        with ConfluentClient(apache.bootstrap) as client:
            client.create_topic(_TXN_TOPIC, TopicPlan(configs=_SMALL))
            _transact(apache.bootstrap)
        apache.kill()
        left = apache.data_directory / f"{_TXN_TOPIC}-0"
        written = _txn_indexes(left)
        assert len(written) > 1, "aborts in several segments"
        ours = tmp_path / "kbroker" / left.name
        shutil.copytree(left, ours)
        for path in ours.glob("*.txnindex"):
            path.unlink()
        log = PartitionLog.open(ours, BrokerClock(), {}, clean=False)
        assert (log.recovery_notes, _txn_indexes(ours)) == ([], written)
        entries = log.collect_aborted(0, 1 << 62)
        assert len(entries) == sum(len(data) // 34 for data in written.values()) == 22
        log.high_watermark = end = log.log_end_offset
        assert log.last_stable_offset == end - 3, "the open transaction"
        log.close()
        # Apache's own recovery, from the same bytes, comes to the same indexes and producers.
        (apache.data_directory / RECOVERY_POINTS).unlink(missing_ok=True)
        again = ApacheKafka.on_data_directory(apache.data_directory, settings=dict(_STILL)).start()
        with ConfluentClient(again.bootstrap) as client:
            until(lambda: _offset(client, _TXN_TOPIC, 0, -1) >= end, WAIT_SECONDS)
            assert client.list_offset(_TXN_TOPIC, 0, -2) == 0
        again.stop()
        assert _txn_indexes(left) == written
        for snapshot in sorted(ours.glob("*.snapshot")):
            assert _producers(snapshot) == _producers(left / snapshot.name), snapshot.name

    _must_pass(results, "transaction indexes made anew are Apache Kafka's to the byte", work)
