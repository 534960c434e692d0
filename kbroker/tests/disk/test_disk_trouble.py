"""A log directory that fails goes offline as a whole; the others go on, and it comes back after it was mended."""

from __future__ import annotations

import errno
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from kbroker._core.core import IS_PORTABLE_BUILD
from kbroker.protocol.messages import ListOffsetsRequest
from kbroker.tests.disk.asking import (
    LEADER_NOT_AVAILABLE,
    NOT_LEADER,
    STORAGE_ERROR,
    create,
    described,
    fetch,
    partitions_in,
    produce,
    values,
)
from kbroker.tests.disk.conftest import SOON_S, DidNotStartError, Disk, remount
from kbroker.tests.integration.wire import Connection

Start = Callable[..., Disk]
OFFLINE = "a log directory is offline"
QUICKLY = {
    "replica.high.watermark.checkpoint.interval.ms": 50,
    "log.retention.check.interval.ms": 50,
    "log.initial.task.delay.ms": 50,
    "log.cleaner.backoff.ms": 50,
    "log.retention.ms": -1,  # the records are of 2023
}


class Scene:
    """A topic in two directories, two partitions in each, and what was acknowledged in the second."""

    def __init__(self, broker: Disk, **config: str) -> None:
        self.broker = broker
        self.client = Connection(broker.port)
        create(self.client, "t", 4, **config)
        self.failing, self.neighbour = partitions_in(broker.dirs[1], "t")
        self.elsewhere = partitions_in(broker.dirs[0], "t")[0]
        self.acknowledged: list[bytes] = []
        self.refused = b""
        assert produce(self.client, "t", b"beside", partition=self.neighbour) == (0, 0)

    def produce_until_refused(self, size: int = 1000, most: int = 100) -> int:
        for number in range(most):
            value = b"%d " % number + b"x" * size
            error, offset = produce(self.client, "t", value, partition=self.failing)
            if error:
                assert offset == -1
                self.refused = value
                return error
            assert offset == len(self.acknowledged)
            self.acknowledged.append(value)
        raise AssertionError("nothing failed")

    def must_be_offline(self) -> None:
        """The whole directory, and nothing but it; told in one line and to the controller."""
        line = self.broker.await_line(OFFLINE)
        assert line["directory"] == str(self.broker.dirs[1])
        assert line["level"] == "error"
        for partition in (self.failing, self.neighbour):
            assert produce(self.client, "t", b"later", partition=partition) == (STORAGE_ERROR, -1)
            assert produce(self.client, "t", b"later", acks=1, partition=partition) == (STORAGE_ERROR, -1)
            assert fetch(self.client, "t", partition) == (STORAGE_ERROR, b"")
            await_leader(self.client, partition, -1)
            found = described(self.client, "t", partition)
            assert (found.error_code, found.isr_nodes, found.offline_replicas) == (LEADER_NOT_AVAILABLE, [1], [1])
        must_be_served(self.client, "t", self.elsewhere)
        create(self.client, "new", 4)
        assert partitions_in(self.broker.dirs[1], "new") == []
        for partition in range(4):
            must_be_served(self.client, "new", partition)
        assert len(self.broker.lines(OFFLINE)) == 1
        assert self.broker.process.poll() is None

    def must_come_back(self, start: Start, *, refused_may_stay: bool = False) -> None:
        """After a stop and a start: what was acknowledged, whole and in order.

        What was written and could not be synced, or was written as something else failed, may be there: its producer
        was told that nobody knows.
        """
        exit_code, said = self.broker.stop()
        assert exit_code == 0, said
        assert not (self.broker.dirs[1] / ".kafka_cleanshutdown").exists()
        again = start(self.broker.dirs)
        with Connection(again.port) as client:
            found = values(client, "t", self.failing)
            assert found[: len(self.acknowledged)] == self.acknowledged
            assert found[len(self.acknowledged) :] in ([], [self.refused] if refused_may_stay else [])
            assert values(client, "t", self.neighbour) == [b"beside"]
            for partition in range(4):
                must_be_served(client, "t", partition)
        assert again.lines(OFFLINE) == []
        assert again.stop()[0] == 0


