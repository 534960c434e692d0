"""A log whose place another one has taken is nobody's trouble any more."""

from __future__ import annotations

import shutil
from pathlib import Path

from kbroker._core.clock import BrokerClock
from kbroker._core.log.health import Health
from kbroker._core.log.partition_log import PartitionLog
from kbroker._core.moves import LogMove
from kbroker._core.partitions import PartitionHandle
from kbroker._core.record.records import Record, build_batch

BATCH = build_batch([Record(timestamp=1, value=b"x")])


def test_whoever_still_syncs_the_old_files_does_not_fail_their_directory(tmp_path: Path) -> None:
    """A round of flushes may have the log in hand when it is exchanged, and come to it when its files are gone."""
    clock, healths = BrokerClock(), (Health(), Health())
    source = PartitionLog.open(tmp_path / "a", clock, {}, health=healths[0])
    copy = PartitionLog.open(tmp_path / "b", clock, {}, health=healths[1])
    handle = PartitionHandle(0, source)
    handle.lead(1, 0, 1, 1)
    assert handle.produce(BATCH).error == 0
    source.roll()
    assert handle.produce(BATCH).error == 0
    move = LogMove(source, copy)
    while move.step():
        pass
    assert move.swap(handle, str(tmp_path / "a.gone"))
    shutil.rmtree(tmp_path / "a.gone")
    source.flush_sealed()
    source.flush()
    assert [one.failure for one in healths] == [None, None]
    assert handle.produce(BATCH).error == 0
    assert copy.flush() == 3


def test_a_transaction_that_asked_the_old_log_begins_in_the_new_one(tmp_path: Path) -> None:
    clock, verifying = BrokerClock(), {"transaction.partition.verification.enable": True}
    source = PartitionLog.open(tmp_path / "a", clock, verifying)
    copy = PartitionLog.open(tmp_path / "b", clock, verifying)
    handle = PartitionHandle(0, source)
    handle.lead(1, 0, 1, 1)
    assert handle.produce(BATCH).error == 0
    guard = handle.begin_verification(7, 0, 0, adds=True)
    move = LogMove(source, copy)
    while move.step():
        pass
    assert move.swap(handle, str(tmp_path / "a.gone"))
    first = build_batch(
        [Record(timestamp=1, value=b"x")], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    assert handle.produce(first, -1, None, guard).error == 0
