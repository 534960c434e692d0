"""Look-ups: offsets by time, ends of leader epochs, and the files they rest on."""

import os
import struct
from pathlib import Path

import pytest

from kbroker._core.record.records import Record, build_batch
from kbroker.tests.unit.log.batches import batch, offsets
from kbroker.tests.unit.log.conftest import NOW_MS, OpenLog

LEADER = 2


def at(*timestamps: int, codec: int = 0) -> bytes:
    return build_batch([Record(timestamp=NOW_MS + time, value=b"v" * 30) for time in timestamps], codec=codec)


def test_the_first_record_at_or_after_a_time_is_found(open_log: OpenLog) -> None:
    log = open_log({"segment.bytes": 700, "index.interval.bytes": 100})
    for i in range(50):
        log.append(at(i * 10, i * 10 + 5), leader_epoch=2)
    for target, offset in [(0, 0), (1, 1), (5, 1), (6, 2), (243, 49), (495, 99)]:
        found = log.offset_for_timestamp(NOW_MS + target)
        assert found is not None
        assert (found.offset, found.leader_epoch) == (offset, 2)
    assert log.offset_for_timestamp(NOW_MS + 496) is None
    assert log.offset_for_timestamp(0) == (0, NOW_MS, 2)


def test_times_out_of_order_are_found_by_the_first_that_reaches_them(open_log: OpenLog) -> None:
    log = open_log()
    log.append(at(50, 10))
    log.append(at(5, 70, 60))
    log.append(at(70, 1))
    assert log.offset_for_timestamp(NOW_MS + 55) == (3, NOW_MS + 70, 0)
    assert log.offset_of_max_timestamp() == (3, NOW_MS + 70, 0)


def test_the_largest_timestamp_is_that_of_its_first_record(open_log: OpenLog) -> None:
    log = open_log({"segment.bytes": 300})
    assert log.offset_of_max_timestamp() is None
    for times in [(1, 2), (9, 3), (4, 9), (5, 6)]:
        log.append(at(*times))
    assert len(log.segments()) > 1
    assert log.offset_of_max_timestamp() == (2, NOW_MS + 9, 0)
    log.close()
    again = open_log({"segment.bytes": 300})
    assert again.offset_of_max_timestamp() == (2, NOW_MS + 9, 0)
    assert again.offset_for_timestamp(NOW_MS + 4) == (2, NOW_MS + 9, 0)


def test_records_below_the_start_are_not_found(open_log: OpenLog) -> None:
    log = open_log()
    log.append(at(1, 2, 3))
    log.append(at(4, 5))
    log.high_watermark = 5
    log.raise_start(2)
    assert log.offset_for_timestamp(NOW_MS) == (2, NOW_MS + 3, 0)


def test_the_largest_timestamp_may_be_a_deleted_records_until_its_segment_goes(open_log: OpenLog) -> None:
    log = open_log()
    log.append(at(1, 9))
    log.append(at(4, 5))
    log.high_watermark = 4
    log.raise_start(2)
    assert log.offset_of_max_timestamp() == (1, NOW_MS + 9, 0)
    log.roll()
    log.append(at(3))
    log.high_watermark = 5
    log.raise_start(4)
    log.retire()
    assert log.offset_of_max_timestamp() == (4, NOW_MS + 3, 0)


