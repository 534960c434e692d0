"""Idempotent producers: order, retries, epochs, expiry, and their snapshots."""

import struct
from pathlib import Path

from kbroker._core.clock import BrokerClock
from kbroker._core.log.partition_log import PartitionLog
from kbroker._core.record.crc32c import checksum
from kbroker._core.record.records import Record, build_batch
from kbroker.tests.unit.log.batches import batch, offsets, produced
from kbroker.tests.unit.log.conftest import NOW_MS, OpenLog

OUT_OF_ORDER, INVALID_EPOCH = 45, 47
COORDINATOR = 1
DAY_MS = 86_400_000
LAST_SEQUENCE = 2_147_483_647


def marker(producer_id: int, epoch: int, *, commit: bool = True, coordinator_epoch: int = 9) -> bytes:
    record = Record(
        timestamp=NOW_MS, key=struct.pack(">hh", 0, int(commit)), value=struct.pack(">hi", 0, coordinator_epoch)
    )
    return build_batch([record], producer_id=producer_id, producer_epoch=epoch, control=True, transactional=True)


def test_a_producer_nobody_knows_may_begin_anywhere(open_log: OpenLog) -> None:
    assert open_log().append(produced(7)).error == 0


def test_sequences_must_follow_one_another(open_log: OpenLog) -> None:
    log = open_log()
    assert log.append(produced(0, 3)).error == 0
    assert log.append(produced(3, 2)).error == 0
    assert log.append(produced(6)).error == OUT_OF_ORDER
    assert log.append(produced(4)).error == OUT_OF_ORDER
    assert log.append(produced(5)).error == 0
    assert log.log_end_offset == 6


def test_a_retry_of_the_last_five_batches_gets_the_first_answer(open_log: OpenLog) -> None:
    log = open_log()
    for sequence in range(0, 12, 2):
        log.append(produced(sequence, 2))
    for sequence in range(2, 12, 2):
        answer = log.append(produced(sequence, 2))
        assert (answer.error, answer.duplicate, answer.base_offset) == (0, True, sequence)
        assert answer.log_append_time_ms == NOW_MS + 1
    assert log.append(produced(0, 2)).error == OUT_OF_ORDER
    assert log.append(produced(10, 1)).error == OUT_OF_ORDER
    assert log.log_end_offset == 12


def test_after_the_last_sequence_comes_zero(open_log: OpenLog) -> None:
    log = open_log()
    assert log.append(produced(LAST_SEQUENCE - 1, 2)).error == 0
    assert log.append(produced(0)).error == 0
    log = open_log()
    assert log.append(produced(LAST_SEQUENCE, 3, producer_id=8)).error == 0
    assert log.append(produced(2, producer_id=8)).error == 0
    assert log.append(produced(LAST_SEQUENCE, 3, producer_id=8)).duplicate


def test_a_new_epoch_begins_at_zero_and_fences_the_old_one(open_log: OpenLog) -> None:
    log = open_log()
    log.append(produced(0, 3))
    assert log.append(produced(3, epoch=1)).error == OUT_OF_ORDER
    assert log.append(produced(0, epoch=1)).error == 0
    assert log.append(produced(3, epoch=0)).error == INVALID_EPOCH
    refused = log.append(produced(3, epoch=0))
    assert (refused.base_offset, refused.log_start_offset) == (-1, 0)


def test_a_silent_producer_is_forgotten(open_log: OpenLog, clock: BrokerClock) -> None:
    log = open_log()
    log.append(produced(0))
    clock.advance(DAY_MS - 1)
    log.append(batch())
    assert len(log.producers()) == 1
    clock.advance(DAY_MS)
    log.append(batch())
    assert log.producers() == []
    assert log.append(produced(50, timestamp=clock.now_ms())).error == 0


def test_an_open_transaction_holds_back_the_last_stable_offset(open_log: OpenLog, clock: BrokerClock) -> None:
    log = open_log()
    log.append(batch())
    log.append(produced(0, 2, transactional=True))
    log.append(produced(0, 1, producer_id=8, transactional=True))
    log.high_watermark = log.log_end_offset
    assert log.last_stable_offset == 1
    clock.advance(2 * DAY_MS)
    log.expire_producers()
    assert len(log.producers()) == 2
    assert log.append(marker(7, 0), origin=COORDINATOR).error == 0
    assert log.last_stable_offset == 1, "the marker is not replicated yet"
    log.high_watermark = log.log_end_offset
    assert log.last_stable_offset == 3
    assert log.append(marker(8, 0, commit=False), origin=COORDINATOR).error == 0
    log.high_watermark = log.log_end_offset
    assert log.last_stable_offset == log.log_end_offset == 6