def must_be_served(client: Connection, topic: str, partition: int) -> None:
    error, _ = produce(client, topic, b"goes on", partition=partition)
    assert error == 0
    assert values(client, topic, partition)[-1] == b"goes on"
    assert described(client, topic, partition).leader_id == 1


def await_leader(client: Connection, partition: int, leader: int) -> None:
    deadline = time.monotonic() + SOON_S
    while described(client, "t", partition).leader_id != leader:
        assert time.monotonic() < deadline


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    return [tmp_path / "first", tmp_path / "second"]


def test_a_full_directory(disk: Start, tmp_path: Path, small: Path) -> None:
    scene = Scene(disk([tmp_path / "first", small / "log"]))
    assert scene.produce_until_refused(size=100_000) == STORAGE_ERROR
    scene.must_be_offline()
    assert scene.broker.lines(OFFLINE)[0]["reason"].startswith(f"[Errno {errno.ENOSPC}]")
    remount(small, "size=64m")
    scene.must_come_back(disk)


def test_a_full_directory_with_many_producers_in_flight(disk: Start, tmp_path: Path, small: Path) -> None:
    """Some batches are cut off in the middle of one write of several; no part of them is ever seen."""
    broker = disk([tmp_path / "first", small / "log"])
    scene = Scene(broker)

    def keep_producing(number: int) -> list[tuple[int, bytes]]:
        kept = []
        with Connection(broker.port) as client:
            for turn in range(100):
                value = b"%d %d " % (number, turn) + b"x" * 20_000
                error, offset = produce(client, "t", value, partition=scene.failing)
                if error:
                    assert (error, offset) == (STORAGE_ERROR, -1)
                    return kept
                kept.append((offset, value))
        raise AssertionError("the directory does not fill")

    with ThreadPoolExecutor(8) as pool:
        kept = sorted(one for ours in pool.map(keep_producing, range(8)) for one in ours)
    scene.acknowledged = [value for _, value in kept]
    assert [offset for offset, _ in kept] == list(range(len(kept)))
    scene.must_be_offline()
    remount(small, "size=64m")
    scene.must_come_back(disk)


class Trouble(NamedTuple):
    name: str
    orders: list[str]  # {second} stands for the directory, {bad} for the partition in it
    config: dict[str, str] = {}  # noqa: RUF012 - never changed


