"""What a broker that died in the middle of compaction left behind."""

from pathlib import Path

import pytest

from kbroker.tests.unit.log.batches import batch, offsets
from kbroker.tests.unit.log.conftest import OpenLog


def three_segments(open_log: OpenLog) -> None:
    log = open_log()
    for _ in range(3):
        log.append(batch(2))
        log.roll()
    log.append(batch(2))
    log.close()


def rename(directory: Path, base_offset: int, ending: str) -> None:
    for suffix in (".log", ".index", ".timeindex"):
        path = directory / f"{base_offset:020d}{suffix}"
        path.rename(directory / f"{path.name}{ending}")


def test_a_swap_that_only_lacked_its_name_is_finished(open_log: OpenLog, tmp_path: Path) -> None:
    three_segments(open_log)
    directory = tmp_path / "topic-0"
    rename(directory, 2, ".swap")
    log = open_log()
    assert offsets(log) == list(range(8))
    assert not list(directory.glob("*.swap"))


def test_a_swap_replaces_every_segment_in_its_range(open_log: OpenLog, tmp_path: Path) -> None:
    three_segments(open_log)
    directory = tmp_path / "topic-0"
    merged = batch(2, base_offset=0) + batch(1, base_offset=3)
    (directory / f"{0:020d}.log.swap").write_bytes(merged)
    log = open_log()
    assert [facts.base_offset for facts in log.segments()] == [0, 4, 6]
    assert offsets(log) == [0, 1, 3, 4, 5, 6, 7]
    assert log.read(2) == batch(1, base_offset=3)
    assert not list(directory.glob("*.swap"))


def test_a_split_that_was_not_ready_is_undone(open_log: OpenLog, tmp_path: Path) -> None:
    three_segments(open_log)
    directory = tmp_path / "topic-0"
    (directory / f"{3:020d}.log.swap").write_bytes(batch(1, base_offset=3))
    (directory / f"{2:020d}.log.cleaned").write_bytes(batch(1, base_offset=2))
    log = open_log()
    assert offsets(log) == list(range(8))
    assert not [path.name for path in directory.iterdir() if path.suffix in {".swap", ".cleaned"}]


@pytest.mark.parametrize("content", [b"", b"noise" * 50, batch(2)[:-1], batch(2, base_offset=2) + b"x" * 70])
def test_a_damaged_swap_does_not_replace_what_is_whole(open_log: OpenLog, tmp_path: Path, content: bytes) -> None:
    three_segments(open_log)
    directory = tmp_path / "topic-0"
    (directory / f"{2:020d}.log.swap").write_bytes(content)
    log = open_log()
    assert offsets(log) == list(range(8))
    assert not list(directory.glob("*.swap"))
