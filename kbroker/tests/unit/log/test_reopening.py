"""Opening again: after a clean stop, after a crash, after damage."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from kbroker._core.clock import BrokerClock
from kbroker._core.log.open_files import FileBudget
from kbroker._core.log.partition_log import DamagedLogError, LogError, PartitionLog
from kbroker._core.record.records import Record, build_batch, iterate
from kbroker.tests.unit.log.batches import batch, offsets, produced, read_all
from kbroker.tests.unit.log.conftest import OpenLog

SMALL = {"segment.bytes": 1000, "index.interval.bytes": 100}


def fill(log: PartitionLog, count: int) -> None:
    for _ in range(count):
        assert log.append(batch(2)).error == 0


def files(tmp_path: Path, ending: str) -> list[Path]:
    return sorted((tmp_path / "topic-0").glob(f"*{ending}"))


def test_a_clean_log_goes_on_where_it_stopped(open_log: OpenLog) -> None:
    log = open_log(SMALL)
    fill(log, 40)
    log.close()
    again = open_log(SMALL)
    assert (again.log_end_offset, again.recovery_point, again.recovery_notes) == (80, 80, [])
    fill(again, 40)
    assert offsets(again) == list(range(160))
    assert offsets(again, 33, 300) == list(range(33, 160))


def test_a_clean_log_is_byte_for_byte_what_an_unbroken_one_would_be(tmp_path: Path, clock: BrokerClock) -> None:
    broken, whole = tmp_path / "broken-0", tmp_path / "whole-0"
    log = PartitionLog.open(whole, clock, SMALL)
    fill(log, 60)
    log.close()
    for _ in range(6):
        log = PartitionLog.open(broken, clock, SMALL)
        fill(log, 10)
        log.close()
    for path in whole.iterdir():
        if path.suffix in {".log", ".index", ".snapshot"}:
            assert (broken / path.name).read_bytes() == path.read_bytes(), path.name


def test_a_crashed_log_keeps_every_whole_batch(open_log: OpenLog) -> None:
    log = open_log(SMALL)
    fill(log, 40)
    again = open_log(SMALL, clean=False)
    assert (again.log_end_offset, again.recovery_notes, again.recovery_point) == (80, [], 0)
    assert offsets(again) == list(range(80))


@pytest.mark.parametrize("torn", [1, 30, 61, 70, -1])
def test_a_torn_tail_is_cut_and_told(open_log: OpenLog, tmp_path: Path, torn: int) -> None:
    log = open_log()
    fill(log, 5)
    size = len(batch(2))
    path = files(tmp_path, ".log")[0]
    kept = 4 * size + (torn if torn > 0 else size + torn)
    os.truncate(path, kept)
    again = open_log(clean=False)
    assert offsets(again) == list(range(8))
    (note,) = again.recovery_notes
    assert (note.offset, note.bytes, note.segment_base_offset) == (8, kept - 4 * size, 0)
    assert "cut short" in note.reason
    fill(again, 1)
    assert offsets(again) == list(range(10))


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 4
    path.write_bytes(data)


def test_a_flipped_bit_in_the_last_segment_cuts_the_log_there(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(SMALL)
    fill(log, 40)
    base, size = log.segments()[-1].base_offset, len(batch(2))
    flip(files(tmp_path, ".log")[-1], 2 * size + 70)
    again = open_log(SMALL, clean=False)
    assert again.log_end_offset == base + 4
    assert offsets(again) == list(range(base + 4))
    (note,) = again.recovery_notes
    assert note.reason == "a batch does not match its checksum"
    assert (note.segment_base_offset, note.offset, note.position) == (base, base + 4, 2 * size)
    fill(again, 40)
    assert offsets(again) == list(range(base + 84))


def test_bad_bytes_with_records_behind_them_keep_the_log_shut_and_as_it_is(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(SMALL)
    fill(log, 40)
    base, size = log.segments()[1].base_offset, len(batch(2))
    second, *later = files(tmp_path, ".log")[1:]
    flip(second, 2 * size + 70)
    before = {path.name: path.read_bytes() for path in files(tmp_path, ".log")}
    with pytest.raises(DamagedLogError) as damage:
        open_log(SMALL, clean=False)
    sentence = str(damage.value)
    assert damage.value.code == 56  # KAFKA_STORAGE_ERROR
    assert sentence.startswith(f"{second} is damaged at byte {2 * size}, offset {base + 4}: a batch does not match")
    assert later[0].name in sentence
    assert {path.name: path.read_bytes() for path in files(tmp_path, ".log")} == before
    with pytest.raises(DamagedLogError, match="is damaged at byte"):
        open_log(SMALL, clean=False)  # a second start tells the same
    for path in later:  # what the sentence advises
        path.rename(tmp_path / path.name)
    again = open_log(SMALL, clean=False)
    assert offsets(again) == list(range(base + 4))
    assert (again.recovery_notes[0].offset, len(again.segments())) == (base + 4, 2)


def test_a_segment_that_reaches_into_the_next_one_is_damage(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(SMALL)
    fill(log, 40)
    first, second = files(tmp_path, ".log")[:2]
    first.write_bytes(first.read_bytes() + second.read_bytes()[: len(batch(2))])
    with pytest.raises(DamagedLogError, match="the next segment begins before this one ends"):
        open_log(SMALL, clean=False)


def test_only_empty_segments_behind_bad_bytes_are_no_reason_to_stay_shut(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(SMALL)
    fill(log, 5)
    log.roll()
    first, second = files(tmp_path, ".log")
    assert second.stat().st_size == 0
    os.truncate(first, first.stat().st_size - 1)
    again = open_log(SMALL, clean=False)
    assert (offsets(again), len(again.segments())) == (list(range(8)), 1)
    assert files(tmp_path, ".log") == [first]


def test_what_was_rolled_is_synced_and_not_scanned_again(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(SMALL)
    fill(log, 40)
    base = log.segments()[-1].base_offset
    assert log.flush_sealed() == log.recovery_point == base
    flip(files(tmp_path, ".log")[0], 70)  # would be found by a scan
    again = open_log(SMALL, clean=False, recovery_point=base)
    assert (again.log_end_offset, again.recovery_notes) == (80, [])
    again.close()
    assert again.flush_sealed() == 80, "of a closed log nothing is asked"


def test_snapshots_that_went_missing_are_made_anew_by_a_scan(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(SMALL)
    for sequence in range(20):
        assert log.append(produced(sequence)).error == 0
    known = log.producers()
    snapshots = files(tmp_path, ".snapshot")
    content = [path.read_bytes() for path in snapshots]
    for path in snapshots[1:]:
        path.unlink()
    snapshots[0].write_bytes(b"\0" * 56)
    again = open_log(SMALL, clean=False)
    assert again.producers() == known
    assert [path.read_bytes() for path in files(tmp_path, ".snapshot")] == content


def test_segments_below_the_recovery_point_are_not_scanned(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(SMALL)
    fill(log, 20)
    log.roll()
    assert log.flush() == 40
    fill(log, 20)
    first = files(tmp_path, ".log")[0]
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.write_bytes(data)
    again = open_log(SMALL, clean=False, recovery_point=40)
    assert (again.log_end_offset, again.recovery_notes) == (80, [])


def test_a_settled_segment_that_lost_its_end_costs_its_own_offsets_alone(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(SMALL)
    fill(log, 40)
    first, second = (one.base_offset for one in log.segments()[1:3])
    assert log.flush_sealed() > second
    path = files(tmp_path, ".log")[1]
    os.truncate(path, path.stat().st_size - 2)
    again = open_log(SMALL, clean=False, recovery_point=second)
    assert (again.log_end_offset, again.recovery_notes) == (80, [])
    for lost in (second - 2, second - 1):
        with pytest.raises(LogError, match="56"):
            again.read(lost, 1000)
    for kept in (0, first, second - 4, second, 78):
        assert iterate(again.read(kept, 1))[0].offset == kept


@pytest.mark.parametrize("ending", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "odd", "long", "backwards"])
def test_a_damaged_index_is_made_anew(open_log: OpenLog, tmp_path: Path, ending: str, damage: str) -> None:
    log = open_log(SMALL)
    fill(log, 40)
    times = [log.offset_for_timestamp(record.timestamp) for record in read_all(log)[:3]]
    log.close()
    for path in files(tmp_path, ending):
        data = path.read_bytes()
        if damage == "missing":
            path.unlink()
        elif damage == "odd":
            path.write_bytes(data + b"x")
        elif damage == "long":
            path.write_bytes(data + data[-12:] * 7)
        else:
            path.write_bytes(b"\x7f" * 24 + data[:24])
    again = open_log(SMALL)
    assert again.log_end_offset == 80
    assert offsets(again, 0, 250) == list(range(80))
    if damage != "long":
        assert [again.offset_for_timestamp(record.timestamp) for record in read_all(again)[:3]] == times


def test_an_index_that_ends_in_zeros_is_read_up_to_them(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log({"index.interval.bytes": 100})
    fill(log, 40)
    log.close()
    index, times = files(tmp_path, "0.index")[0], files(tmp_path, "0.timeindex")[0]
    before = index.read_bytes(), times.read_bytes()
    os.truncate(index, 10 << 20)
    os.truncate(times, 10485756)
    again = open_log({"index.interval.bytes": 100})
    assert again.recovery_notes == []
    assert offsets(again, 17, 200) == list(range(17, 80))
    again.close()
    assert (index.read_bytes(), times.read_bytes()) == before


def test_a_file_too_large_to_be_a_segment_is_refused(open_log: OpenLog, tmp_path: Path) -> None:
    (tmp_path / "topic-0").mkdir()
    (tmp_path / "topic-0" / f"{0:020d}.log").touch()
    os.truncate(tmp_path / "topic-0" / f"{0:020d}.log", 1 << 31)
    with pytest.raises(OSError, match="too large"):
        open_log(clean=False)


def test_leftovers_of_deletion_and_compaction_go(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    fill(log, 2)
    log.close()
    directory = tmp_path / "topic-0"
    for name in ("5.log.deleted", f"{7:020d}.log.cleaned", f"{9:020d}.index", "leader-epoch-checkpoint.tmp"):
        (directory / name).write_bytes(b"left")
    again = open_log()
    assert again.log_end_offset == 4
    left = {path.name for path in directory.iterdir()}
    assert not {name for name in left if name.endswith((".deleted", ".cleaned", ".tmp"))}
    assert f"{9:020d}.index" not in left


def test_a_cut_holds_over_a_restart(open_log: OpenLog) -> None:
    log = open_log(SMALL)
    fill(log, 40)
    log.close()
    log = open_log(SMALL)
    assert log.truncate_to(33) == 32
    assert log.truncate_to(50) == 32
    fill(log, 2)
    assert offsets(log) == list(range(36))
    log.close()
    assert offsets(open_log(SMALL)) == list(range(36))


def test_a_cut_before_the_first_segment_begins_anew_there(open_log: OpenLog) -> None:
    log = open_log(SMALL)
    fill(log, 40)
    log.high_watermark = 80
    log.raise_start(60)
    log.retire()
    assert log.truncate_to(7) == 7
    assert (log.log_start_offset, log.high_watermark) == (7, 7)
    fill(log, 1)
    assert offsets(log) == [7, 8]


def test_the_beginning_goes_segment_by_segment(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(SMALL)
    fill(log, 40)
    with pytest.raises(ValueError, match="past the high watermark"):
        log.raise_start(1)
    log.high_watermark = 80
    bases = [facts.base_offset for facts in log.segments()]
    assert log.raise_start(bases[2] + 1) == bases[2] + 1
    assert log.retire() == bases[:2]
    assert log.log_start_offset == bases[2] + 1
    with pytest.raises(LogError):
        log.read(bases[2])
    assert offsets(log) == list(range(bases[2] + 1, 80))
    assert len(files(tmp_path, ".log")) == len(bases) - 2
    log.close()
    again = open_log(SMALL, log_start_offset=bases[2] + 1)
    assert offsets(again) == list(range(bases[2] + 1, 80))


def test_a_log_that_ends_before_its_start_begins_anew(open_log: OpenLog) -> None:
    log = open_log()
    fill(log, 3)
    log.close()
    again = open_log(log_start_offset=50)
    assert (again.log_start_offset, again.log_end_offset) == (50, 50)
    assert again.recovery_notes[0].reason == "the log ends before its start offset"
    fill(again, 1)
    assert offsets(again) == [50, 51]


def test_the_topic_id_stands_in_the_directory(open_log: OpenLog, tmp_path: Path) -> None:
    topic_id = bytes(range(16))
    open_log(topic_id=topic_id).close()
    assert (tmp_path / "topic-0" / "partition.metadata").read_bytes() == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert open_log().topic_id == topic_id
    with pytest.raises(ValueError, match="belongs to topic id AAECAwQFBgcICQoLDA0ODw"):
        open_log(topic_id=bytes(16))


def test_a_directory_that_cannot_be_made_is_an_oserror(clock: BrokerClock, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="file") as refused:
        PartitionLog.open(tmp_path / "file" / "topic-0", clock, {})
    assert refused.value.errno == errno.ENOTDIR


def test_open_files_stay_within_their_budget(tmp_path: Path, clock: BrokerClock) -> None:
    budget = FileBudget(8)
    logs = [PartitionLog.open(tmp_path / f"t-{i}", clock, SMALL, files=budget) for i in range(20)]
    for _ in range(30):
        for log in logs:
            assert log.append(batch(2)).error == 0
    assert budget.open_segments <= budget.limit
    open_now = sum(facts.open for log in logs for facts in log.segments())
    assert open_now <= budget.limit
    assert [offsets(log, 0, 300) for log in logs] == [list(range(60))] * 20
    for log in logs:
        log.close()
    assert budget.open_segments == 0
    assert [offsets(PartitionLog.open(tmp_path / f"t-{i}", clock, SMALL, files=budget)) for i in (0, 19)] == [
        list(range(60))
    ] * 2


def test_a_process_that_runs_out_of_descriptors_closes_what_rests(tmp_path: Path, clock: BrokerClock) -> None:
    resource = pytest.importorskip("resource")
    logs = [
        PartitionLog.open(tmp_path / f"t-{i}", clock, SMALL, files=budget)
        for budget in [FileBudget(500)]
        for i in range(30)
    ]
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(fd) for fd in os.listdir("/proc/self/fd"))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 12, before[1]))
        for _ in range(20):
            for log in logs:
                assert log.append(batch(2)).error == 0
        assert all(offsets(log, 0, 300) == list(range(40)) for log in logs)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    for log in logs:
        log.close(sync=False)


def test_a_log_closed_for_deletion_writes_nothing(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log({"preallocate": "true", "segment.bytes": 1 << 20})
    log.append(produced(0), leader_epoch=5)
    before = {path.name: path.stat() for path in (tmp_path / "topic-0").iterdir()}
    log.close(sync=False)
    assert {path.name: path.stat() for path in (tmp_path / "topic-0").iterdir()} == before


def test_a_log_whose_directory_vanished_can_be_closed_for_deletion(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    fill(log, 3)
    shutil.rmtree(tmp_path / "topic-0")
    log.close(sync=False)
    assert log.closed


def test_preallocated_room_is_given_back_when_the_log_is_closed(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log({"preallocate": "true", "segment.bytes": 1 << 20})
    fill(log, 3)
    (path,) = files(tmp_path, ".log")
    assert path.stat().st_size == log.size_bytes
    log.close()
    assert path.stat().st_blocks * 512 <= 65536
    assert offsets(open_log()) == list(range(6))


FILLING = {"segment.bytes": 64 << 20, "max.message.bytes": 4 << 20}


def fill_ten_mebibytes(log: PartitionLog) -> None:
    for _ in range(10):
        assert log.append(build_batch([Record(value=bytes(1 << 20))])).error == 0


def reserved_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512 - path.stat().st_size


@pytest.mark.linux_calls  # fallocate
def test_a_segment_that_fills_has_room_ahead_and_gives_it_back(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(FILLING)
    fill_ten_mebibytes(log)
    (first,) = files(tmp_path, ".log")
    assert first.stat().st_size == log.size_bytes
    assert reserved_bytes(first) >= 4 << 20
    log.roll()
    assert reserved_bytes(first) <= 65536
    fill_ten_mebibytes(log)
    log.close()
    assert all(reserved_bytes(path) <= 65536 for path in files(tmp_path, ".log"))


@pytest.mark.linux_calls  # fallocate
def test_room_left_ahead_by_a_killed_broker_is_given_back(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(FILLING)
    fill_ten_mebibytes(log)
    (path,) = files(tmp_path, ".log")
    assert reserved_bytes(path) >= 4 << 20
    again = open_log(FILLING, clean=False)
    assert again.log_end_offset == 10
    again.close()
    assert reserved_bytes(path) <= 65536


def test_descriptors_close_on_exec(open_log: OpenLog) -> None:
    log = open_log()
    fill(log, 1)
    log.flush()
    ours = [
        int(fd)
        for fd in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{fd}") and log.directory in os.readlink(f"/proc/self/fd/{fd}")
    ]
    assert len(ours) == 3
    assert not any(os.get_inheritable(fd) for fd in ours)


def test_flush_moves_the_recovery_point_to_the_end(open_log: OpenLog) -> None:
    log = open_log(SMALL)
    fill(log, 30)
    assert log.recovery_point == 0
    assert log.flush() == log.recovery_point == 60
    assert log.flush() == 60


def test_flush_messages_syncs_with_the_append(open_log: OpenLog) -> None:
    log = open_log({"flush.messages": 4})
    log.append(batch(2))
    assert log.recovery_point == 0
    log.append(batch(2))
    assert log.recovery_point == 4


def test_a_log_whose_directory_vanished_goes_offline_when_it_rolls(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    fill(log, 1)
    shutil.rmtree(tmp_path / "topic-0")
    with pytest.raises(OSError, match="No such file"):
        log.roll()
    assert log.offline_errno == errno.ENOENT
    assert log.append(batch()).error == 56


def test_settings_change_while_the_log_is_open(open_log: OpenLog) -> None:
    log = open_log()
    fill(log, 2)
    log.configure({"segment.bytes": 500})
    fill(log, 20)
    assert len(log.segments()) > 3
    with pytest.raises(ValueError, match=r"segment\.bytes"):
        log.configure({"segment.bytes": 3})
    with pytest.raises(ValueError, match=r"compression\.type"):
        log.configure({"compression.type": "brotli"})


def test_the_first_append_after_a_restart_counts_as_an_open_file(tmp_path: Path, clock: BrokerClock) -> None:
    for i in range(30):
        log = PartitionLog.open(tmp_path / f"t-{i}", clock, {})
        log.append(batch())
        log.close()
    budget = FileBudget(8)
    logs = [PartitionLog.open(tmp_path / f"t-{i}", clock, {}, files=budget) for i in range(30)]
    for log in logs:
        assert log.append(batch()).error == 0
    assert sum(log.segments()[-1].open for log in logs) <= 8
    assert [offsets(log) for log in logs] == [[0, 1]] * 30