TROUBLES = [
    Trouble("the first write", ["write {bad} errno 5"]),
    Trouble("the fourth write", ["write {bad} errno 5 3"]),
    Trouble("a write in the middle", ["write {bad} short 30 2 1", "write {bad} errno 28 2"]),
    Trouble("a sync", ["fsync {bad} errno 5"], {"flush.messages": "1"}),
    Trouble("a sync of a directory", ["fsync {second}/t- errno 5"], {"flush.messages": "1"}),
    Trouble("the making of the next segment", ["open {bad} errno 5"], {"segment.bytes": "1048576"}),
    Trouble("read-only", ["write {second} errno 30", "open {second} errno 30"]),
    Trouble("a checkpoint", ["write {second}/replication-offset-checkpoint errno 28"]),
    Trouble(
        "a checkpoint's name", ["rename {second}/recovery-point-offset-checkpoint errno 5"], {"flush.messages": "1"}
    ),
    Trouble(
        "retention",
        ["rename .deleted errno 5"],
        {"segment.bytes": "1048576", "retention.bytes": "1", "retention.ms": "-1"},
    ),
    Trouble(
        "the removal of a segment",
        ["unlink .deleted errno 5"],
        {"segment.bytes": "1048576", "retention.bytes": "1", "retention.ms": "-1", "file.delete.delay.ms": "0"},
    ),
    Trouble(
        "compaction",
        ["write .cleaned errno 5"],
        {"segment.bytes": "1048576", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
    ),
    Trouble(
        "the swap of a compaction",
        ["rename .swap errno 5"],
        {"segment.bytes": "1048576", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
    ),
]
LETS_GO = {"retention", "the removal of a segment", "compaction", "the swap of a compaction"}


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.name.replace(" ", "-"))
def test_trouble_with_one_file_takes_its_directory_offline(disk: Start, two: list[Path], trouble: Trouble) -> None:
    scene = Scene(disk(two, **QUICKLY), **trouble.config)
    bad = f"{two[1]}/t-{scene.failing}/"
    scene.broker.orders(*(line.format(second=two[1], bad=bad) for line in trouble.orders))
    size = 100_000 if "segment.bytes" in trouble.config else 1000
    assert scene.produce_until_refused(size, most=100_000) == STORAGE_ERROR
    told = scene.broker.told()
    assert told
    scene.broker.orders()
    scene.must_be_offline()
    if trouble.name not in LETS_GO:
        scene.must_come_back(disk, refused_may_stay="write" not in trouble.name)
    else:  # which of the acknowledged are still there is retention's and compaction's business
        scene.broker.stop()
        again = disk(two)
        with Connection(again.port) as client:
            must_be_served(client, "t", scene.neighbour)
            assert produce(client, "t", b"goes on", partition=scene.failing)[1] >= len(scene.acknowledged)


def test_nothing_more_is_written_into_a_failed_directory(disk: Start, two: list[Path]) -> None:
    scene = Scene(disk(two, **QUICKLY))
    scene.broker.orders(f"write {two[1]}/t-{scene.failing}/ errno {errno.EIO}")
    scene.produce_until_refused()
    scene.must_be_offline()
    # From here on whoever touches a file there is told of.
    calls = ("write", "fsync", "open", "rename", "unlink", "mkdir")
    before = len(scene.broker.told())
    scene.broker.orders(*(f"{call} {two[1]} wait 0" for call in calls))
    must_be_served(scene.client, "new", 0)
    create(scene.client, "newer", 8)
    assert scene.broker.stop()[0] == 0
    assert scene.broker.told()[before:] == []


@pytest.mark.parametrize("size", [1000, 200_000])  # copied between other bytes, or sent from the file
def test_a_reply_whose_bytes_cannot_be_read(disk: Start, two: list[Path], size: int) -> None:
    scene = Scene(disk(two))
    scene.acknowledged = [b"x" * size]
    assert produce(scene.client, "t", scene.acknowledged[0], partition=scene.failing) == (0, 0)
    bad = f"{two[1]}/t-{scene.failing}/"
    scene.broker.orders(f"read {bad} errno {errno.EIO}", f"sendfile {bad} errno {errno.EIO}")
    with Connection(scene.broker.port) as reader, pytest.raises((AssertionError, ConnectionError)):
        fetch(reader, "t", scene.failing)  # its beginning may be on the way already
    scene.must_be_offline()
    if not IS_PORTABLE_BUILD:  # only Linux's and macOS's own calls tell a descriptor's path
        assert f"{bad}{0:020d}.log" in scene.broker.lines(OFFLINE)[0]["reason"]
    scene.broker.orders()
    scene.must_come_back(disk)


def ask_by_fetch(client: Connection, partition: int) -> int:
    return fetch(client, "t", partition, 1)[0]


def ask_by_time(client: Connection, partition: int) -> int:
    part = ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=1_600_000_000_000)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[part])
    error: int = client.ask(ListOffsetsRequest(topics=[topic]), 7).topics[0].partitions[0].error_code
    return error


@pytest.mark.parametrize("ask", [ask_by_fetch, ask_by_time])
def test_a_search_that_cannot_read(disk: Start, two: list[Path], ask: Callable[[Connection, int], int]) -> None:
    before = Scene(disk(two))
    for number in range(3):
        assert produce(before.client, "t", b"%d" % number, partition=before.failing) == (0, number)
    before.client.__exit__(None, None, None)
    assert before.broker.stop()[0] == 0
    broker = disk(two)  # which remembers nothing of where a batch lies
    broker.orders(f"read {two[1]}/t-{before.failing}/ errno {errno.EIO}")
    with Connection(broker.port) as client:
        assert ask(client, before.failing) == STORAGE_ERROR
        assert broker.await_line(OFFLINE)["directory"] == str(two[1])
        assert produce(client, "t", b"later", partition=before.neighbour) == (STORAGE_ERROR, -1)
        must_be_served(client, "t", before.elsewhere)


def test_a_parked_fetch_is_told(disk: Start, two: list[Path]) -> None:
    scene = Scene(disk(two))
    with Connection(scene.broker.port) as reader, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(fetch, reader, "t", scene.neighbour, 1, 20_000)
        scene.broker.orders(f"write {two[1]}/t-{scene.failing}/ errno {errno.EIO}")
        scene.produce_until_refused()
        assert waiting.result(15) == (STORAGE_ERROR, b"")


