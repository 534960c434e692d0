"""Which log is compacted when, and what becomes of it: the clock is held, rounds are taken by hand."""

import errno
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kbroker._core.clock import BrokerClock
from kbroker._core.log.partition_log import PartitionLog
from kbroker._core.record.records import Record, build_batch, iterate
from kbroker.config import Config
from kbroker.storage.checkpoints import CLEANER_OFFSETS, read_offsets
from kbroker.storage.cleanable import Cleanable, CleaningRules, look_at
from kbroker.storage.cleaner import CleanerSettings, LogCleaner, Throttle
from kbroker.storage.log_dirs import LogDirs

NOW_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(16))
COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.5"}
BROKER = Config({})


class Said:
    """Log lines, kept."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, Any]]] = []

    def info(self, event: str, **fields: Any) -> None:
        self.lines.append(("info", event, fields))

    def warning(self, event: str, **fields: Any) -> None:
        self.lines.append(("warning", event, fields))


class Room:
    """A data directory with a cleaner that runs only when it is told to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = BrokerClock()
        self.clock.hold(NOW_MS)
        self.said = Said()
        self.overrides: dict[str, dict[str, str]] = {}
        self.settings = CleanerSettings(1, 15_000, 1_000_000, 0.9, 65_536, 1e300)
        self.open()

    def open(self) -> None:
        self.dirs = LogDirs.open([self.path], 1, self.clock)
        self.cleaner = LogCleaner(self.dirs, self.clock, lambda: self.settings, self.config, self.said)

    def config(self, topic: str) -> dict[str, Any]:
        return BROKER.topic_config(self.overrides.get(topic, {}))

    def log(self, topic: str, **overrides: str) -> PartitionLog:
        changed = {name.replace("_", "."): value for name, value in overrides.items()}
        self.overrides[topic] = {**COMPACT, **changed}
        log = self.dirs.open_log(topic, 0, TOPIC_ID, self.config(topic))
        log.make()
        log.high_watermark = log.log_end_offset
        return log


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path / "data")


def put(log: PartitionLog, key: str, value: str | None, *, at: int = NOW_MS, roll: bool = True) -> None:
    record = Record(timestamp=at, key=key.encode(), value=None if value is None else value.encode())
    assert log.append(build_batch([record])).error == 0
    log.high_watermark = log.log_end_offset
    if roll:
        log.roll()


def offsets(log: PartitionLog) -> list[int]:
    data = b"".join(path.read_bytes() for path in sorted(Path(log.directory).glob("*.log")))
    return [record.offset for record in iterate(data)]


def rules(**changed: Any) -> CleaningRules:
    return CleaningRules(0.5, 0, 2**63 - 1, 0, 60_000)._replace(**changed)


def test_the_dirtiest_log_comes_first_and_one_that_is_clean_enough_not_at_all(room: Room) -> None:
    little, much = room.log("little"), room.log("much")
    for log in (little, much):
        for turn in range(4):
            put(log, "a", f"{turn}")
        assert room.cleaner.clean_dirtiest()
    put(little, "b", "1")
    for turn in range(9):
        put(much, "b", f"{turn}")
    room.said.lines.clear()
    assert room.cleaner.clean_dirtiest()
    assert [fields["topic"] for _, _, fields in room.said.lines] == ["much"]
    room.overrides["little"]["min.cleanable.dirty.ratio"] = "0.9"
    assert not room.cleaner.clean_dirtiest()
    assert offsets(little) == [3, 4]


def test_a_topic_that_is_only_deleted_is_never_compacted(room: Room) -> None:
    log = room.log("plain", cleanup_policy="delete")
    put(log, "a", "1")
    put(log, "a", "2")
    assert not room.cleaner.clean_dirtiest()
    assert offsets(log) == [0, 1]


def test_compact_and_delete_is_compacted(room: Room) -> None:
    log = room.log("both", cleanup_policy="compact,delete")
    put(log, "a", "1")
    put(log, "a", "2")
    assert room.cleaner.clean_dirtiest()
    assert offsets(log) == [1]


def test_how_far_a_log_is_compacted_survives_a_restart(room: Room) -> None:
    log = room.log("t")
    put(log, "a", "1")
    put(log, "a", "2")
    assert room.cleaner.clean_dirtiest()
    room.dirs.close(1)
    assert read_offsets(room.path / CLEANER_OFFSETS) == {("t", 0): 2}
    room.open()
    log = room.log("t")
    assert room.dirs.cleaned_to(("t", 0)) == 2
    assert not room.cleaner.clean_dirtiest()


def test_a_topic_made_again_begins_dirty(room: Room) -> None:
    log = room.log("t")
    put(log, "a", "1")
    put(log, "a", "2")
    assert room.cleaner.clean_dirtiest()
    room.dirs.delete_logs([("t", 0)])
    room.log("t")
    assert room.dirs.cleaned_to(("t", 0)) is None


def test_a_damaged_cleaner_checkpoint_costs_a_compaction_and_nothing_else(room: Room) -> None:
    room.log("t")
    room.dirs.close(1)
    (room.path / CLEANER_OFFSETS).write_text("nonsense\n")
    room.open()
    room.log("t")
    assert room.dirs.cleaned_to(("t", 0)) is None


