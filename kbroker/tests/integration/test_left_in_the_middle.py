"""What a start makes of directories that a crash, a power cut or a person left between two moves."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import kbroker
from kbroker.broker import StartError
from kbroker.errors import NotLeaderOrFollowerError
from kbroker.storage.log_dir import CLEAN_SHUTDOWN
from kbroker.tests.integration.moving import is_at, move, places, until
from kbroker.tests.integration.test_deleted_records import create, fetched
from kbroker.tests.integration.test_moves import fill, offsets_of, start
from kbroker.tests.integration.wire import Connection

FUTURE = "t-0.0123456789abcdef0123456789abcdef-future"
StartBroker = Callable[..., kbroker.Broker]


@pytest.fixture
def dirs(tmp_path: Path, start_broker: StartBroker) -> list[Path]:
    """A stopped broker's: 500 records of t-0 in b, and the cluster knows it."""
    dirs = [tmp_path / "a", tmp_path / "b"]
    broker = start(start_broker, dirs)
    with Connection(broker.port) as client:
        create(client, "t", segment_bytes="1048576")
        fill(client, "t", 50)
        assert move(client, "t", dirs[1]) == [0]
        until(lambda: is_at(client, "t", dirs[1]))
    broker.stop()
    return dirs


def serves(start_broker: StartBroker, dirs: list[Path], where: Path, end: int = 500) -> None:
    for _ in range(2):
        broker = start(start_broker, dirs)
        with Connection(broker.port) as client:
            until(lambda: is_at(client, "t", where))
            assert offsets_of(client, "t", 0, end) == list(range(end))
        broker.stop()
    assert not [path for one in dirs for path in one.glob("*-future")]


@pytest.mark.parametrize("clean", [True, False])
def test_a_copy_that_had_taken_over_and_had_no_name_yet(
    start_broker: StartBroker, dirs: list[Path], clean: bool
) -> None:
    (dirs[1] / "t-0").rename(dirs[1] / FUTURE)
    if not clean:
        (dirs[1] / CLEAN_SHUTDOWN).unlink()
    serves(start_broker, dirs, dirs[1])


def test_a_partition_that_somebody_emptied_gives_way_to_its_copy(start_broker: StartBroker, dirs: list[Path]) -> None:
    (dirs[1] / "t-0").rename(dirs[0] / FUTURE)
    (dirs[1] / "t-0").mkdir()
    shutil.copy(dirs[0] / FUTURE / "partition.metadata", dirs[1] / "t-0")
    serves(start_broker, dirs, dirs[0])


def test_a_partition_that_lies_elsewhere_than_the_cluster_thinks(start_broker: StartBroker, dirs: list[Path]) -> None:
    (dirs[1] / "t-0").rename(dirs[0] / "t-0")
    serves(start_broker, dirs, dirs[0])


def test_a_copy_that_a_power_cut_left_longer_than_its_partition(start_broker: StartBroker, dirs: list[Path]) -> None:
    shutil.copytree(dirs[1] / "t-0", dirs[0] / FUTURE)
    log = dirs[1] / "t-0" / f"{0:020d}.log"
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size * 2 // 3)
    for one in dirs:
        (one / CLEAN_SHUTDOWN).unlink()
    serves(start_broker, dirs, dirs[0])


def test_a_part_of_a_copy_goes_on(start_broker: StartBroker, dirs: list[Path]) -> None:
    shutil.copytree(dirs[1] / "t-0", dirs[0] / FUTURE)
    for path in (dirs[0] / FUTURE).iterdir():
        if path.suffix in (".index", ".timeindex", ".snapshot"):
            path.unlink()
    log = dirs[0] / FUTURE / f"{0:020d}.log"
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size // 2)
    (dirs[0] / CLEAN_SHUTDOWN).unlink()
    serves(start_broker, dirs, dirs[0])


def test_a_copy_of_a_topic_that_is_gone_is_set_aside(start_broker: StartBroker, dirs: list[Path]) -> None:
    shutil.copytree(dirs[1] / "t-0", dirs[0] / "u-0.0123456789abcdef0123456789abcdef-future")
    serves(start_broker, dirs, dirs[1])
    assert len(list(dirs[0].glob("u-0*-stray"))) == 1


def test_a_damaged_copy_is_made_anew(start_broker: StartBroker, dirs: list[Path]) -> None:
    shutil.copytree(dirs[1] / "t-0", dirs[0] / FUTURE)
    (dirs[0] / FUTURE / "partition.metadata").write_text("nonsense")
    serves(start_broker, dirs, dirs[0])


def test_a_partition_in_two_directories_ends_the_start_with_a_sentence(
    start_broker: StartBroker, dirs: list[Path]
) -> None:
    shutil.copytree(dirs[1] / "t-0", dirs[0] / "t-0")
    with pytest.raises(StartError, match=r"t-0 lies in .*a and in .*b: move one of the two away"):
        start(start_broker, dirs)
    shutil.rmtree(dirs[0] / "t-0")
    serves(start_broker, dirs, dirs[1])


def test_a_batch_that_does_not_match_its_checksum_stops_a_move(start_broker: StartBroker, dirs: list[Path]) -> None:
    log = dirs[1] / "t-0" / f"{0:020d}.log"
    with log.open("r+b") as file:
        file.seek(log.stat().st_size // 2)
        file.write(b"\xff\x00\xff")
    broker = start(start_broker, dirs)
    with Connection(broker.port) as client:
        assert move(client, "t", dirs[0]) == [0]
        until(lambda: places(client, "t") == {dirs[1]: (False, 0)})
        assert not (dirs[0] / "t-0").exists()
        until(lambda: not list(dirs[0].glob("*-future")))


def test_a_part_of_a_copy_is_not_the_partition_while_a_directory_is_not_there(
    start_broker: StartBroker, dirs: list[Path]
) -> None:
    """The cluster was told already that it moves to b, and the partition itself lies in c."""
    three = [*dirs, dirs[0].with_name("c")]
    start(start_broker, three).stop()
    (dirs[1] / "t-0").rename(three[2] / "t-0")
    shutil.copytree(three[2] / "t-0", dirs[1] / FUTURE)
    log = dirs[1] / FUTURE / f"{0:020d}.log"
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size // 2)
    (dirs[1] / CLEAN_SHUTDOWN).unlink()
    aside = three[2].with_name("aside")
    three[2].rename(aside)
    three[2].touch()  # no directory can be made here
    broker = start(start_broker, three)
    with Connection(broker.port) as client:
        assert fetched(client, "t", 0).error_code == NotLeaderOrFollowerError.code
    broker.stop()
    assert (dirs[1] / FUTURE).is_dir()
    assert not (dirs[1] / "t-0").exists()
    three[2].unlink()
    aside.rename(three[2])
    serves(start_broker, three, dirs[1])
