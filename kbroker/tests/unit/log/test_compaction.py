"""What compaction keeps, rule by rule, with the clock held; and that a kill at any step of its swap loses nothing."""

import random
import shutil
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbroker._core.clock import BrokerClock
from kbroker._core.log.cleaner import Cleaned, CleaningCancelledError, CleaningError, LogCleaning, Stopped
from kbroker._core.log.open_files import FileBudget
from kbroker._core.log.partition_log import PartitionLog
from kbroker._core.record.records import Record, batches, build_batch
from kbroker.tests.property.compaction_model import Batch, batches_in
from kbroker.tests.unit.log.batches import read_all
from kbroker.tests.unit.log.conftest import NOW_MS, OpenLog

ABORT, COMMIT, COORDINATOR = 0, 1, 1
HORIZON = 0x40


def put(log: PartitionLog, *pairs: tuple[str | None, str | None], **how: Any) -> None:
    """One batch of (key, value)."""
    records = [
        Record(
            timestamp=NOW_MS + i,
            key=None if key is None else key.encode(),
            value=None if value is None else value.encode(),
            headers=(("header", b"h"),),
        )
        for i, (key, value) in enumerate(pairs)
    ]
    assert log.append(build_batch(records, **how)).error == 0
    log.high_watermark = log.log_end_offset


def end_txn(log: PartitionLog, producer_id: int, kind: int) -> None:
    marker = Record(timestamp=NOW_MS, key=struct.pack(">hh", 0, kind), value=struct.pack(">hi", 0, 0))
    batch = build_batch([marker], control=True, transactional=True, producer_id=producer_id, producer_epoch=0)
    assert log.append(batch, origin=COORDINATOR).error == 0
    log.high_watermark = log.log_end_offset


