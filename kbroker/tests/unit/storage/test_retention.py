"""What a broker's directories keep of logs that age: retired segments, checkpoints, topics of the same name."""

from pathlib import Path

from kbroker._core.clock import BrokerClock
from kbroker._core.log.partition_log import PartitionLog
from kbroker._core.record.records import Record, build_batch
from kbroker.storage import retention
from kbroker.storage.checkpoints import LOG_START_OFFSETS, read_offsets
from kbroker.storage.identity import random_uuid
from kbroker.storage.log_dirs import LogDirs
from kbroker.storage.strays import sort_out

NOW_MS = 1_700_000_000_000
OLD = {"retention.ms": 1000, "file.delete.delay.ms": 7}


def open_dirs(path: Path) -> LogDirs:
    clock = BrokerClock()
    clock.hold(NOW_MS)
    return LogDirs.open([path], 1, clock)


def fill(log: PartitionLog, *ages_ms: int) -> None:
    for age_ms in ages_ms:
        log.roll()
        assert log.append(build_batch([Record(timestamp=NOW_MS - age_ms, value=b"x")])).error == 0
    log.high_watermark = log.log_end_offset


def test_retired_files_are_those_that_were_renamed_and_can_be_removed(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path)
    fill(dirs.open_log("t", 0, random_uuid(), dict(OLD)), 5000, 4000, 0)
    ((went,), failed) = retention.retire(dirs.logs, [("t", 0), ("gone", 3)], dirs.turns)
    assert (went.key, went.base_offsets, went.delay_ms, went.log_start_offset) == (("t", 0), [0, 1], 7, 2)
    assert failed == {}
    renamed = set((tmp_path / "t-0").glob("*.deleted"))
    assert renamed
    assert renamed <= set(went.files())
    dirs.remover.files(went.files()).result()
    dirs.remover.files(went.files()).result()
    assert not list((tmp_path / "t-0").glob("*.deleted"))
    assert dirs.close(1) == []


def test_a_log_that_is_being_compacted_is_asked_the_next_time(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path)
    fill(dirs.open_log("t", 0, random_uuid(), dict(OLD)), 5000, 0)
    with dirs.turns.at(("t", 0)):
        assert retention.retire(dirs.logs, [("t", 0)], dirs.turns) == ([], {})
    ((went,), _) = retention.retire(dirs.logs, [("t", 0)], dirs.turns)
    assert went.base_offsets == [0]
    dirs.close(1)


def test_one_log_that_fails_does_not_keep_the_others(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path)
    for partition in range(3):
        fill(dirs.open_log("t", partition, random_uuid(), dict(OLD)), 5000, 0)
    (tmp_path / "t-1" / f"{0:020d}.log.deleted").mkdir()
    went, failed = retention.retire(dirs.logs, list(dirs.logs), dirs.turns)
    assert [one.key[1] for one in went] == [0, 2]
    assert list(failed) == [("t", 1)]
    dirs.close(1)


def test_the_checkpoint_tells_where_logs_start_and_holds_after_a_crash(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path)
    ids = [random_uuid(), random_uuid()]
    for partition, topic_id in enumerate(ids):
        fill(dirs.open_log("t", partition, topic_id, {}), 0, 0, 0)
    dirs.logs[("t", 1)].raise_start(2)
    dirs.checkpoint((LOG_START_OFFSETS,))
    assert read_offsets(tmp_path / LOG_START_OFFSETS) == {("t", 1): 2}
    assert not (tmp_path / "recovery-point-offset-checkpoint").exists()
    dirs.release()
    again = open_dirs(tmp_path)
    assert [again.open_log("t", p, topic_id, {}).log_start_offset for p, topic_id in enumerate(ids)] == [0, 2]
    again.release()


def test_a_new_topic_does_not_begin_where_a_deleted_one_was_trimmed(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path)
    fill(dirs.open_log("t", 0, random_uuid(), {}), 0, 0)
    dirs.logs[("t", 0)].raise_start(2)
    dirs.checkpoint()
    dirs.delete_logs([("t", 0)])
    topic_id = random_uuid()
    fill(dirs.open_log("t", 0, topic_id, {}), 0)
    dirs.release()  # a crash, long before the next checkpoint
    again = open_dirs(tmp_path)
    log = again.open_log("t", 0, topic_id, {})
    assert (log.log_start_offset, log.log_end_offset, log.recovery_notes) == (0, 1, [])
    again.release()


def test_nor_after_a_crash_between_the_deletion_and_its_checkpoint(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path)
    fill(dirs.open_log("t", 0, random_uuid(), {}), 0, 0)
    dirs.logs[("t", 0)].raise_start(2)
    dirs.checkpoint()
    dirs.release()
    again = open_dirs(tmp_path)
    assert sort_out(again, {}, tuple).moved != []
    log = again.open_log("t", 0, random_uuid(), {})
    assert log.log_start_offset == 0
    again.release()
