"""A partition is on its way into another directory when a disk fails: nothing that was acknowledged is lost."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker.tests.disk.asking import STORAGE_ERROR, fetch, produce, values
from kbroker.tests.disk.conftest import Disk, remount
from kbroker.tests.disk.test_disk_trouble import OFFLINE, QUICKLY, Scene, must_be_served
from kbroker.tests.integration.moving import is_at, move, places, until
from kbroker.tests.integration.test_moves import throttle
from kbroker.tests.integration.wire import Connection

Start = Callable[..., Disk]
NOT_MOVED = "a partition could not be moved"
UNTHROTTLED = 1 << 40


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    return [tmp_path / "first", tmp_path / "second"]


def filled(scene: Scene, partition: int) -> list[bytes]:
    kept = [b"%d " % number + b"x" * 100_000 for number in range(30)]
    for number, value in enumerate(kept):
        assert produce(scene.client, "t", value, partition=partition) == (0, number)
    return kept


def comes_back(start: Start, scene: Scene, partition: int, where: Path, kept: list[bytes]) -> None:
    """After the disk was mended and the broker restarted the partition is there, whole, and nowhere else."""
    scene.broker.orders()
    exit_code, said = scene.broker.stop()
    assert exit_code == 0, said
    again = start(scene.broker.dirs)
    with Connection(again.port) as client:
        throttle(client, UNTHROTTLED)
        until(lambda: is_at(client, "t", where, partition))
        assert values(client, "t", partition)[: len(kept)] == kept
        must_be_served(client, "t", partition)
        assert values(client, "t", scene.neighbour) == [b"beside"]
    assert again.lines(OFFLINE) == []
    assert again.stop()[0] == 0
    assert not [path for one in scene.broker.dirs for path in one.glob("*-future")]


TROUBLES = {
    "the first write": "write -future/00000 errno 5",
    "a later write": "write -future/00000 errno 28 4",
    "the next segment": "open {copy} errno 30 12",
    "a sync": "fsync {copy} errno 5",
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_where_it_goes_to(disk: Start, two: list[Path], trouble: str) -> None:
    """That directory goes offline; the partition is served where it is, and the move is over."""
    scene = Scene(disk(two), **{"segment.bytes": "1048576"})
    partition = scene.elsewhere
    kept = filled(scene, partition)
    scene.broker.orders(TROUBLES[trouble].format(copy=f"{two[1]}/t-{partition}."))
    assert move(scene.client, "t", two[1], partition) == [0]
    assert scene.broker.await_line(NOT_MOVED)["partition"] == partition
    assert scene.broker.told()
    assert places(scene.client, "t", partition) == {two[0]: (False, 0)}
    assert values(scene.client, "t", partition) == kept
    scene.must_be_offline()
    assert move(scene.client, "t", two[1], partition) == [STORAGE_ERROR]
    comes_back(disk, scene, partition, two[1], kept)


def test_where_it_goes_to_before_anything_is_copied(disk: Start, two: list[Path]) -> None:
    scene = Scene(disk(two))
    partition = scene.elsewhere
    kept = filled(scene, partition)
    scene.broker.orders(f"mkdir {two[1]}/t-{partition}. errno {errno.EROFS}")
    assert move(scene.client, "t", two[1], partition) == [STORAGE_ERROR]
    scene.must_be_offline()
    comes_back(disk, scene, partition, two[0], kept)


def test_where_it_goes_to_after_the_cluster_was_told(disk: Start, two: list[Path]) -> None:
    """What the controller knows to be in a directory is lost with it; the partition has not come there."""
    scene = Scene(disk(two, **{"replica.high.watermark.checkpoint.interval.ms": 600_000}))
    partition = scene.elsewhere
    kept = filled(scene, partition)
    throttle(scene.client, 1000)
    assert move(scene.client, "t", two[1], partition) == [0]
    until(lambda: two[1] in places(scene.client, "t", partition))
    scene.broker.orders(f"write {two[1]}/replication-offset-checkpoint errno {errno.EIO}")  # the last thing before
    throttle(scene.client, UNTHROTTLED)
    scene.broker.await_line(NOT_MOVED)
    scene.must_be_offline()
    assert values(scene.client, "t", partition)[: len(kept)] == kept
    comes_back(disk, scene, partition, two[1], kept)


def test_where_it_goes_to_is_full(disk: Start, tmp_path: Path, small: Path) -> None:
    scene = Scene(disk([tmp_path / "first", small / "log"]))
    partition = scene.elsewhere
    kept = filled(scene, partition)
    assert move(scene.client, "t", small / "log", partition) == [0]
    scene.broker.await_line(NOT_MOVED)
    assert values(scene.client, "t", partition) == kept
    scene.must_be_offline()
    assert scene.broker.lines(OFFLINE)[0]["reason"].startswith(f"[Errno {errno.ENOSPC}]")
    remount(small, "size=64m")
    comes_back(disk, scene, partition, small / "log", kept)


def test_where_it_went_to_as_the_copy_gets_its_name(disk: Start, two: list[Path]) -> None:
    """The partition goes on with the copy already: it is offline with it."""
    scene = Scene(disk(two))
    partition = scene.elsewhere
    kept = filled(scene, partition)
    inside = f"rename {two[1]}/t-{partition}. wait 0"
    scene.broker.orders(inside, f"rename {two[1]}/t-{partition} errno {errno.EIO}")
    assert move(scene.client, "t", two[1], partition) == [0]
    assert scene.broker.await_line(OFFLINE)["directory"] == str(two[1])
    until(lambda: fetch(scene.client, "t", partition) == (STORAGE_ERROR, b""))
    assert partition not in {int(path.name[2:]) for path in two[0].glob("t-?")}
    comes_back(disk, scene, partition, two[1], kept)


@pytest.mark.parametrize("throttled", [True, False], ids=["in the middle", "by the copying"])
def test_where_it_comes_from(disk: Start, two: list[Path], throttled: bool) -> None:
    """The partition is offline with its directory; the next start goes on with the copy."""
    scene = Scene(disk(two, **QUICKLY))
    throttle(scene.client, 1000)
    scene.acknowledged = filled(scene, scene.failing)
    bad = f"{two[1]}/t-{scene.failing}/"
    assert move(scene.client, "t", two[0], scene.failing) == [0]
    until(lambda: two[0] in places(scene.client, "t", scene.failing))
    if throttled:
        scene.broker.orders(f"write {bad} errno {errno.EIO}")
        assert scene.produce_until_refused() == STORAGE_ERROR
    else:
        scene.broker.orders(f"read {bad} errno {errno.EIO}")
        throttle(scene.client, UNTHROTTLED)
    scene.broker.await_line(NOT_MOVED)
    scene.must_be_offline()
    assert len(list(two[0].glob(f"t-{scene.failing}.*-future"))) == 1
    assert move(scene.client, "t", two[0], scene.failing) == [STORAGE_ERROR]
    comes_back(disk, scene, scene.failing, two[0], scene.acknowledged)


def test_where_it_comes_from_as_it_loses_its_name(disk: Start, two: list[Path]) -> None:
    """The cluster was told of the new directory already. It was not left, so the old one is what it is lost with."""
    scene = Scene(disk(two))
    scene.acknowledged = filled(scene, scene.failing)
    scene.broker.orders(f"rename {two[1]}/t-{scene.failing}. errno {errno.EIO}")
    assert move(scene.client, "t", two[0], scene.failing) == [0]
    scene.broker.await_line(NOT_MOVED)
    scene.must_be_offline()
    comes_back(disk, scene, scene.failing, two[0], scene.acknowledged)