def test_a_directory_renamed_away(disk: Start, two: list[Path]) -> None:
    scene = Scene(disk(two, **QUICKLY))
    aside = two[1].with_name("aside")
    two[1].rename(aside)
    assert scene.produce_until_refused(most=100_000) == STORAGE_ERROR  # until the next checkpoint notices
    two[1].mkdir()  # what stands in its place is not it
    scene.must_be_offline()
    assert list(two[1].iterdir()) == []
    two[1].rmdir()
    aside.rename(two[1])
    scene.must_come_back(disk, refused_may_stay=True)


def test_a_directory_that_is_read_only_at_the_start(disk: Start, tmp_path: Path, small: Path) -> None:
    scene = Scene(disk([tmp_path / "first", small / "log"]))
    for number in range(3):
        scene.acknowledged.append(b"%d" % number)
        assert produce(scene.client, "t", scene.acknowledged[-1], partition=scene.failing) == (0, number)
    scene.client.__exit__(None, None, None)
    assert scene.broker.stop()[0] == 0
    remount(small, "ro")
    broker = disk(scene.broker.dirs)
    assert broker.await_line(OFFLINE)["directory"] == str(small / "log")
    with Connection(broker.port) as client:
        for partition in (scene.failing, scene.neighbour):
            assert produce(client, "t", b"x", partition=partition) == (NOT_LEADER, -1)  # as Apache answers
            assert fetch(client, "t", partition)[0] == NOT_LEADER
            found = described(client, "t", partition)
            assert (found.error_code, found.leader_id) == (LEADER_NOT_AVAILABLE, -1)
            assert found.offline_replicas == [1]
        must_be_served(client, "t", scene.elsewhere)
        create(client, "new", 4)
        for partition in range(4):
            must_be_served(client, "new", partition)
    assert broker.stop()[0] == 0
    remount(small, "rw")
    again = disk(scene.broker.dirs)
    with Connection(again.port) as client:
        assert values(client, "t", scene.failing) == scene.acknowledged
        assert values(client, "t", scene.neighbour) == [b"beside"]


@pytest.mark.parametrize("dirs", [1, 2])
def test_without_its_metadata_the_broker_ends(disk: Start, two: list[Path], dirs: int) -> None:
    broker = disk(two[:dirs])
    with Connection(broker.port) as client:
        create(client, "t", 2)
        failing = partitions_in(two[0], "t")[0]
        assert produce(client, "t", b"kept", partition=failing) == (0, 0)
        broker.orders(f"write {two[0]}/t-{failing}/ errno {errno.ENOSPC}")
        assert produce(client, "t", b"lost", partition=failing) == (STORAGE_ERROR, -1)
    assert broker.ended() == 1
    broker.orders()
    last = broker.said().splitlines()[-1]
    assert last.startswith(f"kbroker: The log directory {two[0]}, which holds the cluster's metadata, failed: No space")
    again = disk(two[:dirs])
    with Connection(again.port) as client:
        assert values(client, "t", failing) == [b"kept"]


def test_a_metadata_log_that_cannot_be_written_ends_the_broker(disk: Start, two: list[Path]) -> None:
    broker = disk(two)
    with Connection(broker.port) as client:
        create(client, "t")
        broker.orders(f"fsync __cluster_metadata-0 errno {errno.EIO}")
        with pytest.raises(AssertionError):
            create(client, "lost")
    assert broker.ended() == 1
    broker.orders()
    assert "which holds the cluster's metadata, failed: Input/output error" in broker.said().splitlines()[-1]
    disk(two)


def test_the_last_directory_ends_the_broker(disk: Start, two: list[Path]) -> None:
    broker = disk([*two], **{"metadata.log.dir": two[1]})
    with Connection(broker.port) as client:
        create(client, "t", 2)
        (first,), (second,) = partitions_in(two[0], "t"), partitions_in(two[1], "t")
        broker.orders(f"write {two[0]}/t- errno {errno.EIO}")
        assert produce(client, "t", b"x", partition=first) == (STORAGE_ERROR, -1)
        assert broker.await_line(OFFLINE)["directory"] == str(two[0])
        assert produce(client, "t", b"x", partition=second) == (0, 0)
        broker.orders(f"write {two[1]}/t- errno {errno.EIO}")
        assert produce(client, "t", b"x", partition=second) == (STORAGE_ERROR, -1)
    assert broker.ended() == 1
    assert broker.said().splitlines()[-1].startswith(f"kbroker: The log directory {two[1]}")


