"""Retention, a rule a test: which segments go, what stays of them on the disk, and what the log then tells."""

import os
from pathlib import Path
from typing import Any

import pytest

from kbroker._core.clock import BrokerClock
from kbroker._core.log.partition_log import LogError, PartitionLog
from kbroker.tests.unit.log.batches import batch, offsets, produced
from kbroker.tests.unit.log.conftest import NOW_MS, OpenLog

HOUR_MS = 3_600_000
SUFFIXES = (".log", ".index", ".timeindex", ".snapshot")


def fill(log: PartitionLog, *ages_ms: int, committed: bool = True) -> list[int]:
    """A segment of two records per age, the last one active; the base offsets."""
    for turn, age_ms in enumerate(ages_ms):
        if turn:
            log.roll()
        assert log.append(batch(2, timestamp=NOW_MS - age_ms)).error == 0
    if committed:
        log.high_watermark = log.log_end_offset
    return [facts.base_offset for facts in log.segments()]


def kept(log: PartitionLog) -> list[int]:
    return [facts.base_offset for facts in log.segments()]


def test_segments_older_than_retention_ms_go(open_log: OpenLog) -> None:
    log = open_log({"retention.ms": HOUR_MS})
    fill(log, 3 * HOUR_MS, 2 * HOUR_MS, HOUR_MS // 2, 0)
    assert log.retire() == [0, 2]
    assert (kept(log), log.log_start_offset) == ([4, 6], 4)
    assert log.retire() == []


def test_a_segment_is_as_old_as_its_largest_timestamp_and_goes_when_it_is_older_to_the_millisecond(
    open_log: OpenLog, clock: BrokerClock
) -> None:
    log = open_log({"retention.ms": HOUR_MS})
    fill(log, HOUR_MS + 1, 0)  # its second record is exactly an hour old
    assert log.retire() == []
    clock.advance(1)
    assert log.retire() == [0]


def test_a_younger_segment_keeps_the_older_ones_behind_it(open_log: OpenLog) -> None:
    log = open_log({"retention.ms": HOUR_MS})
    fill(log, 2 * HOUR_MS, 0, 2 * HOUR_MS, 0)
    assert log.retire() == [0]
    assert kept(log) == [2, 4, 6]


def test_a_record_dated_ahead_keeps_its_segment(open_log: OpenLog) -> None:
    log = open_log({"retention.ms": 1, "message.timestamp.after.max.ms": 10 * HOUR_MS})
    fill(log, -HOUR_MS, 5)
    assert log.retire() == []


def test_the_active_segment_is_rolled_when_all_of_it_has_expired(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log({"retention.ms": HOUR_MS})
    fill(log, 3 * HOUR_MS, 2 * HOUR_MS)
    assert log.retire() == [0, 2]
    assert (kept(log), log.log_start_offset, log.log_end_offset) == ([4], 4, 4)
    assert log.retire() == []
    assert log.append(batch(1)).base_offset == 4
    assert (tmp_path / "topic-0" / f"{4:020d}.snapshot").exists()


def test_an_empty_log_has_nothing_to_let_go(open_log: OpenLog) -> None:
    log = open_log({"retention.ms": 0, "retention.bytes": 0})
    assert log.retire() == []
    assert kept(log) == [0]


def test_retention_ms_of_minus_one_keeps_everything(open_log: OpenLog) -> None:
    log = open_log({"retention.ms": -1})
    fill(log, 10**12, 10**11, 0)
    assert log.retire() == []


def test_records_without_timestamps_are_as_old_as_their_file(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log({"retention.ms": HOUR_MS})
    for turn in range(2):
        if turn:
            log.roll()
        log.append(batch(1, timestamp=-1))
    log.append(batch(1))
    log.high_watermark = 3
    path = tmp_path / "topic-0" / f"{0:020d}.log"
    os.utime(path, ns=((NOW_MS - HOUR_MS) * 1_000_000,) * 2)
    assert log.retire() == []
    os.utime(path, ns=((NOW_MS - HOUR_MS - 1) * 1_000_000,) * 2)
    assert log.retire() == [0]


@pytest.mark.parametrize(("limit", "gone"), [(-1, 0), (-5, 0), (0, 4), (1, 3), (79, 3), (1000, 0)], ids=str)
def test_the_oldest_go_while_as_much_as_retention_bytes_stays(open_log: OpenLog, limit: int, gone: int) -> None:
    log = open_log({"retention.bytes": limit})
    bases = fill(log, 0, 0, 0, 0)
    size = log.segments()[0].size_bytes
    assert 79 < size < 250
    assert log.retire() == bases[:gone]
    assert log.size_bytes == (4 - gone) * size


def test_no_segment_goes_that_would_leave_less_than_retention_bytes(open_log: OpenLog) -> None:
    log = open_log()
    fill(log, 0, 0, 0)
    size = log.segments()[0].size_bytes
    log.configure({"retention.bytes": 2 * size + 1})
    assert log.retire() == []
    log.configure({"retention.bytes": 2 * size})
    assert log.retire() == [0]
    log.configure({"retention.bytes": 2 * size})
    assert log.retire() == []


def test_size_comes_before_time_and_counts_what_lies_below_the_start_no_more(open_log: OpenLog) -> None:
    log = open_log()
    fill(log, 0, 0, 0, 0)
    size = log.segments()[0].size_bytes
    log.raise_start(3)
    log.configure({"retention.bytes": 3 * size})
    assert log.retire() == [0]
    assert (kept(log), log.log_start_offset) == ([2, 4, 6], 3)


def test_nothing_beyond_the_high_watermark_goes(open_log: OpenLog) -> None:
    log = open_log({"retention.ms": HOUR_MS, "retention.bytes": 0})
    fill(log, *[2 * HOUR_MS] * 3, committed=False)
    assert log.retire() == []
    log.high_watermark = 3
    assert log.retire() == [0]
    log.high_watermark = 5
    assert log.retire() == [2]
    assert (kept(log), log.log_start_offset) == ([4], 4)
    log.high_watermark = 6
    assert log.retire() == [4]
    assert log.log_start_offset == 6


@pytest.mark.parametrize(
    ("policy", "gone"), [("delete", [0, 2]), ("compact,delete", [0, 2]), ("compact", []), ("", []), ([], [])]
)
def test_time_and_size_count_where_the_policy_says_delete(open_log: OpenLog, policy: Any, gone: list[int]) -> None:
    log = open_log({"retention.ms": 1, "retention.bytes": 0, "cleanup.policy": policy})
    fill(log, HOUR_MS, HOUR_MS)
    assert log.retire() == gone


@pytest.mark.parametrize("policy", ["delete", "compact", ""])
def test_segments_wholly_below_the_start_go_whatever_the_policy(open_log: OpenLog, policy: str) -> None:
    log = open_log({"retention.ms": -1, "cleanup.policy": policy})
    fill(log, 0, 0, 0)
    assert log.raise_start(3) == 3
    assert kept(log) == [0, 2, 4]
    assert log.retire() == [0]
    assert log.raise_start(6) == 6
    assert log.retire() == [2]
    assert kept(log) == [4]  # the active one stays, though nothing of it is left to read
    assert offsets(log) == []


def test_a_start_is_never_lowered_nor_put_beyond_the_high_watermark(open_log: OpenLog) -> None:
    log = open_log()
    fill(log, 0, 0, committed=False)
    log.high_watermark = 3
    with pytest.raises(ValueError, match="past the high watermark"):
        log.raise_start(4)
    assert [log.raise_start(offset) for offset in (2, 1, 0, -7, 3)] == [2, 2, 2, 2, 3]
    with pytest.raises(LogError) as refused:
        log.read(2)
    assert refused.value.code == 1
    assert offsets(log) == [3]


def test_files_are_renamed_at_once_and_the_next_start_removes_them(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log({"retention.ms": HOUR_MS})
    fill(log, 2 * HOUR_MS, 2 * HOUR_MS, 0)
    directory = tmp_path / "topic-0"
    (directory / f"{2:020d}.txnindex").write_bytes(b"")
    before = {path.name for path in directory.iterdir()}
    log.retire()
    names = {path.name for path in directory.iterdir()}
    old = {name for name in before if name.startswith((f"{0:020d}", f"{2:020d}"))}
    assert {f"{2:020d}{suffix}" for suffix in (*SUFFIXES, ".txnindex")} <= old
    assert names == (before - old) | {f"{name}.deleted" for name in old}
    log.close()
    again = open_log()
    assert not [path for path in directory.iterdir() if path.suffix == ".deleted"]
    assert (again.log_start_offset, offsets(again)) == (4, [4, 5])


def test_a_kill_between_two_renames_leaves_nothing_of_the_segment(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    fill(log, 0, 0)
    directory = tmp_path / "topic-0"
    (directory / f"{0:020d}.log").rename(directory / f"{0:020d}.log.deleted")
    again = open_log(clean=False)
    assert (again.log_start_offset, offsets(again), again.recovery_notes) == (2, [2, 3], [])
    assert not list(directory.glob(f"{0:020d}*"))


def test_the_start_is_never_ahead_of_the_renames(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log({"retention.ms": HOUR_MS})
    fill(log, 3 * HOUR_MS, 3 * HOUR_MS, 3 * HOUR_MS, 0)
    (tmp_path / "topic-0" / f"{2:020d}.log.deleted").mkdir()  # the second rename fails
    with pytest.raises(OSError, match="directory"):
        log.retire()
    assert log.log_start_offset == 2
    (tmp_path / "topic-0" / f"{2:020d}.log.deleted").rmdir()
    assert open_log(clean=False).log_start_offset == 2


def test_a_log_whose_files_cannot_be_renamed_is_offline(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log({"retention.ms": HOUR_MS})
    fill(log, 2 * HOUR_MS, 0)
    (tmp_path / "topic-0" / f"{0:020d}.log.deleted").mkdir()
    with pytest.raises(OSError, match=r"topic-0"):
        log.retire()
    assert log.offline_errno
    assert log.retire() == []


def test_epochs_and_the_checkpoint_of_them_follow_the_start(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log({"retention.ms": HOUR_MS})
    for epoch, age_ms in enumerate((3 * HOUR_MS, 2 * HOUR_MS, 0)):
        log.append(batch(2, timestamp=NOW_MS - age_ms), leader_epoch=epoch)
        log.roll()
    log.high_watermark = 6
    assert log.retire() == [0, 2]
    assert log.epochs() == [(2, 4)]
    log.close()
    assert (tmp_path / "topic-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n2 4\n"


def test_producers_outlive_their_records(open_log: OpenLog) -> None:
    log = open_log({"retention.ms": HOUR_MS})
    log.append(produced(0, 2, timestamp=NOW_MS - 2 * HOUR_MS))
    log.high_watermark = 2
    assert log.retire() == [0]
    assert log.append(produced(0, 2, timestamp=NOW_MS - 2 * HOUR_MS)).duplicate
    log.close()
    again = open_log()
    assert [producer.last_sequence for producer in again.producers()] == [1]
    assert again.append(produced(2)).error == 0


def test_a_reader_waits_at_the_start_when_its_transaction_began_below(open_log: OpenLog) -> None:
    log = open_log()
    log.append(produced(0, 2, transactional=True))
    log.append(batch(2))
    log.high_watermark = 4
    assert log.last_stable_offset == 0
    log.raise_start(3)
    assert log.last_stable_offset == 3
    log.append(batch(1))
    log.high_watermark = 5
    assert log.last_stable_offset == 3
    log.close()
    again = open_log(log_start_offset=3)
    again.high_watermark = 5
    assert again.last_stable_offset == 3


def test_settings_hold_from_the_moment_they_are_changed(open_log: OpenLog) -> None:
    log = open_log({"retention.ms": -1, "file.delete.delay.ms": 5})
    fill(log, 2 * HOUR_MS, 0)
    assert (log.retire(), log.file_delete_delay_ms) == ([], 5)
    log.configure({"retention.ms": HOUR_MS})
    assert (log.retire(), log.file_delete_delay_ms) == ([0], 60_000)


def test_the_largest_timestamp_is_known_after_a_restart(open_log: OpenLog) -> None:
    log = open_log()
    fill(log, 2 * HOUR_MS, 2 * HOUR_MS, 0)
    log.close()
    again = open_log({"retention.ms": HOUR_MS})
    again.high_watermark = 6
    assert again.retire() == [0, 2]


def test_a_closed_log_lets_nothing_go(open_log: OpenLog) -> None:
    log = open_log({"retention.ms": 1})
    fill(log, HOUR_MS, HOUR_MS)
    log.close()
    assert log.retire() == []


def test_a_log_in_memory_ages_too(clock: BrokerClock) -> None:
    log = PartitionLog.in_memory(clock, {"retention.ms": HOUR_MS})
    fill(log, 2 * HOUR_MS, 2 * HOUR_MS, 0)
    assert log.retire() == [0, 2]
    assert offsets(log) == [4, 5]