def test_producers_survive_a_clean_stop_and_a_crash(open_log: OpenLog) -> None:
    log = open_log({"segment.bytes": 400})
    for sequence in range(10):
        log.append(produced(sequence))
    log.append(produced(0, transactional=True, producer_id=9))
    log.append(marker(9, 0), origin=COORDINATOR)
    log.append(produced(0, 2, transactional=True, producer_id=9, epoch=1))
    known = sorted(log.producers())
    crashed = open_log({"segment.bytes": 400}, clean=False)
    assert sorted(crashed.producers()) == known
    crashed.close()
    again = open_log({"segment.bytes": 400})
    assert sorted(again.producers()) == known
    assert again.append(produced(9)).duplicate
    assert again.append(produced(10)).error == 0


def test_a_snapshot_has_kafkas_bytes(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    log.append(produced(5, 3, producer_id=0x0102, epoch=4))
    log.close()
    data = (tmp_path / "topic-0" / f"{3:020d}.snapshot").read_bytes()
    body = struct.pack(">iqhiqiqiq", 1, 0x0102, 4, 7, 2, 2, NOW_MS + 2, -1, -1)
    assert data == struct.pack(">hI", 1, checksum(body)) + body


def test_a_damaged_snapshot_is_replaced_by_an_older_one_and_a_replay(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    log.append(produced(0, 2))
    log.roll()
    log.append(produced(2, 2))
    log.close()
    snapshot = tmp_path / "topic-0" / f"{4:020d}.snapshot"
    snapshot.write_bytes(snapshot.read_bytes()[:-1] + b"?")
    again = open_log()
    assert [note.reason for note in again.recovery_notes] == ["a producer snapshot cannot be read"]
    assert again.append(produced(4)).error == 0
    assert again.append(produced(2, 2)).duplicate


def test_without_any_good_snapshot_the_whole_log_is_replayed(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    log.append(produced(0, 2))
    log.close()
    (tmp_path / "topic-0" / f"{2:020d}.snapshot").write_bytes(b"torn")
    assert open_log().append(produced(0, 2)).duplicate


def test_snapshots_that_no_segment_needs_go(open_log: OpenLog, tmp_path: Path) -> None:
    for _ in range(3):
        log = open_log()
        log.append(batch())
        log.close()
    open_log()
    assert [path.name for path in sorted((tmp_path / "topic-0").glob("*.snapshot"))] == [f"{3:020d}.snapshot"]


def test_what_was_cut_off_is_forgotten_by_its_producer(open_log: OpenLog) -> None:
    log = open_log()
    log.append(produced(0, 2))
    log.roll()
    log.append(produced(2, 2))
    assert log.truncate_to(2) == 2
    assert log.append(produced(2, 2)).base_offset == 2
    assert offsets(log) == [0, 1, 2, 3]


def test_many_producers_are_kept_apart_and_the_longest_silent_makes_room(open_log: OpenLog) -> None:
    log = open_log({"segment.bytes": 1 << 30})
    for producer_id in range(65536):
        assert log.append(produced(0, producer_id=producer_id, value=b"")).error == 0
    assert log.append(produced(1, producer_id=0)).error == 0
    assert log.append(produced(0, producer_id=70000)).error == 0
    assert len(log.producers()) == 65536
    assert log.append(produced(2, producer_id=0)).error == 0
    assert log.append(produced(9, producer_id=1)).error == 0
    assert log.append(produced(9, producer_id=65535)).error == OUT_OF_ORDER


def test_an_open_transaction_is_never_forgotten(clock: BrokerClock) -> None:
    log = PartitionLog.in_memory(clock, {})
    for producer_id in range(65536 + 2):
        assert log.append(produced(0, producer_id=producer_id, transactional=True)).error == 0
    log.high_watermark = log.log_end_offset
    assert log.last_stable_offset == 0
    assert len(log.producers()) == 65536 + 2
