"""Partitions go from one data directory to another while producers and consumers go on."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import kbroker
from kbroker._core.record.records import Record, build_batch, iterate
from kbroker.errors import (
    LogDirNotFoundError,
    ReplicaNotAvailableError,
    UnknownTopicOrPartitionError,
)
from kbroker.protocol.messages import (
    AlterReplicaLogDirsRequest,
    DeleteTopicsRequest,
    IncrementalAlterConfigsRequest,
)
from kbroker.tests.integration.moving import Dir, DirTopic, is_at, move, places, until
from kbroker.tests.integration.test_deleted_records import create, delete, fetched, produce, start_of
from kbroker.tests.integration.wire import Connection

BLOCK = b"x" * 1000
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
StartBroker = Callable[..., kbroker.Broker]


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in "abc"]


def start(start_broker: StartBroker, dirs: list[Path], **settings: object) -> kbroker.Broker:
    config = {"log.dirs": ",".join(map(str, dirs)), **{name.replace("_", "."): one for name, one in settings.items()}}
    return start_broker(config=config)


def home_of(client: Connection, topic: str, partition: int = 0) -> Path:
    (found,) = places(client, topic, partition)
    return found


def fill(client: Connection, topic: str, batches: int) -> None:
    for n in range(batches):
        produce(client, topic, build_batch([Record(timestamp=n, key=b"%d" % n, value=BLOCK)] * 10))


def offsets_of(client: Connection, topic: str, start: int, end: int) -> list[int]:
    found: list[int] = []
    at = start
    while at < end:
        records = [one.offset for one in iterate(fetched(client, topic, at).records) if one.offset >= at]
        assert records
        found += records
        at = records[-1] + 1
    return found


def throttle(client: Connection, rate: int) -> None:
    change = IncrementalAlterConfigsRequest.AlterableConfig(name=RATE, config_operation=0, value=str(rate))
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=4, resource_name="1", configs=[change])
    (answer,) = client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert answer.error_code == 0, answer.error_message


@pytest.mark.parametrize("flush_messages", [2**63 - 1, 1], ids=["page cache", "fsync"])
def test_moves_back_and_forth_lose_and_reorder_nothing(
    start_broker: StartBroker, dirs: list[Path], flush_messages: int
) -> None:
    broker = start(start_broker, dirs[:2])
    servers = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    with Connection(broker.port) as client:
        create(client, "t", segment_bytes="1048576", flush_messages=str(flush_messages))
        acknowledged: list[tuple[int, int]] = []  # (offset, number)
        refused: list[Any] = []
        enough, produced = threading.Event(), threading.Event()

        def produce_on() -> None:
            producer = Producer({**servers, "enable.idempotence": True, "linger.ms": 1})

            def told(number: int, error: Any, message: Any) -> None:
                if error is not None:
                    refused.append(error)
                else:
                    acknowledged.append((message.offset(), number))

            number = 0
            while not enough.is_set():
                producer.produce(
                    "t", b"%d" % number + BLOCK, on_delivery=lambda e, m, n=number: told(n, e, m), partition=0
                )
                number += 1
                producer.poll(0 if number % 20 else 0.002)  # not so fast that disks have nothing else to do
            assert producer.flush(30) == 0
            produced.set()

        consumed: list[tuple[int, int]] = []

        def consume_on() -> None:
            consumer = Consumer({**servers, "group.id": "none", "enable.auto.commit": False})
            consumer.assign([TopicPartition("t", 0, 0)])
            while not produced.is_set() or len(consumed) < len(acknowledged):
                for message in consumer.consume(500, 0.2):
                    assert message.error() is None, message.error()
                    value = message.value()
                    assert isinstance(value, bytes)
                    consumed.append((message.offset() or 0, int(value[: -len(BLOCK)])))
            consumer.close()

        threads = [threading.Thread(target=one, daemon=True) for one in (produce_on, consume_on)]
        for thread in threads:
            thread.start()
        try:
            for turn in range(6):
                here = home_of(client, "t")
                there = next(one for one in dirs[:2] if one != here)
                before = len(acknowledged)
                assert move(client, "t", there) == [0]
                until(lambda there=there: is_at(client, "t", there))  # type: ignore[misc]
                until(lambda before=before: len(acknowledged) > before + 200)  # type: ignore[misc]
                assert (there / "t-0").is_dir(), turn
                assert not (here / "t-0").exists()
        finally:
            enough.set()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert not refused
        assert acknowledged == [(n, n) for n in range(len(acknowledged))]
        assert consumed == acknowledged


def test_a_long_move_keeps_the_log_as_it_was(start_broker: StartBroker, dirs: list[Path]) -> None:
    """Start, end, epochs and producers; segments begin where they began, and hold the same bytes."""
    broker = start(start_broker, dirs[:2])
    with Connection(broker.port) as client:
        create(client, "t", segment_bytes="1048576")
        fill(client, "t", 250)
        assert delete(client, "t", 1203) == (0, 1203)
        here = home_of(client, "t")
        there = next(one for one in dirs[:2] if one != here)
        files = {path.name: path.read_bytes() for path in (here / "t-0").glob("*.log")}
        assert len(files) >= 3
        assert move(client, "t", there) == [0]
        until(lambda: is_at(client, "t", there))
        moved = {path.name: path.read_bytes() for path in (there / "t-0").glob("*.log")}
        names = sorted(moved)
        assert names[1:] == sorted(files)[-len(names) + 1 :]
        assert all(moved[name] == files[name] for name in names[1:])
        assert moved[names[0]] in files[sorted(files)[-len(names)]]
        assert start_of(client, "t") == 1203
        assert offsets_of(client, "t", 1203, 2500) == list(range(1203, 2500))
        assert fetched(client, "t", 1202).error_code == 1
    broker.stop()
    again = start(start_broker, dirs[:2])
    with Connection(again.port) as client:
        assert is_at(client, "t", there)
        assert start_of(client, "t") == 1203
        assert offsets_of(client, "t", 1203, 2500) == list(range(1203, 2500))


def test_errors_are_kafkas(start_broker: StartBroker, dirs: list[Path]) -> None:
    broker = start(start_broker, dirs[:2])
    with Connection(broker.port) as client:
        client.create_topic("t")
        client.create_topic("l" * 220)
        here = home_of(client, "t")
        there = next(one for one in dirs[:2] if one != here)
        not_found = LogDirNotFoundError.code
        for wrong in ("", "/nowhere", "a", f"{there}/", f"{there}/../{there.name}", "./" + there.name):
            assert move(client, "t", wrong) == [not_found], wrong
        unknown = UnknownTopicOrPartitionError.code
        assert move(client, "t", there, 1, -1) == [unknown, unknown]
        assert move(client, "other", there) == [unknown]
        assert move(client, "l" * 220, there) == [17]
        assert client.ask(AlterReplicaLogDirsRequest(dirs=[]), 1).results == []
        assert move(client, "t", here) == [0]
        assert places(client, "t") == {here: (False, 0)}
        two = [Dir(path=str(one), topics=[DirTopic(name="t", partitions=[0])]) for one in (here, there)]
        (told,) = client.ask(AlterReplicaLogDirsRequest(dirs=two), 1).results
        assert [(one.partition_index, one.error_code) for one in told.partitions] == [(0, 0)]
        until(lambda: is_at(client, "t", there))
        assert ReplicaNotAvailableError.code == 9


def test_a_partition_to_come_is_put_where_it_was_asked_for(start_broker: StartBroker, dirs: list[Path]) -> None:
    broker = start(start_broker, dirs)
    with Connection(broker.port) as client:
        for name, wanted in (("one", dirs[2]), ("two", dirs[2]), ("three", dirs[1])):
            assert move(client, name, wanted) == [UnknownTopicOrPartitionError.code]
            client.create_topic(name)
            assert home_of(client, name) == wanted


def test_new_partitions_go_where_fewest_are_and_stay(start_broker: StartBroker, dirs: list[Path]) -> None:
    broker = start(start_broker, dirs)
    with Connection(broker.port) as client:
        client.create_topic("t", 7)
        client.create_topic("u", 5)
        found = {(topic, n): home_of(client, topic, n) for topic, count in (("t", 7), ("u", 5)) for n in range(count)}
    counts = [list(found.values()).count(one) for one in dirs]
    assert counts == [4, 4, 4]
    broker.stop()
    again = start(start_broker, dirs)
    with Connection(again.port) as client:
        assert {key: home_of(client, *key) for key in found} == found


def test_a_move_is_throttled_called_off_and_redirected(start_broker: StartBroker, dirs: list[Path]) -> None:
    broker = start(start_broker, dirs)
    with Connection(broker.port) as client:
        create(client, "t")
        here = home_of(client, "t")
        first, second = (one for one in dirs if one != here)
        fill(client, "t", 200)
        throttle(client, 1000)
        assert move(client, "t", first) == [0]
        until(lambda: first in places(client, "t"))
        (copy,) = first.glob("t-0.*-future")
        assert places(client, "t")[first][0]
        assert places(client, "t")[first][1] > 0
        assert places(client, "t")[here] == (False, 0)

        assert move(client, "t", here) == [0]  # called off
        assert places(client, "t") == {here: (False, 0)}
        assert not copy.exists()
        assert move(client, "t", first) == [0]
        assert move(client, "t", first) == [0]  # once more changes nothing
        (copy,) = first.glob("t-0.*-future")
        assert move(client, "t", second) == [0]
        assert set(places(client, "t")) == {here, second}
        assert not copy.exists()

        throttle(client, 1 << 40)  # holds for the move that goes on
        until(lambda: is_at(client, "t", second))
        assert offsets_of(client, "t", 0, 2000) == list(range(2000))


def test_a_topic_is_deleted_in_the_middle_of_its_move(start_broker: StartBroker, dirs: list[Path]) -> None:
    broker = start(start_broker, dirs[:2], log_segment_delete_delay_ms=0)
    with Connection(broker.port) as client:
        create(client, "t")
        fill(client, "t", 100)
        here = home_of(client, "t")
        there = next(one for one in dirs[:2] if one != here)
        throttle(client, 1000)
        assert move(client, "t", there) == [0]
        until(lambda: there in places(client, "t"))
        wanted = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="t")], timeout_ms=10_000)
        assert client.ask(wanted, 6).responses[0].error_code == 0
        until(lambda: not [path for one in dirs[:2] for path in one.glob("t-0*")])
        create(client, "t")
        assert produce(client, "t", build_batch([Record(timestamp=0, value=b"new")])) == 0


def test_a_partition_that_moves_is_not_compacted(start_broker: StartBroker, dirs: list[Path]) -> None:
    """A tombstone that went from the partition and is not in its copy would bring its key back."""
    broker = start(start_broker, dirs[:2], log_cleaner_backoff_ms=10)
    compacted = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01", "segment_bytes": "1048576"}
    with Connection(broker.port) as client:
        create(client, "t", **compacted)
        here = home_of(client, "t")
        there = next(one for one in dirs[:2] if one != here)
        throttle(client, 1)
        fill(client, "t", 90)
        assert move(client, "t", there) == [0]
        for _ in range(3):  # the same keys in three whole segments and a beginning of one
            fill(client, "t", 90)
        create(client, "other", **compacted)
        for _ in range(4):
            fill(client, "other", 90)
        until(lambda: len(offsets_of(client, "other", 0, 3600)) < 2000)
        assert set(places(client, "t")) == {here, there}
        assert offsets_of(client, "t", 0, 3600) == list(range(3600))
        throttle(client, 1 << 40)
        until(lambda: is_at(client, "t", there))
        until(lambda: len(offsets_of(client, "t", 0, 3600)) < 2000)


def test_records_deleted_during_a_move_stay_deleted(start_broker: StartBroker, dirs: list[Path]) -> None:
    broker = start(start_broker, dirs[:2])
    with Connection(broker.port) as client:
        create(client, "t")
        fill(client, "t", 200)
        here = home_of(client, "t")
        there = next(one for one in dirs[:2] if one != here)
        throttle(client, 1000)
        assert move(client, "t", there) == [0]
        until(lambda: there in places(client, "t"))
        assert delete(client, "t", 1755) == (0, 1755)  # beyond what is copied
        throttle(client, 1 << 40)
        until(lambda: is_at(client, "t", there))
        assert start_of(client, "t") == 1755
        assert offsets_of(client, "t", 1755, 2000) == list(range(1755, 2000))
        fill(client, "t", 1)
    broker.stop()
    again = start(start_broker, dirs[:2])
    with Connection(again.port) as client:
        assert start_of(client, "t") == 1755
        assert offsets_of(client, "t", 1755, 2010) == list(range(1755, 2010))


def test_records_deleted_during_a_move_stay_deleted_after_a_kill(dirs: list[Path]) -> None:
    where = f"log.dirs={dirs[0]},{dirs[1]}"
    with server(where) as (process, client):
        throttle(client, 1000)
        create(client, "t")
        fill(client, "t", 200)
        here = home_of(client, "t")
        there = next(one for one in dirs[:2] if one != here)
        assert move(client, "t", there) == [0]
        until(lambda: there in places(client, "t"))
        assert delete(client, "t", 1755) == (0, 1755)
        throttle(client, 1 << 40)
        until(lambda: is_at(client, "t", there))
        process.send_signal(signal.SIGKILL)
    with server(where) as (_, client):
        assert is_at(client, "t", there)
        assert start_of(client, "t") == 1755
        assert offsets_of(client, "t", 1755, 2000) == list(range(1755, 2000))


def test_committed_offsets_move_while_a_group_commits(start_broker: StartBroker, dirs: list[Path]) -> None:
    broker = start(start_broker, dirs[:2], offsets_topic_num_partitions=1)
    offsets_topic = "__consumer_offsets"

    def member(broker: kbroker.Broker) -> Consumer:
        servers = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
        return Consumer({**servers, "group.id": "g", "enable.auto.commit": False})

    def commit(consumer: Consumer, offset: int) -> None:
        (told,) = consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
        assert told.error is None
        committed.append(offset)

    committed: list[int] = []
    enough, failed = threading.Event(), list[BaseException]()

    def commit_on(consumer: Consumer) -> None:
        try:
            while not enough.is_set():
                commit(consumer, len(committed))
        except BaseException as problem:
            failed.append(problem)

    with Connection(broker.port) as client:
        create(client, "t")
        fill(client, "t", 1)
        consumer = member(broker)
        commit(consumer, 0)
        thread = threading.Thread(target=commit_on, args=(consumer,), daemon=True)
        thread.start()
        try:
            for _ in range(4):
                here = home_of(client, offsets_topic)
                there = next(one for one in dirs[:2] if one != here)
                before = len(committed)
                assert move(client, offsets_topic, there) == [0]
                until(lambda there=there: is_at(client, offsets_topic, there) or bool(failed))  # type: ignore[misc]
                until(lambda before=before: len(committed) > before + 50 or bool(failed))  # type: ignore[misc]
        finally:
            enough.set()
            thread.join(60)
        assert not failed
        assert not thread.is_alive()
        consumer.close()
    broker.stop()
    again = start(start_broker, dirs[:2], offsets_topic_num_partitions=1)
    consumer = member(again)
    (found,) = consumer.committed([TopicPartition("t", 0)], timeout=30)
    assert found.offset == committed[-1]
    consumer.close()
    with Connection(again.port) as client:
        assert is_at(client, offsets_topic, there)


def test_a_move_of_a_partition_whose_records_are_all_deleted(start_broker: StartBroker, dirs: list[Path]) -> None:
    broker = start(start_broker, dirs[:2])
    with Connection(broker.port) as client:
        create(client, "t")
        fill(client, "t", 200)
        here = home_of(client, "t")
        there = next(one for one in dirs[:2] if one != here)
        throttle(client, 1000)
        assert move(client, "t", there) == [0]
        until(lambda: there in places(client, "t"))
        assert delete(client, "t", -1) == (0, 2000)
        throttle(client, 1 << 40)
        until(lambda: is_at(client, "t", there))
        assert start_of(client, "t") == 2000
        assert produce(client, "t", build_batch([Record(timestamp=0, value=b"next")])) == 2000
    broker.stop()
    again = start(start_broker, dirs[:2])
    with Connection(again.port) as client:
        assert offsets_of(client, "t", 2000, 2001) == [2000]


SERVER = """
import sys, kbroker
settings = dict(one.split("=", 1) for one in sys.argv[1:])
broker = kbroker.Broker(config=settings).start()
print(broker.port, flush=True)
sys.stdin.read()
broker.stop()
"""


@contextmanager
def server(*settings: str) -> Iterator[tuple[subprocess.Popen[str], Connection]]:
    command = [sys.executable, "-c", SERVER, *settings]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            with Connection(int(process.stdout.readline())) as client:
                yield process, client
        finally:
            process.stdin.close()


@pytest.mark.parametrize("kill", [True, False], ids=["kill -9", "a clean stop"])
def test_a_move_goes_on_after(dirs: list[Path], kill: bool) -> None:
    where = f"log.dirs={dirs[0]},{dirs[1]}"
    with server(where) as (process, client):
        throttle(client, 1_000_000)
        create(client, "t", segment_bytes="1048576")
        fill(client, "t", 400)
        here = home_of(client, "t")
        there = next(one for one in dirs[:2] if one != here)
        assert move(client, "t", there) == [0]
        until(lambda: places(client, "t").get(there, (False, 4000))[1] < 2500)
        assert places(client, "t")[there][0]
        throttle(client, 1000)
        if kill:
            process.send_signal(signal.SIGKILL)
    (copy,) = there.glob("t-0.*-future")
    copied = sum(path.stat().st_size for path in copy.glob("*.log"))
    assert copied > 0
    with server(where) as (_, client):
        assert places(client, "t")[here] == (False, 0)
        is_future, lag = places(client, "t")[there]
        assert is_future
        assert lag < 2500  # it did not begin again
        fill(client, "t", 3)
        throttle(client, 1 << 40)
        until(lambda: is_at(client, "t", there))
        assert offsets_of(client, "t", 0, 4030) == list(range(4030))
    with server(where) as (_, client):
        assert is_at(client, "t", there)
        assert offsets_of(client, "t", 0, 4030) == list(range(4030))