def test_a_closed_segment_ends_its_time_index_with_its_largest_timestamp(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    log.append(at(3, 1))
    log.append(at(2))
    log.close()
    assert (tmp_path / "topic-0" / f"{0:020d}.timeindex").read_bytes() == struct.pack(">qi", NOW_MS + 3, 1)


def test_index_entries_stand_an_interval_apart(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log({"index.interval.bytes": 150})
    size = len(at(0))
    for i in range(6):
        log.append(at(i))
    log.close()
    assert 75 < size < 150
    data = (tmp_path / "topic-0" / f"{0:020d}.index").read_bytes()
    assert data == struct.pack(">iiii", 2, 2 * size, 4, 4 * size)


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [(-1, (-1, -1)), (0, (0, 0)), (1, (1, 2)), (2, (2, 4)), (3, (2, 4)), (4, (4, 5)), (5, (-1, -1))],
)
def test_an_epoch_ends_where_the_next_begins(open_log: OpenLog, epoch: int, answer: tuple[int, int]) -> None:
    log = open_log()
    log.append(batch(2), leader_epoch=1)
    log.append(batch(2), leader_epoch=2)
    log.append(batch(1), leader_epoch=4)
    assert log.epochs() == [(1, 0), (2, 2), (4, 4)]
    assert log.end_offset_for_epoch(epoch) == answer


def test_becoming_leader_begins_an_epoch_at_the_end(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    assert log.latest_epoch == -1
    log.assign_epoch(3)
    log.append(batch(), leader_epoch=3)
    log.assign_epoch(5)
    assert log.epochs() == [(3, 0), (5, 1)]
    assert log.latest_epoch == 5
    log.close()
    assert (tmp_path / "topic-0" / "leader-epoch-checkpoint").read_text() == "0\n2\n3 0\n5 1\n"
    assert open_log().epochs() == [(3, 0)]


def test_an_epoch_that_was_contradicted_goes(open_log: OpenLog) -> None:
    log = open_log()
    log.append(batch(2), leader_epoch=1)
    log.assign_epoch(2)
    log.assign_epoch(4)
    assert log.epochs() == [(1, 0), (4, 2)]
    log.truncate_to(0)
    assert log.epochs() == []


def test_epochs_follow_the_cuts_at_both_ends(open_log: OpenLog) -> None:
    log = open_log()
    for epoch in range(4):
        log.append(batch(2), leader_epoch=epoch)
    log.high_watermark = 8
    log.raise_start(3)
    assert log.epochs() == [(1, 3), (2, 4), (3, 6)]
    log.truncate_to(6)
    assert log.epochs() == [(1, 3), (2, 4)]
    assert offsets(log, 3) == [3, 4, 5]


@pytest.mark.parametrize(
    "text", ["", "0\n", "1\n0\n", "0\n1\n5\n", "0\n1\n99999999999 0\n", "0\n1\n1 99999999999999999999\n", "0\nx\n"]
)
def test_a_checkpoint_that_is_none_is_told_and_replaced(open_log: OpenLog, tmp_path: Path, text: str) -> None:
    log = open_log()
    log.append(batch(), leader_epoch=2)
    log.close()
    path = tmp_path / "topic-0" / "leader-epoch-checkpoint"
    path.write_text(text)
    again = open_log()
    assert [note.reason for note in again.recovery_notes] == ["leader-epoch-checkpoint cannot be read"]
    assert again.epochs() == []
    again.append(batch(), leader_epoch=3)
    again.close()
    assert path.read_text() == "0\n1\n3 1\n"


def test_epochs_are_rebuilt_from_the_batches_after_a_crash(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    log.append(batch(2), leader_epoch=1)
    log.append(batch(2), leader_epoch=6)
    assert open_log(clean=False).epochs() == [(1, 0), (6, 2)]
    (tmp_path / "topic-0" / "leader-epoch-checkpoint").write_text("0\nmany\n")
    again = open_log(clean=False)
    assert again.epochs() == [(1, 0), (6, 2)]
    assert "leader-epoch-checkpoint cannot be read" in [note.reason for note in again.recovery_notes]


def _ends_of_time_indexes(directory: Path) -> list[int]:
    """The largest timestamp that each closed segment's time index tells."""
    found = []
    for path in sorted(directory.glob("*.timeindex"))[:-1]:
        content = path.read_bytes()
        found.append(struct.unpack(">q", content[-12:-4])[0] if content else -1)
    return found


@pytest.mark.parametrize("cut", [None, 0, -1])
@pytest.mark.parametrize("ending", [".index", ".timeindex"])
def test_a_time_index_made_anew_ends_in_the_largest_timestamp(
    open_log: OpenLog, tmp_path: Path, ending: str, cut: int | None
) -> None:
    config = {"segment.bytes": 1000, "index.interval.bytes": 300}
    log = open_log(config)
    for turn in range(60):
        log.append(batch(timestamp=NOW_MS + turn))
    log.close()
    directory = tmp_path / "topic-0"
    sound = _ends_of_time_indexes(directory)
    harmed = sorted(directory.glob(f"*{ending}"))[:-1]
    assert len(harmed) > 3
    for path in harmed:
        if cut is None:
            path.unlink()
        else:
            os.truncate(path, cut if cut >= 0 else path.stat().st_size + cut)
    again = open_log(config)
    assert [again.offset_for_timestamp(NOW_MS + turn) for turn in range(60)] == [
        (turn, NOW_MS + turn, 0) for turn in range(60)
    ]
    again.close()
    assert _ends_of_time_indexes(directory) == sound
    assert not list(directory.glob("*.tmp"))


def test_an_epoch_without_a_record_is_no_reason_to_write_at_a_stop(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    log.append(batch(), leader_epoch=2)
    log.close()
    directory = tmp_path / "topic-0"
    before = {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in directory.iterdir()}
    for epoch in (3, 4):
        again = open_log()
        again.assign_epoch(epoch)
        assert again.epochs() == [(2, 0), (epoch, 1)]
        again.close()
        assert {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in directory.iterdir()} == before
    last = open_log()
    last.append(batch(), leader_epoch=5)
    last.close()
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n2\n2 0\n5 1\n"


def test_an_index_that_is_longer_than_its_entries_is_cut_at_a_stop(open_log: OpenLog, tmp_path: Path) -> None:
    """As Apache Kafka preallocates them."""
    log = open_log({"index.interval.bytes": 0})
    for _ in range(3):
        log.append(batch())
    log.close()
    path = tmp_path / "topic-0" / f"{0:020d}.index"
    entries = path.read_bytes()
    assert entries
    path.write_bytes(entries + bytes(80))
    again = open_log()
    again.close()
    assert path.read_bytes() == entries
