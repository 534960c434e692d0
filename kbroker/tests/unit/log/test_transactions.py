"""Aborted transactions: what .txnindex holds, byte by byte, and that every way to lose it is a way to make it again."""

import os
import struct
from pathlib import Path
from typing import Any

import pytest

from kbroker._core.clock import BrokerClock
from kbroker._core.log.cleaner import Stopped
from kbroker._core.log.partition_log import AbortedTransaction, PartitionLog
from kbroker._core.record.records import Record, build_batch
from kbroker.tests.unit.log.batches import batch, offsets, produced
from kbroker.tests.unit.log.conftest import NOW_MS, OpenLog
from kbroker.tests.unit.log.test_compaction import compact

COORDINATOR, ABORT, COMMIT = 1, 0, 1
Entry = tuple[int, int, int, int]


class Writer:
    """Transactions of several producers, interleaved by the test."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.sequences: dict[int, int] = {}

    def put(self, producer: int, count: int = 1, **how: Any) -> int:
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + count
        done = self.log.append(produced(sequence, count, producer_id=producer, transactional=True, **how))
        assert done.error == 0
        return done.base_offset

    def end(self, producer: int, kind: int) -> int:
        marker = Record(timestamp=NOW_MS, key=struct.pack(">hh", 0, kind), value=struct.pack(">hi", 0, 0))
        data = build_batch([marker], control=True, transactional=True, producer_id=producer, producer_epoch=0)
        done = self.log.append(data, origin=COORDINATOR)
        assert done.error == 0
        return done.base_offset

    def abort(self, producer: int, count: int = 1) -> int:
        self.put(producer, count)
        return self.end(producer, ABORT)


def index_files(log: PartitionLog) -> dict[int, list[Entry]]:
    """Every .txnindex of the directory, by its segment."""
    found = {}
    for path in sorted(Path(log.directory).glob("*.txnindex")):
        data = path.read_bytes()
        assert len(data) % 34 == 0, path
        rows = [struct.unpack_from(">hqqqq", data, at) for at in range(0, len(data), 34)]
        assert all(row[0] == 0 for row in rows)
        found[int(path.stem)] = [(row[1], row[2], row[3], row[4]) for row in rows]
    return found


def interleaved(log: PartitionLog) -> list[Entry]:
    """Aborted and committed transactions over several segments; what the indexes must hold, by marker."""
    writer = Writer(log)
    expected: list[Entry] = []
    writer.put(1)  # 0, open until 10
    log.append(batch())  # 1
    writer.put(2, 2)  # 2, 3
    expected.append((2, 2, writer.end(2, ABORT), 0))  # 4
    log.roll()
    writer.put(3)  # 5
    writer.end(3, COMMIT)  # 6
    writer.put(2)  # 7
    writer.put(4)  # 8, open to the end
    expected.append((2, 7, writer.end(2, ABORT), 0))  # 9
    expected.append((1, 0, writer.end(1, ABORT), 8))  # 10
    log.roll()
    writer.end(5, ABORT)  # 11, of a transaction that wrote nothing here
    writer.put(6)  # 12
    expected.append((6, 12, writer.end(6, ABORT), 8))  # 13
    assert expected[-1][2] == 13
    return expected


def test_an_abort_marker_writes_its_transaction_down_in_kafkas_bytes(open_log: OpenLog) -> None:
    log = open_log()
    writer = Writer(log)
    log.append(batch(3))
    assert writer.abort(77, 2) == 5
    path = Path(log.directory) / f"{0:020}.txnindex"
    assert path.read_bytes() == struct.pack(">hqqqq", 0, 77, 3, 5, 6)
    assert writer.abort(77) == 7
    assert index_files(log) == {0: [(77, 3, 5, 6), (77, 6, 7, 8)]}


def test_without_an_abort_there_is_no_file(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    writer = Writer(log)
    writer.put(1)
    writer.end(1, COMMIT)
    writer.end(2, ABORT)
    log.roll()
    log.close()
    assert list(tmp_path.rglob("*.txnindex")) == []
    assert open_log(clean=False).collect_aborted(0, 100) == []
    assert list(tmp_path.rglob("*.txnindex")) == []


def test_entries_lie_with_the_marker_and_tell_the_last_stable_offset(open_log: OpenLog) -> None:
    log = open_log()
    expected = interleaved(log)
    assert index_files(log) == {0: expected[:1], 5: expected[1:3], 11: expected[3:]}
    assert log.collect_aborted(0, 1 << 62) == [AbortedTransaction(*one) for one in expected]


def test_a_look_up_gives_what_overlaps_its_range(open_log: OpenLog) -> None:
    log = open_log()
    expected = interleaved(log)

    def found(start: int, bound: int) -> list[Entry]:
        return [tuple(one) for one in log.collect_aborted(start, bound)]  # type: ignore[misc]

    for start in range(15):
        for bound in range(start, 16):
            wanted = [one for one in expected if one[2] >= start and one[1] < bound]
            # An entry whose last stable offset reaches the bound ends the look-up: none later can begin before it.
            assert found(start, bound) == wanted, (start, bound)
    assert found(14, 1 << 62) == []
    assert found(1 << 40, 1 << 41) == []


@pytest.mark.parametrize("stopped", ["clean", "killed"])
def test_it_is_there_after_a_restart(open_log: OpenLog, stopped: str) -> None:
    log = open_log()
    expected = interleaved(log)
    files = index_files(log)
    if stopped == "clean":
        log.close()
    again = open_log(clean=stopped == "clean")
    assert (index_files(again), again.recovery_notes) == (files, [])
    assert again.collect_aborted(0, 100) == [AbortedTransaction(*one) for one in expected]
    writer = Writer(again)
    assert writer.abort(9) == 15
    assert index_files(again)[11] == [*expected[3:], (9, 14, 15, 8)]


DAMAGES = {
    "missing": None,
    "cut short": lambda data: data[:-1],
    "zeroed": lambda data: bytes(len(data)),
    "of another version": lambda data: b"\0\1" + data[2:],
    "longer": lambda data: data + data[-34:],
    "of another segment": lambda data: data[:18] + (999).to_bytes(8, "big") + data[26:],
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_index_is_made_anew(open_log: OpenLog, damage: str, clean: bool) -> None:
    log = open_log()
    expected = interleaved(log)
    files = index_files(log)
    log.close()
    for path in Path(log.directory).glob("*.txnindex"):
        change = DAMAGES[damage]
        if change is None:
            path.unlink()
        else:
            path.write_bytes(change(path.read_bytes()))
    again = open_log(clean=clean)
    if clean and damage == "missing":  # Kafka cannot tell either: no file means that nothing was aborted
        assert again.collect_aborted(0, 100) == []
        return
    assert again.collect_aborted(0, 100) == [AbortedTransaction(*one) for one in expected]
    assert index_files(again) == files
    if clean:
        assert "made anew" in again.recovery_notes[0].reason


def test_a_settled_segments_index_is_made_anew_from_an_older_snapshot(open_log: OpenLog) -> None:
    log = open_log()
    expected = interleaved(log)
    files = index_files(log)
    log.close()
    directory = Path(log.directory)
    (directory / f"{5:020}.snapshot").unlink()
    (directory / f"{5:020}.txnindex").write_bytes(b"\0" * 35)
    again = open_log()
    assert again.collect_aborted(0, 100) == [AbortedTransaction(*one) for one in expected]
    assert index_files(again) == files


def test_a_cut_takes_the_entries_behind_it(open_log: OpenLog) -> None:
    log = open_log()
    expected = interleaved(log)
    assert log.truncate_to(10) == 10
    assert index_files(log) == {0: expected[:1], 5: expected[1:2]}
    log.high_watermark = 10
    assert log.last_stable_offset == 0, "the first transaction is open again"
    assert Writer(log).end(1, ABORT) == 10
    assert index_files(log)[5] == expected[1:3]
    log.truncate_to(5)
    assert index_files(log) == {0: expected[:1]}


def test_retention_takes_the_index_with_its_segment(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    expected = interleaved(log)
    log.high_watermark = log.log_end_offset
    log.raise_start(6)
    assert log.retire() == [0]
    assert index_files(log) == {5: expected[1:3], 11: expected[3:]}
    assert [one.producer_id for one in log.collect_aborted(6, 100)] == [2, 1, 6]


def test_a_log_in_memory_has_the_look_up_too(clock: BrokerClock) -> None:
    log = PartitionLog.in_memory(clock, {})
    expected = interleaved(log)
    assert log.collect_aborted(0, 100) == [AbortedTransaction(*one) for one in expected]


def test_the_last_stable_offset_waits_for_the_markers_replication(open_log: OpenLog) -> None:
    log = open_log()
    writer = Writer(log)
    log.append(batch())
    writer.put(1)  # 1
    writer.put(2)  # 2
    log.append(batch())  # 3
    writer.end(1, ABORT)  # 4
    writer.end(2, COMMIT)  # 5
    for high_watermark, stable in [(0, 0), (1, 1), (3, 1), (4, 1), (5, 2), (6, 6)]:
        log.high_watermark = high_watermark
        assert log.last_stable_offset == stable, high_watermark
    log.append(batch())
    log.high_watermark = 7
    assert log.last_stable_offset == 7


def test_a_restart_finds_the_last_stable_offset_again(open_log: OpenLog) -> None:
    log = open_log()
    interleaved(log)
    log.high_watermark = log.log_end_offset
    assert log.last_stable_offset == 8
    log.close()
    for clean in (True, False):
        again = open_log(clean=clean)
        again.high_watermark = again.log_end_offset
        assert (again.last_stable_offset, again.log_end_offset) == (8, 14), clean
        again.close()


def test_a_marker_that_was_not_written_whole_leaves_its_transaction_open(open_log: OpenLog) -> None:
    log = open_log()
    Writer(log).abort(1)
    path = Path(log.directory) / f"{0:020}.log"
    os.truncate(path, path.stat().st_size - 1)
    again = open_log(clean=False)
    assert (offsets(again), again.collect_aborted(0, 100)) == ([0], [])
    assert index_files(again) == {}
    again.high_watermark = 1
    assert again.last_stable_offset == 0


@pytest.mark.parametrize("next_marker", [None, ABORT, COMMIT])
def test_without_the_segment_of_its_marker_a_transaction_lasts_to_the_producers_next_one(
    open_log: OpenLog, next_marker: int | None
) -> None:
    """As in Apache Kafka: the log has nothing else that tells where a transaction ends. Without any, it is open."""
    log = open_log()
    writer = Writer(log)
    writer.put(1)  # 0
    log.roll()
    writer.end(1, ABORT)  # 1
    writer.put(1)  # 2
    log.roll()
    log.append(batch())  # 3
    if next_marker is not None:
        writer.end(1, next_marker)  # 4
    log.flush()
    log.close(sync=False)
    (Path(log.directory) / f"{1:020}.log").unlink()  # its snapshots and its index stay
    for clean in (False, True):
        again = open_log(clean=clean)
        again.high_watermark = again.log_end_offset
        assert again.last_stable_offset == (0 if next_marker is None else 5), clean
        assert index_files(again) == ({3: [(1, 0, 4, 5)]} if next_marker == ABORT else {}), clean
        again.close()


def test_a_compaction_keeps_an_entry_while_it_meets_records_of_the_transaction(open_log: OpenLog) -> None:
    log = open_log({"cleanup.policy": "compact"})
    writer = Writer(log)
    log.append(batch())
    writer.abort(1, 2)
    writer.abort(2)
    log.append(batch())
    log.high_watermark = log.log_end_offset
    before = index_files(log)
    assert before == {0: [(1, 1, 3, 4), (2, 4, 5, 6)]}
    compact(log)
    assert index_files(log) == before, "its records were met, and went"
    assert [one.producer_id for one in log.collect_aborted(0, 100)] == [1, 2]
    # The last batches of both producers stayed, without records: they are still met.
    log.append(produced(2, producer_id=1))
    log.append(produced(1, producer_id=2))
    log.high_watermark = log.log_end_offset
    compact(log)
    compact(log)
    assert index_files(log) == {}
    assert log.collect_aborted(0, 100) == []
    assert [note.reason for note in open_log(clean=False).recovery_notes] == []


def test_a_compaction_takes_over_what_the_index_knows_from_before_the_start(open_log: OpenLog) -> None:
    log = open_log({"cleanup.policy": "compact"})
    writer = Writer(log)
    writer.put(1)  # 0
    writer.put(2)  # 1
    log.roll()
    writer.put(2)  # 2
    log.append(batch())  # 3
    writer.end(2, ABORT)  # 4
    writer.end(1, COMMIT)  # 5
    log.append(batch())
    log.high_watermark = log.log_end_offset
    log.raise_start(2)
    assert log.retire() == [0]
    assert index_files(log) == {2: [(2, 1, 4, 0)]}
    compact(log)
    assert index_files(log) == {2: [(2, 1, 4, 0)]}, "a scan from the start would say (2, 2, 4, 5)"


@pytest.mark.parametrize("stays", [True, False])
def test_a_kill_after_any_step_of_the_swap_leaves_the_index_of_the_segment_that_is_there(
    tmp_path: Path, clock: BrokerClock, stays: bool
) -> None:
    """Nothing is scanned by the next start: what the swap left is what is believed."""
    for steps in range(100):
        log = PartitionLog.open(tmp_path / f"topic-{steps}", clock, {"cleanup.policy": "compact"})
        writer = Writer(log)
        log.append(batch())
        writer.abort(1, 2)
        log.roll()
        writer.abort(2)
        log.append(produced(2, producer_id=1))
        log.append(produced(1, producer_id=2))
        log.high_watermark = log.log_end_offset
        full = [(1, 1, 3, 4), (2, 4, 5, 6)]
        if not stays:
            compact(log)
        log.roll()
        log.flush()
        directory = Path(log.directory)
        try:
            compact(log, roll=False, stop_after=steps)
        except Stopped:
            log.close(sync=False)
        else:
            assert steps > 8
            assert index_files(log) == ({0: full} if stays else {})
            return
        again = PartitionLog.open(directory, clock, {}, clean=False, recovery_point=log.log_end_offset)
        found = index_files(again)
        before, after = ({0: full[:1], 4: full[1:]}, {0: full}) if stays else ({0: full}, {})
        decided = steps >= (4 if stays else 3)  # every file of the new segment is called .swap
        assert found == (after if decided else before), (steps, sorted(path.name for path in directory.iterdir()))
        again.close()
    raise AssertionError("the swap has no end")
