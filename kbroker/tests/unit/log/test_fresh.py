"""A log whose files are not made yet."""

import errno
from pathlib import Path

import pytest

from kbroker._core.clock import BrokerClock
from kbroker._core.errors import Err
from kbroker._core.log.partition_log import PartitionLog
from kbroker.tests.unit.log.batches import batch, offsets, produced
from kbroker.tests.unit.log.conftest import OpenLog

TOPIC_ID = bytes(range(16))


def test_nothing_is_on_disk_until_it_is_made(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(topic_id=TOPIC_ID, make=False)
    assert not log.made
    assert not (tmp_path / "topic-0").exists()
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point, log.size_bytes) == (0, 0, 0, 0)
    assert log.read(0) == b""
    assert log.offset_for_timestamp(0) is None
    assert log.offset_of_max_timestamp() is None
    log.flush()
    log.roll()
    assert not (tmp_path / "topic-0").exists()
    log.make()
    log.make()
    assert log.made
    assert sorted(path.name for path in (tmp_path / "topic-0").iterdir()) == [
        "00000000000000000000.log",
        "partition.metadata",
    ]


def test_it_becomes_what_a_log_made_at_once_is(tmp_path: Path, clock: BrokerClock) -> None:
    for name, make in (("early-0", True), ("late-0", False)):
        log = PartitionLog.open(tmp_path / name, clock, {}, topic_id=TOPIC_ID, make=make)
        log.assign_epoch(3)
        assert log.append(batch(2)).base_offset == 0
        log.close()
    early, late = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("early-0", "late-0")
    )
    assert early == late


def test_the_first_append_makes_it(open_log: OpenLog) -> None:
    log = open_log(topic_id=TOPIC_ID, make=False)
    assert log.append(batch(3)).error == 0
    assert log.made
    log.close()
    again = open_log(topic_id=TOPIC_ID)
    assert offsets(again) == [0, 1, 2]


@pytest.mark.parametrize("sync", [True, False])
def test_a_close_does_not_make_it(open_log: OpenLog, tmp_path: Path, sync: bool) -> None:
    log = open_log(topic_id=TOPIC_ID, make=False)
    log.assign_epoch(3)
    log.close(sync=sync)
    log.make()
    assert not log.made
    assert list(tmp_path.iterdir()) == []
    assert open_log(topic_id=TOPIC_ID).recovery_notes == []


def test_what_cannot_be_made_is_offline(tmp_path: Path, clock: BrokerClock) -> None:
    log = PartitionLog.open(tmp_path / "missing" / "topic-0", clock, {}, topic_id=TOPIC_ID, make=False)
    with pytest.raises(FileNotFoundError):
        log.make()
    assert log.offline_errno == errno.ENOENT
    assert log.append(batch()).error == Err.KAFKA_STORAGE_ERROR


def test_an_append_that_cannot_make_it_is_a_storage_error(tmp_path: Path, clock: BrokerClock) -> None:
    log = PartitionLog.open(tmp_path / "missing" / "topic-0", clock, {}, topic_id=TOPIC_ID, make=False)
    assert log.append(batch()).error == Err.KAFKA_STORAGE_ERROR
    assert log.log_end_offset == 0


def test_it_remembers_producers_from_the_first_batch_on(open_log: OpenLog) -> None:
    log = open_log(topic_id=TOPIC_ID, make=False)
    old = produced(0, timestamp=1)  # by its own clock long expired, but nothing was swept since
    assert [log.append(old).base_offset for _ in range(2)] == [0, 0]
