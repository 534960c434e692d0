"""What goes into a log comes out of it, whole batches at a time."""

import os
from pathlib import Path

import pytest

from kbroker._core.clock import BrokerClock
from kbroker._core.log.partition_log import LogError, PartitionLog
from kbroker._core.record.records import batches
from kbroker.tests.unit.log.batches import batch, offsets, read_all
from kbroker.tests.unit.log.conftest import NOW_MS, OpenLog

OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, RECORD_LIST_TOO_LARGE, STORAGE_ERROR, INVALID_RECORD = 1, 2, 18, 56, 87
CLIENT, COORDINATOR, LEADER = 0, 1, 2


def test_offsets_are_assigned_one_after_the_other(open_log: OpenLog) -> None:
    log = open_log()
    first = log.append(batch(3), leader_epoch=4)
    second = log.append(batch(2), leader_epoch=4)
    assert (first.error, first.base_offset, first.last_offset) == (0, 0, 2)
    assert (second.base_offset, second.last_offset) == (3, 4)
    assert log.log_end_offset == 5
    assert offsets(log) == [0, 1, 2, 3, 4]
    assert {header.leader_epoch for header in batches(log.read(0))} == {4}


def test_an_append_leaves_the_high_watermark_to_its_caller(open_log: OpenLog) -> None:
    log = open_log()
    log.append(batch(3))
    assert log.high_watermark == 0
    log.high_watermark = 2
    log.high_watermark = 1
    assert log.high_watermark == 2
    log.high_watermark = 99
    assert log.high_watermark == 3


def test_a_read_begins_with_the_batch_that_holds_the_offset(open_log: OpenLog) -> None:
    log = open_log()
    log.append(batch(3))
    log.append(batch(3))
    assert [header.base_offset for header in batches(log.read(4))] == [3]
    assert [header.base_offset for header in batches(log.read(2))] == [0, 3]


def test_a_read_stops_before_its_bound(open_log: OpenLog) -> None:
    log = open_log()
    for _ in range(4):
        log.append(batch(2))
    assert [header.base_offset for header in batches(log.read(0, bound=4))] == [0, 2]
    assert log.read(4, bound=4) == b""
    assert log.read(5, bound=4) == b""


def test_a_read_gives_whole_batches_within_max_bytes_and_at_least_one(open_log: OpenLog) -> None:
    log = open_log()
    size = len(batch(2))
    for _ in range(200):
        log.append(batch(2))
    assert len(log.read(0, size * 3 + 5)) == size * 3
    assert len(log.read(100, size * 150)) == size * 150
    assert len(log.read(7, 1)) == size
    assert log.read(7, 1, at_least_one=False) == b""
    assert len(log.read(0, 0)) == size
    assert offsets(log, max_bytes=size * 5 + 1) == list(range(400))


def test_a_fetch_at_the_end_is_empty_and_beyond_it_out_of_range(open_log: OpenLog) -> None:
    log = open_log()
    log.append(batch(2))
    assert log.read(2) == b""
    for offset in (3, -1):
        with pytest.raises(LogError) as refused:
            log.read(offset)
        assert refused.value.code == OFFSET_OUT_OF_RANGE


def test_a_refused_batch_leaves_the_log_as_it_was(open_log: OpenLog) -> None:
    log = open_log({"segment.bytes": 1024})
    log.append(batch())
    broken = bytearray(batch())
    broken[-1] ^= 1
    assert log.append(broken).error == CORRUPT_MESSAGE
    assert log.append(b"").error == INVALID_RECORD
    assert log.append(batch() + batch()).error == INVALID_RECORD
    assert log.append(batch(size=2000)).error == RECORD_LIST_TOO_LARGE
    assert (log.log_end_offset, len(log.segments())) == (1, 1)


def test_a_coordinator_appends_several_batches_at_once(open_log: OpenLog) -> None:
    log = open_log()
    log.append(batch())
    answer = log.append(batch(2) + batch(3), origin=COORDINATOR, leader_epoch=1)
    assert (answer.error, answer.base_offset, answer.last_offset) == (0, 1, 5)
    assert offsets(log) == list(range(6))


def test_batches_of_a_leader_keep_their_offsets_and_epochs(open_log: OpenLog) -> None:
    log = open_log()
    fetched = batch(2, base_offset=0, leader_epoch=3) + batch(2, base_offset=5, leader_epoch=4)
    answer = log.append(fetched + batch(2, base_offset=7)[:40], origin=LEADER)
    assert (answer.error, answer.base_offset, answer.last_offset) == (0, 0, 6)
    assert log.epochs() == [(3, 0), (4, 5)]
    assert offsets(log, 2) == [5, 6]
    assert log.append(batch(base_offset=6), origin=LEADER).error == OFFSET_OUT_OF_RANGE


def test_segments_roll_when_the_next_batch_does_not_fit(open_log: OpenLog) -> None:
    size = len(batch(2))
    log = open_log({"segment.bytes": size * 3})
    for _ in range(7):
        log.append(batch(2))
    assert [facts.base_offset for facts in log.segments()] == [0, 6, 12]
    assert offsets(log) == list(range(14))
    assert offsets(log, 5) == list(range(5, 14))


def test_segments_roll_by_the_time_that_records_tell(open_log: OpenLog) -> None:
    log = open_log({"segment.ms": 1000})
    log.append(batch(timestamp=NOW_MS))
    log.append(batch(timestamp=NOW_MS + 1000))
    log.append(batch(timestamp=NOW_MS + 1001))
    assert [facts.base_offset for facts in log.segments()] == [0, 2]