def in_txn(producer_id: int, sequence: int = 0) -> dict[str, Any]:
    return {"transactional": True, "producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}


def take_all(cleaning: LogCleaning) -> None:
    while not cleaning.finished:
        cleaning.step()


def compact(log: PartitionLog, *, dirty: int = 0, now_ms: int = NOW_MS, roll: bool = True, **how: Any) -> Cleaned:
    if roll:
        log.roll()
    cleaning = LogCleaning(log, dirty, log.log_end_offset, now_ms, **how)
    try:
        take_all(cleaning)
        return cleaning.result
    finally:
        cleaning.close()


def kept(log: PartitionLog) -> list[tuple[int, str | None, str | None]]:
    return [
        (r.offset, None if r.key is None else r.key.decode(), None if r.value is None else r.value.decode())
        for r in read_all(log)
    ]


def stored(log: PartitionLog) -> list[Batch]:
    return batches_in(Path(log.directory))


def test_the_newest_record_of_a_key_stays_at_its_offset(open_log: OpenLog) -> None:
    log = open_log()
    put(log, ("a", "1"), ("b", "1"))
    put(log, ("a", "2"))
    put(log, ("c", "1"), ("b", "2"))
    result = compact(log)
    assert kept(log) == [(2, "a", "2"), (3, "c", "1"), (4, "b", "2")]
    assert (result.end_offset, result.records_read, result.records_kept, result.keys) == (5, 5, 3, 3)
    assert [record.headers for record in read_all(log)] == [(("header", b"h"),)] * 3


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_that_loses_records_keeps_codec_offsets_and_timestamps(open_log: OpenLog, codec: int) -> None:
    log = open_log()
    put(log, ("a", "1"), ("b", "x" * 200), ("c", "1"), ("a", "2"), codec=codec)
    put(log, ("c", "2"))
    compact(log)
    first = stored(log)[0]
    assert (first.base, first.last, first.attributes) == (0, 3, codec)
    assert (first.base_timestamp, first.max_timestamp) == (NOW_MS + 1, NOW_MS + 3)
    assert [(r.offset, r.timestamp) for r in first.records] == [(1, NOW_MS + 1), (3, NOW_MS + 3)]


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_that_loses_nothing_keeps_its_bytes(open_log: OpenLog, codec: int) -> None:
    log = open_log()
    put(log, ("a", "1"), ("b", "x" * 200), codec=codec, leader_epoch=0)
    before = log.read(0)
    compact(log)
    assert log.read(0) == before


def test_records_without_a_key_go(open_log: OpenLog) -> None:
    log = open_log()
    put(log, (None, "1"), ("a", "1"), (None, None))
    compact(log)
    assert kept(log) == [(1, "a", "1")]


def test_the_active_segment_is_not_touched(open_log: OpenLog) -> None:
    log = open_log()
    put(log, ("a", "1"))
    log.roll()
    put(log, ("a", "2"), ("a", "3"))
    compact(log, roll=False)
    assert kept(log) == [(0, "a", "1"), (1, "a", "2"), (2, "a", "3")]


def test_nothing_at_or_past_the_high_watermark_is_touched(open_log: OpenLog) -> None:
    log = open_log()
    put(log, ("a", "1"), ("a", "2"))
    log.roll()
    log.append(build_batch([Record(timestamp=NOW_MS, key=b"a", value=b"3"), Record(timestamp=NOW_MS, key=b"a")]))
    result = compact(log)
    assert result.end_offset == 2
    assert [offset for offset, _, _ in kept(log)] == [1, 2, 3]


def test_a_tombstone_stays_until_the_horizon_that_the_first_compaction_sets(open_log: OpenLog) -> None:
    log = open_log()
    put(log, ("a", "1"), ("b", "1"))
    put(log, ("a", None), ("b", "2"))
    compact(log, delete_retention_ms=1000)
    (batch,) = stored(log)
    assert batch.attributes & HORIZON
    assert batch.base_timestamp == NOW_MS + 1000
    assert [(r.offset, r.timestamp, r.value) for r in batch.records] == [(2, NOW_MS, None), (3, NOW_MS + 1, b"2")]
    assert batch.max_timestamp == NOW_MS + 1
    compact(log, dirty=0, now_ms=NOW_MS + 999, delete_retention_ms=1000)
    assert stored(log) == [batch]
    compact(log, dirty=0, now_ms=NOW_MS + 1000, delete_retention_ms=1000)
    assert kept(log) == [(3, "b", "2")]
    assert stored(log)[0].base_timestamp == NOW_MS + 1000


def test_aborted_records_go_at_once_and_their_marker_later(open_log: OpenLog) -> None:
    log = open_log()
    put(log, ("a", "1"))
    put(log, ("a", "aborted"), ("b", "aborted"), **in_txn(5))
    end_txn(log, 5, ABORT)
    put(log, ("c", "next"), **in_txn(5, 2))
    end_txn(log, 5, COMMIT)
    put(log, ("z", "end"))
    compact(log, delete_retention_ms=1000)
    assert [(r.offset, r.value) for r in read_all(log) if r.offset in (0, 1, 2)] == [(0, b"1")]
    assert [(b.base, bool(b.attributes & HORIZON)) for b in stored(log) if b.control] == [(3, False), (5, False)]
    compact(log, delete_retention_ms=1000)  # none of its batches is left: the abort's marker gets its horizon
    assert [(b.base, bool(b.attributes & HORIZON)) for b in stored(log) if b.control] == [(3, True), (5, False)]
    compact(log, now_ms=NOW_MS + 1000, delete_retention_ms=1000)
    assert [b.base for b in stored(log) if b.control] == [5]


def test_an_abort_is_known_although_its_marker_stands_behind_the_last_stable_offset(open_log: OpenLog) -> None:
    log = open_log()
    put(log, ("a", "1"))
    put(log, ("a", "aborted"), **in_txn(5))
    log.roll()
    put(log, ("x", "open"), **in_txn(6))
    end_txn(log, 5, ABORT)
    assert log.last_stable_offset == 2
    assert compact(log).end_offset == 2
    assert kept(log)[0] == (0, "a", "1")


def test_an_open_transaction_is_not_touched(open_log: OpenLog) -> None:
    log = open_log()
    put(log, ("a", "1"))
    log.roll()
    put(log, ("a", "2"), **in_txn(5))
    log.roll()
    put(log, ("a", "3"))
    assert compact(log).end_offset == 1
    assert len(kept(log)) == 3


def test_the_last_batch_of_a_producer_stays_without_its_records(open_log: OpenLog) -> None:
    log = open_log()
    for sequence in range(2):
        put(log, ("a", str(sequence)), producer_id=9, producer_epoch=0, base_sequence=sequence)
    put(log, ("a", "newest"))
    compact(log)
    empty = stored(log)[0]
    assert (empty.base, empty.last, empty.producer, empty.records) == (1, 1, (9, 0, 1), ())
    assert empty.base_timestamp == -1
    log.close()
    log = open_log(clean=False)
    again = build_batch(
        [Record(timestamp=NOW_MS, key=b"a", value=b"1")], producer_id=9, producer_epoch=0, base_sequence=1
    )
    assert log.append(again).duplicate


def test_a_small_map_takes_several_compactions(open_log: OpenLog) -> None:
    log = open_log()
    for turn in range(3):
        for key in "abcdefgh":
            put(log, (key, str(turn)))
    log.roll()
    dirty, turns = 0, 0
    while dirty < log.log_end_offset:
        result = compact(log, dirty=dirty, roll=False, map_bytes=24 * 4, load_factor=0.9)
        assert result.keys <= 3
        assert result.end_offset > dirty
        dirty, turns = result.end_offset, turns + 1
    assert turns > 3
    assert [offset for offset, _, _ in kept(log)] == list(range(16, 24))


def test_segments_are_joined_up_to_segment_bytes(open_log: OpenLog) -> None:
    log = open_log({"segment.bytes": 400})
    for i in range(12):
        put(log, (f"key{i}", "v" * 20))
        log.roll()
    before = len(log.segments())
    compact(log)
    after = log.segments()
    assert len(after) < before / 2
    assert all(one.size_bytes <= 400 for one in after)
    assert [one.next_offset for one in after[:-1]] == [one.base_offset for one in after[1:]]


def test_indexes_of_a_compacted_segment_find_offsets_and_times(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log({"index.interval.bytes": 200})
    for i in range(100):
        put(log, (f"key{i % 60}", "v" * 50))
    compact(log)
    offsets = [offset for offset, _, _ in kept(log)]
    assert offsets == list(range(40, 100))
    assert (tmp_path / "topic-0" / f"{0:020d}.index").stat().st_size >= 8 * 20
    for offset in (0, 39, 40, 71, 99):
        assert read_all(log, offset)[0].offset == max(offset, 40)
    found = log.offset_for_timestamp(NOW_MS)
    assert found is not None
    assert found.offset == 40


def test_readers_in_flight_finish_on_the_old_segment(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    put(log, ("a", "1"), ("a", "2"))
    old = (tmp_path / "topic-0" / f"{0:020d}.log").open("rb")
    before = log.read(0)
    compact(log)
    with old:
        assert old.read() == before
    assert (tmp_path / "topic-0" / f"{0:020d}.log.deleted").exists()


def test_a_log_that_was_cut_meanwhile_is_left_alone(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    put(log, ("a", "1"))
    log.roll()
    put(log, ("a", "2"))
    log.roll()
    put(log, ("b", "1"))
    cleaning = LogCleaning(log, 0, 2, NOW_MS)
    cleaning.step()
    log.truncate_to(1)
    with pytest.raises(CleaningCancelledError):
        take_all(cleaning)
    cleaning.close()
    assert kept(log) == [(0, "a", "1")]
    assert not list((tmp_path / "topic-0").glob("*.cleaned"))


def test_a_log_that_was_closed_meanwhile_is_left_alone(open_log: OpenLog) -> None:
    log = open_log()
    put(log, ("a", "1"), ("a", "2"))
    log.roll()
    cleaning = LogCleaning(log, 0, 2, NOW_MS)
    log.close()
    with pytest.raises(CleaningCancelledError):
        cleaning.step()


def test_a_corrupt_batch_is_not_given_a_new_checksum(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    put(log, ("a", "1"), ("a", "2"))
    log.roll()
    path = tmp_path / "topic-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(CleaningError, match="checksum"):
        compact(log)
    assert path.read_bytes() == data
    assert not list((tmp_path / "topic-0").glob("*.cleaned"))


def test_a_map_that_holds_no_key_is_refused(open_log: OpenLog) -> None:
    with pytest.raises(ValueError, match="holds no key"):
        LogCleaning(open_log(), 0, 0, NOW_MS, map_bytes=24)


def filled(directory: Path, clock: BrokerClock) -> PartitionLog:
    """Three segments that become one, with a producer's last batch and a tombstone whose time has come."""
    log = PartitionLog.open(directory, clock, {})
    put(log, ("a", "1"), ("b", "1"), ("c", "1"))
    log.roll()
    put(log, ("b", "2"), ("d", "1"))
    log.roll()
    put(log, ("d", None))
    log.roll()
    compact(log, delete_retention_ms=0)
    put(log, ("e", "1"), ("b", "3"), producer_id=4, producer_epoch=0, base_sequence=0)
    log.roll()
    put(log, ("e", "2"))
    log.roll()
    put(log, ("f", "1"))
    log.flush()
    return log


def newest(log: PartitionLog) -> dict[str | None, str | None]:
    found = {key: value for _, key, value in kept(log)}
    return {key: value for key, value in found.items() if value is not None}


def test_a_kill_after_any_step_of_the_swap_loses_nothing_and_revives_nothing(
    tmp_path: Path, clock: BrokerClock
) -> None:
    wanted = {"a": "1", "b": "3", "c": "1", "e": "2", "f": "1"}
    steps = 0
    while True:
        directory = tmp_path / f"topic-{steps}"
        log = filled(directory, clock)
        try:
            compact(log, roll=False, now_ms=NOW_MS + 10, stop_after=steps)
            break
        except Stopped:
            del log
        log = PartitionLog.open(directory, clock, {}, clean=False, recovery_point=0)
        assert log.recovery_notes == [], steps
        assert newest(log) == wanted, steps
        assert log.log_end_offset == 10, steps
        assert not [path for path in directory.iterdir() if path.suffix in {".cleaned", ".swap", ".deleted"}], steps
        log.high_watermark = log.log_end_offset
        compact(log, roll=False, now_ms=NOW_MS + 10)
        assert [offset for offset, _, _ in kept(log)] == [0, 2, 7, 8, 9], steps
        log.close()
        shutil.rmtree(directory)
        steps += 1
    assert steps > 12
    assert [offset for offset, _, _ in kept(log)] == [0, 2, 7, 8, 9]
    log.close()


def test_appends_and_reads_go_on_while_the_log_is_compacted(open_log: OpenLog) -> None:
    log = open_log({"segment.bytes": 4000, "index.interval.bytes": 200}, files=FileBudget(8))
    problems: list[BaseException] = []
    done = threading.Event()

    def append() -> None:
        for turn in range(3000):
            put(log, (f"key{turn % 40}", f"{turn}"), codec=turn % 5)
        done.set()

    def read() -> None:
        chance = random.Random(1)
        while not done.is_set():
            end = log.log_end_offset
            at = chance.randrange(end) if end else 0
            headers = batches(log.read(at, 2000)) if end else []
            assert all(one.last_offset >= at for one in headers)
            assert [one.base_offset for one in headers] == sorted(one.base_offset for one in headers)
            log.offset_for_timestamp(NOW_MS)

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as problem:
            problems.append(problem)
            done.set()

    threads = [threading.Thread(target=guarded, args=(work,)) for work in (append, read, read)]
    for thread in threads:
        thread.start()
    dirty = turns = 0
    while not done.is_set():
        dirty = compact(log, dirty=dirty, roll=False, map_bytes=24 * 30, buffer_bytes=2000).end_offset
        turns += 1
    for thread in threads:
        thread.join()
    assert problems == []
    assert turns > 0
    log.roll()
    while dirty < log.log_end_offset:
        dirty = compact(log, dirty=dirty, roll=False).end_offset
    assert [offset for offset, _, _ in kept(log)] == list(range(2960, 3000))