def test_a_checkpoint_outside_the_log_is_not_believed(room: Room) -> None:
    log = room.log("t")
    put(log, "a", "1")
    put(log, "a", "2")
    assert look_at(log, 99, rules(), NOW_MS).first_dirty_offset == 0
    log.raise_start(1)
    log.retire()
    assert look_at(log, 0, rules(), NOW_MS).first_dirty_offset == 1
    assert look_at(log, 2, rules(), NOW_MS) == Cleanable(2, 2, log.segments()[0].size_bytes, 0, False)


def test_segments_younger_than_the_smallest_lag_wait(room: Room) -> None:
    log = room.log("t")
    put(log, "a", "1", at=NOW_MS - 5000)
    put(log, "a", "2", at=NOW_MS - 1000)
    put(log, "a", "3", at=NOW_MS - 9000)
    assert look_at(log, None, rules(min_lag_ms=2000), NOW_MS).first_uncleanable_offset == 1
    assert look_at(log, None, rules(min_lag_ms=2000), NOW_MS + 1000).first_uncleanable_offset == 3


def test_what_is_older_than_the_largest_lag_is_compacted_however_clean_the_log_is(room: Room) -> None:
    log = room.log("t", max_compaction_lag_ms="5000", min_cleanable_dirty_ratio="1")
    put(log, "a", "1")
    put(log, "a", "2")
    assert not room.cleaner.clean_dirtiest()
    room.clock.advance(5001)
    assert room.cleaner.clean_dirtiest()
    assert offsets(log) == [1]


def test_the_largest_lag_also_rolls_the_active_segment(room: Room) -> None:
    log = room.log("t", max_compaction_lag_ms="5000")
    put(log, "a", "1", at=NOW_MS, roll=False)
    put(log, "a", "2", at=NOW_MS + 5001, roll=False)
    assert len(log.segments()) == 2


def test_a_partition_that_retention_works_on_waits(room: Room) -> None:
    log = room.log("t")
    put(log, "a", "1")
    put(log, "a", "2")
    with room.dirs.turns.at(("t", 0)) as mine:
        assert mine
        assert not room.cleaner.clean_dirtiest()
        with room.dirs.turns.at(("t", 0)) as second:
            assert not second
    assert room.cleaner.clean_dirtiest()


def test_a_log_that_cannot_be_compacted_is_set_aside_and_the_others_go_on(room: Room) -> None:
    bad, good = room.log("bad"), room.log("good")
    for log in (bad, good):
        put(log, "a", "1")
        put(log, "a", "2")
    path = Path(bad.directory) / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-2] ^= 255
    path.write_bytes(data)
    for _ in range(3):
        room.cleaner.clean_dirtiest()
    assert room.cleaner.uncleanable == [("bad", 0)]
    told = [(event, fields) for level, event, fields in room.said.lines if level == "warning"]
    assert len(told) == 1
    assert told[0][0] == "a partition cannot be compacted and is set aside"
    assert "checksum" in told[0][1]["reason"]
    assert offsets(good) == [1]


def test_a_full_disk_is_tried_again(room: Room) -> None:
    log = room.log("t")
    room.cleaner._on_failure(("t", 0), log, OSError(errno.ENOSPC, "No space left on device"))
    assert room.cleaner.uncleanable == []
    assert room.said.lines[0][1] == "no room for compaction"


def test_replaced_files_go_when_their_delay_is_over(room: Room) -> None:
    log = room.log("t", file_delete_delay_ms="0")
    put(log, "a", "1")
    put(log, "a", "2")
    assert room.cleaner.clean_dirtiest()
    assert list(Path(log.directory).glob("*.deleted"))
    room.cleaner._remove_old_files()
    room.dirs.remover.files([]).result()  # behind the others
    assert not list(Path(log.directory).glob("*.deleted"))


def test_the_threads_compact_by_themselves_and_stop_at_once(room: Room) -> None:
    log = room.log("t")
    put(log, "a", "1")
    put(log, "a", "2")
    room.settings = room.settings._replace(threads=2)
    room.cleaner.start()
    deadline = time.monotonic() + 20
    while not any(event == "compacted" for _, event, _ in room.said.lines):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    began = time.monotonic()
    room.cleaner.stop()
    assert time.monotonic() - began < 5
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("kbroker-cleaner")]


def test_a_throttled_compaction_stops_at_once(room: Room) -> None:
    log = room.log("t")
    for turn in range(4):
        put(log, "a", "v" * 2000 + str(turn))
    room.settings = room.settings._replace(bytes_per_second=10.0)
    room.cleaner.start()
    time.sleep(0.1)
    began = time.monotonic()
    room.cleaner.stop()
    assert time.monotonic() - began < 5
    assert not list(Path(log.directory).glob("*.cleaned"))
    assert offsets(log) == [0, 1, 2, 3]


def test_the_throttle_keeps_to_its_rate() -> None:
    throttle, never = Throttle(), threading.Event()
    began = time.monotonic()
    for _ in range(10):
        throttle.wait(1000, 100_000.0, never)
    assert 0.09 <= time.monotonic() - began < 2