def test_a_start_without_the_metadata_directory_is_refused(disk: Start, two: list[Path]) -> None:
    two[0].touch()
    with pytest.raises(DidNotStartError, match=f"kbroker: The data directory {two[0]} cannot be made") as refused:
        disk(two)
    assert refused.value.exit_code == 1
    assert not (two[1] / "meta.properties").exists()  # it was not formatted for a cluster that nobody knows
    two[0].unlink()
    disk(two)


def test_a_start_without_any_directory_is_refused(disk: Start, two: list[Path]) -> None:
    for one in two:
        one.touch()
    with pytest.raises(DidNotStartError, match="cannot be made") as refused:
        disk(two)
    assert refused.value.exit_code == 1


def test_a_partition_is_not_made_anew_where_its_directory_is_missing(disk: Start, two: list[Path]) -> None:
    scene = Scene(disk(two))
    assert scene.broker.stop()[0] == 0
    aside = two[1].with_name("aside")
    two[1].rename(aside)  # as when a disk is not mounted: the start finds, or makes, an empty directory
    broker = disk(two)
    assert broker.await_line("partitions lie in a log directory that is not there: they are offline until it is back")
    with Connection(broker.port) as client:
        assert produce(client, "t", b"x", partition=scene.neighbour) == (NOT_LEADER, -1)
        assert described(client, "t", scene.neighbour).error_code == LEADER_NOT_AVAILABLE
        must_be_served(client, "t", scene.elsewhere)
    assert broker.stop()[0] == 0
    assert partitions_in(two[1], "t") == []
    two[1].rename(two[1].with_name("empty"))
    aside.rename(two[1])
    again = disk(two)
    with Connection(again.port) as client:
        assert values(client, "t", scene.neighbour) == [b"beside"]


@contextmanager
def no_descriptors(broker: Disk) -> Iterator[None]:
    """Of those that the broker has no more are to be had."""
    pid = broker.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def test_descriptors_that_run_out_are_no_disk_trouble(disk: Start, two: list[Path]) -> None:
    broker = disk(two, **{"replica.high.watermark.checkpoint.interval.ms": 50})
    broker.await_line("started")
    with Connection(broker.port) as client, ThreadPoolExecutor(1) as pool:
        create(client, "t", 4, **{"flush.messages": "1"})
        for partition in range(4):
            assert produce(client, "t", b"before", partition=partition) == (0, 0)
        with no_descriptors(broker):
            waiting = pool.submit(create, client, "u")
            broker.await_line("a checkpoint failed")
            assert not waiting.done()
        waiting.result(SOON_S)  # the metadata log was flushed once it could be
        assert broker.lines(OFFLINE) == []
        must_be_served(client, "t", 0)
        must_be_served(client, "u", 0)
    assert broker.stop()[0] == 0


def test_a_metadata_log_that_needs_its_next_segment_waits_for_descriptors(disk: Start, two: list[Path]) -> None:
    quick = {"metadata.log.segment.ms": 1, "replica.high.watermark.checkpoint.interval.ms": 50}
    broker = disk(two, **quick)
    broker.await_line("started")
    segments = two[0] / "__cluster_metadata-0"
    with Connection(broker.port) as client, ThreadPoolExecutor(1) as pool:
        create(client, "t")
        made = len(list(segments.glob("*.log")))
        with no_descriptors(broker):
            waiting = pool.submit(create, client, "u")
            broker.await_line("a checkpoint failed")
            assert not waiting.done()
            assert broker.process.poll() is None
        waiting.result(SOON_S)
        assert len(list(segments.glob("*.log"))) > made > 1
        must_be_served(client, "u", 0)
    exit_code, said = broker.stop()
    assert exit_code == 0, said
    again = disk(two)
    with Connection(again.port) as client:
        assert values(client, "u") == [b"goes on"]
