"""A damaged metadata log: only what a crash can tear is cut, everything else is refused and left as it is."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker._core.record.records import batches
from kbroker.cluster.topics import NewTopic
from kbroker.quorum.snapshot import find_snapshots
from kbroker.storage.identity import DataDirectoryError
from kbroker.tests.unit.quorum.node import running, start

METADATA = "__cluster_metadata-0"
LOG = f"{METADATA}/{0:020d}.log"


def make(directory: Path, *, crashed: bool = True, snapshot: bool = False) -> None:
    """Three topics, one after the other, and one partition of each on the disk."""
    settings = {"metadata.log.max.record.bytes.between.snapshots": 1} if snapshot else {}

    async def scenario() -> None:
        async with running(directory, **settings) as node:
            for name in ("one", "two", "three"):
                await node.controller.create_topics([NewTopic(name, 1, 1)])

    asyncio.run(scenario())
    if crashed:
        (directory / ".kafka_cleanshutdown").unlink()


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x40
    path.write_bytes(data)


def tree(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def refused(directory: Path, *said: str) -> None:
    """In one sentence, and nothing has changed: not even whether the last stop was clean."""
    before = tree(directory)
    with pytest.raises(DataDirectoryError) as refusal:
        asyncio.run(start(directory))
    sentence = str(refusal.value)
    assert "\n" not in sentence
    for part in said:
        assert part in sentence
    assert tree(directory) == before


def topics_of(directory: Path) -> tuple[list[str], list[str]]:
    async def scenario() -> tuple[list[str], list[str]]:
        async with running(directory) as node:
            return sorted(node.controller.image.topics), node.controller.repairs

    return asyncio.run(scenario())


@pytest.mark.parametrize("crashed", [True, False])
def test_a_flipped_byte_in_the_middle_is_refused(tmp_path: Path, crashed: bool) -> None:
    make(tmp_path, crashed=crashed)
    data = (tmp_path / LOG).read_bytes()
    for header in batches(data)[:-1]:
        flip(tmp_path / LOG, header.position + header.size - 1)
        refused(tmp_path, f"damaged at byte {header.position}, offset {header.base_offset}", "restore it from a backup")
        (tmp_path / LOG).write_bytes(data)
    assert topics_of(tmp_path) == (["one", "three", "two"], [])


def test_a_torn_tail_after_a_crash_is_cut_and_told(tmp_path: Path) -> None:
    make(tmp_path)
    data = (tmp_path / LOG).read_bytes()
    last = batches(data)[-1]
    for length in (last.position + 1, last.position + 30, len(data) - 1):
        (tmp_path / LOG).write_bytes(data[:length])
        topics, repairs = topics_of(tmp_path)
        assert topics == ["one", "three", "two"]
        assert [f"{length - last.position} bytes from offset {last.base_offset}" in one for one in repairs] == [True]
        (tmp_path / ".kafka_cleanshutdown").unlink()


def test_any_damage_after_a_clean_stop_is_refused(tmp_path: Path) -> None:
    make(tmp_path, crashed=False)
    data = (tmp_path / LOG).read_bytes()
    (tmp_path / LOG).write_bytes(data[:-1])
    refused(tmp_path, "although the last stop was clean")
    (tmp_path / LOG).write_bytes(data + bytes(10))
    refused(tmp_path, "although the last stop was clean")


def test_what_looks_torn_but_had_been_committed_is_refused(tmp_path: Path) -> None:
    make(tmp_path)
    data = (tmp_path / LOG).read_bytes()
    tail = next(header for header in batches(data) if b"three" in data[header.position : header.position + header.size])
    (tmp_path / LOG).write_bytes(data[: tail.position + 40])
    refused(tmp_path, "the partitions of a topic lie here that it does not mention")


def test_a_clean_stop_in_an_epoch_the_log_does_not_hold_is_refused(tmp_path: Path) -> None:
    make(tmp_path, crashed=False)
    data = (tmp_path / LOG).read_bytes()
    (tmp_path / LOG).write_bytes(data[: batches(data)[1].position])
    with pytest.raises(DataDirectoryError, match="the last clean stop was in broker epoch 6"):
        asyncio.run(start(tmp_path))


@pytest.mark.parametrize("crashed", [True, False])
def test_no_log_beside_somebodys_partitions_is_refused(tmp_path: Path, crashed: bool) -> None:
    make(tmp_path, crashed=crashed)
    (tmp_path / LOG).rename(tmp_path / "kept")
    refused(tmp_path, "holds no metadata log, but there is")
    (tmp_path / LOG).touch()
    refused(tmp_path, "holds no metadata log, but there is")
    shutil.rmtree(tmp_path / METADATA)
    refused(tmp_path, "holds no metadata log, but there is")
    (tmp_path / "bootstrap.checkpoint").unlink()
    refused(tmp_path, "holds no metadata log, but there is")


def test_a_missing_segment_is_refused(tmp_path: Path) -> None:
    make(tmp_path)
    data = (tmp_path / LOG).read_bytes()
    cut = batches(data)[4]
    (tmp_path / METADATA / f"{cut.base_offset:020d}.log").write_bytes(data[cut.position :])
    (tmp_path / LOG).write_bytes(data[: batches(data)[3].position])
    refused(tmp_path, "are missing before", f"{cut.base_offset:020d}.log")
    (tmp_path / LOG).unlink()
    with pytest.raises(DataDirectoryError, match="the newest snapshot ends at 0"):
        asyncio.run(start(tmp_path))


def test_what_only_a_compaction_leaves_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    """Opening the log would put it in a segment's place, or behind the last one."""
    make(tmp_path)
    swap = tmp_path / METADATA / f"{4094:020d}.log.swap"
    swap.touch()
    refused(tmp_path, swap.name, "remove it")
    swap.unlink()
    asyncio.run(_start_and_stop(tmp_path))