def test_segments_roll_when_an_index_is_full(open_log: OpenLog) -> None:
    log = open_log({"segment.index.bytes": 36, "index.interval.bytes": 0})
    for i in range(12):
        log.append(batch(timestamp=NOW_MS + i))
    assert len(log.segments()) > 1
    assert offsets(log) == list(range(12))


def rolls_at(log: PartitionLog, sent: list[int]) -> int:
    """The first of these timestamps that begins a new segment."""
    for timestamp in sent:
        before = len(log.segments())
        assert log.append(batch(timestamp=timestamp)).error == 0
        if len(log.segments()) > before:
            return timestamp
    raise AssertionError("no roll")


def test_jitter_rolls_each_partition_and_segment_earlier_by_an_amount_of_its_own(
    tmp_path: Path, clock: BrokerClock
) -> None:
    config = {"segment.ms": 100, "segment.jitter.ms": 50}
    waited = set()
    for partition in range(12):
        log = PartitionLog.open(tmp_path / f"topic-{partition}", clock, config)
        begun = NOW_MS
        for _ in range(3):
            rolled = rolls_at(log, list(range(begun, begun + 200)))
            waited.add(rolled - begun)
            begun = rolled
        log.close()
    assert min(waited) > 100 - 50
    assert max(waited) <= 101
    assert len(waited) > 6, "they would all roll at once"


def test_jitter_never_passes_segment_ms(open_log: OpenLog) -> None:
    log = open_log({"segment.ms": 10, "segment.jitter.ms": 1 << 60})
    assert rolls_at(log, list(range(NOW_MS, NOW_MS + 20))) <= NOW_MS + 11


def test_segments_roll_when_a_relative_offset_would_not_fit(open_log: OpenLog) -> None:
    log = open_log()
    assert log.append(batch()).error == 0

    def from_leader(base_offset: int) -> bytes:
        return base_offset.to_bytes(8, "big") + batch()[8:]

    last = (1 << 31) - 1
    assert log.append(from_leader(last), origin=LEADER).error == 0
    assert [s.base_offset for s in log.segments()] == [0], "the largest that fits"
    assert log.append(from_leader(last + 1), origin=LEADER).error == 0
    far = 5 << 31
    assert log.append(from_leader(far), origin=LEADER).error == 0
    assert [s.base_offset for s in log.segments()] == [0, last + 1, far]
    log.close()
    again = open_log()
    assert offsets(again) == [0, last, last + 1, far]
    assert offsets(open_log(clean=False)) == [0, last, last + 1, far]


def test_rolls_and_indexes_follow_settings_changed_while_the_log_is_open(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log({"segment.bytes": 1 << 20, "index.interval.bytes": 1 << 20})
    for _ in range(20):
        log.append(batch())
    assert len(log.segments()) == 1
    log.configure({"segment.bytes": 1 << 20, "index.interval.bytes": 100})
    for _ in range(20):
        log.append(batch())
    log.flush()
    index = tmp_path / "topic-0" / f"{0:020}.index"
    entries = index.stat().st_size // 8
    assert entries > 5
    log.configure({"segment.bytes": 1 << 20, "segment.index.bytes": 8 * entries})
    log.append(batch())
    assert len(log.segments()) == 2
    log.configure({"segment.bytes": 3 * len(batch())})
    for _ in range(5):
        log.append(batch())
    assert len(log.segments()) == 3
    log.configure({"segment.ms": 10})
    log.append(batch(timestamp=NOW_MS + 11))
    assert len(log.segments()) == 4


def test_log_append_time_is_stamped_and_reported(open_log: OpenLog) -> None:
    log = open_log({"message.timestamp.type": "LogAppendTime"})
    assert log.append(batch(timestamp=5), now_ms=NOW_MS + 9).log_append_time_ms == NOW_MS + 9
    assert read_all(log)[0].timestamp == NOW_MS + 9


def test_a_closed_log_refuses_and_may_be_closed_again(open_log: OpenLog) -> None:
    log = open_log()
    log.append(batch())
    log.close()
    log.close()
    assert log.append(batch()).error == STORAGE_ERROR
    with pytest.raises(LogError) as refused:
        log.read(0)
    assert refused.value.code == STORAGE_ERROR
    assert log.log_end_offset == 1


def test_a_log_in_memory_needs_no_directory(clock: BrokerClock) -> None:
    log = PartitionLog.in_memory(clock, {"segment.bytes": 4096})
    for _ in range(100):
        assert log.append(batch(2)).error == 0
    assert len(log.segments()) > 2
    assert offsets(log) == list(range(200))
    assert offsets(log, max_bytes=300) == list(range(200))
    assert log.truncate_to(101) == 100
    log.append(batch(2))
    assert offsets(log) == list(range(102))
    assert log.flush() == 102
    log.close()


def test_a_full_disk_takes_the_log_offline_and_keeps_what_was_there(open_log: OpenLog) -> None:
    resource = pytest.importorskip("resource")
    import signal

    log = open_log()
    log.append(batch())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (log.size_bytes + 20, before[1]))
        assert log.append(batch()).error == STORAGE_ERROR
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert log.offline_errno != 0
    assert log.append(batch()).error == STORAGE_ERROR
    again = open_log(clean=False)
    assert offsets(again) == [0]
    assert again.recovery_notes == []
    assert os.path.getsize(os.path.join(again.directory, f"{0:020d}.log")) == len(batch())