def test_a_batch_that_is_missing_within_a_segment_is_refused(tmp_path: Path) -> None:
    make(tmp_path)
    data = (tmp_path / LOG).read_bytes()
    gone = batches(data)[4]
    (tmp_path / LOG).write_bytes(data[: gone.position] + data[gone.position + gone.size :])
    refused(tmp_path, f"lacks offset {gone.base_offset}")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: flip(path, 70), "is damaged"),
        (lambda path: flip(path, path.stat().st_size - 1), "is damaged"),
        (lambda path: path.write_bytes(path.read_bytes()[:100]), "is damaged"),
        (lambda path: path.write_bytes(b""), "was cut short"),
        (lambda path: (path.unlink(), path.mkdir()), "cannot be read"),
    ],
)
def test_a_damaged_snapshot_is_refused(tmp_path: Path, damage: Callable[[Path], object], said: str) -> None:
    make(tmp_path, snapshot=True)
    newest = find_snapshots(tmp_path / METADATA)[-1]
    damage(tmp_path / METADATA / newest.file_name)
    with pytest.raises(DataDirectoryError, match=said):
        asyncio.run(start(tmp_path))


def test_a_snapshot_that_lacks_a_batch_is_refused(tmp_path: Path) -> None:
    make(tmp_path, snapshot=True)
    path = tmp_path / METADATA / find_snapshots(tmp_path / METADATA)[-1].file_name
    data = path.read_bytes()
    gone = batches(data)[1]
    path.write_bytes(data[: gone.position] + data[gone.position + gone.size :])
    with pytest.raises(DataDirectoryError, match="its record 1 is missing"):
        asyncio.run(start(tmp_path))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1]",
        "[" * 100_000,
        '{"leaderId":1,"leaderEpoch":2147483647,"votedId":-1,"data_version":0}',
        '{"leaderId":7,"leaderEpoch":1,"votedId":-1,"data_version":0}',
        '{"leaderId":1,"leaderEpoch":1,"votedId":true,"data_version":0}',
        '{"leaderId":1,"leaderEpoch":1,"votedId":-1,"data_version":3}',
        '{"leaderId":1,"leaderEpoch":"1","votedId":-1,"data_version":0}',
    ],
)
def test_a_damaged_quorum_state_is_refused(tmp_path: Path, text: str) -> None:
    make(tmp_path)
    (tmp_path / METADATA / "quorum-state").write_text(text)
    with pytest.raises(DataDirectoryError, match="quorum-state"):
        asyncio.run(start(tmp_path))


def test_a_missing_quorum_state_is_made_from_the_log(tmp_path: Path) -> None:
    for _ in range(3):
        asyncio.run(_start_and_stop(tmp_path))
    (tmp_path / METADATA / "quorum-state").unlink()
    _, repairs = topics_of(tmp_path)
    assert repairs == ["quorum-state is in epoch 0, the log in 3: the log is right"]
    assert '"leaderEpoch":4' in (tmp_path / METADATA / "quorum-state").read_text()


async def _start_and_stop(directory: Path) -> None:
    async with running(directory):
        pass


def test_a_directory_in_place_of_the_log_is_refused(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / LOG).unlink()
    (tmp_path / LOG).mkdir()
    with pytest.raises(DataDirectoryError, match="cannot be"):
        asyncio.run(start(tmp_path))
