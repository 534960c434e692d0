"""A transaction's first batch in a log needs a guard, and a guard is good for one transaction only."""

import struct
from typing import Any

import pytest

from kbroker._core.clock import BrokerClock
from kbroker._core.errors import Err
from kbroker._core.log.partition_log import PartitionLog
from kbroker._core.partitions import PartitionHandle
from kbroker._core.record.records import Record, build_batch
from kbroker.tests.unit.log.batches import produced
from kbroker.tests.unit.log.conftest import NOW_MS, OpenLog

VERIFYING = {"transaction.partition.verification.enable": True}
DAY_MS = 86_400_000


def led(log: PartitionLog) -> PartitionHandle:
    handle = PartitionHandle(0, log)
    handle.lead(1, 0, 1, 1)
    return handle


def put(handle: PartitionHandle, sequence: int, guard: int = 0, **how: Any) -> int:
    return handle.produce(produced(sequence, transactional=True, **how), -1, None, guard).error


def end(
    handle: PartitionHandle, *, epoch: int = 0, commit: bool = False, coordinator: int = 0, version: int = 0
) -> int:
    record = Record(timestamp=NOW_MS, key=struct.pack(">hh", 0, commit), value=struct.pack(">hi", 0, coordinator))
    data = build_batch([record], control=True, transactional=True, producer_id=7, producer_epoch=epoch)
    return handle.append(data, transaction_version=version).error


@pytest.fixture
def handle(open_log: OpenLog) -> PartitionHandle:
    return led(open_log(VERIFYING))


def test_without_a_guard_no_transaction_begins(handle: PartitionHandle) -> None:
    assert put(handle, 0) == Err.INVALID_TXN_STATE
    guard = handle.begin_verification(7, 0, 0, adds=False)
    assert guard > 0
    assert put(handle, 0) == Err.INVALID_TXN_STATE
    assert put(handle, 0, guard + 1) == Err.INVALID_TXN_STATE
    assert put(handle, 0, guard) == Err.NONE
    assert handle.begin_verification(7, 0, 1, adds=False) == 0  # it has begun: nothing to ask
    assert put(handle, 1) == Err.NONE
    assert handle.begin_verification(7, 1, 0, adds=False) > 0  # another epoch is another transaction


def test_a_marker_takes_the_guard_away(handle: PartitionHandle) -> None:
    guard = handle.begin_verification(7, 0, 0, adds=False)
    assert end(handle) == Err.NONE
    assert put(handle, 0, guard) == Err.INVALID_TXN_STATE
    again = handle.begin_verification(7, 0, 0, adds=False)
    assert again > guard
    assert put(handle, 0, guard) == Err.INVALID_TXN_STATE
    assert put(handle, 0, again) == Err.NONE
    assert end(handle) == Err.NONE
    assert put(handle, 1, again) == Err.INVALID_TXN_STATE


def test_a_marker_of_version_2_leaves_the_guard_of_the_next_transaction(handle: PartitionHandle) -> None:
    """Its epoch is that of the next one, which asks as soon as the end is decided, before the marker is written."""
    assert put(handle, 0, handle.begin_verification(7, 0, 0, adds=True)) == Err.NONE
    guard = handle.begin_verification(7, 1, 0, adds=True)
    assert end(handle, epoch=1, commit=True, version=2) == Err.NONE
    assert put(handle, 0, guard, epoch=1) == Err.NONE
    late = handle.begin_verification(7, 2, 0, adds=True)
    assert end(handle, epoch=3, version=2) == Err.NONE  # its time was up: the producer was fenced
    assert put(handle, 0, late, epoch=2) == Err.INVALID_TXN_STATE


def test_who_asks_again_shares_the_guard(handle: PartitionHandle) -> None:
    guard = handle.begin_verification(7, 0, 3, adds=False)
    assert handle.begin_verification(7, 0, 5, adds=False) == guard
    assert handle.begin_verification(8, 0, 0, adds=False) != guard
    assert put(handle, 5, guard) == Err.OUT_OF_ORDER_SEQUENCE_NUMBER  # the batch of sequence 3 comes first
    assert put(handle, 3, guard) == Err.NONE
    assert put(handle, 4) == Err.NONE


def test_a_higher_epoch_starts_the_sequences_anew(handle: PartitionHandle) -> None:
    guard = handle.begin_verification(7, 0, 3, adds=False)
    assert handle.begin_verification(7, 1, 9, adds=False) == guard
    assert handle.begin_verification(7, 0, 1, adds=False) == guard  # an old epoch's sequence says nothing now
    assert put(handle, 10, guard, epoch=1) == Err.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert put(handle, 9, guard, epoch=1) == Err.NONE


def test_who_adds_by_producing_begins_at_zero(handle: PartitionHandle) -> None:
    guard = handle.begin_verification(7, 0, 3, adds=True)
    assert put(handle, 3, guard) == Err.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert handle.begin_verification(7, 0, 0, adds=True) == guard
    assert put(handle, 0, guard) == Err.NONE


def test_a_repeat_is_recognised_without_a_guard(handle: PartitionHandle) -> None:
    assert put(handle, 0, handle.begin_verification(7, 0, 0, adds=False)) == Err.NONE
    assert end(handle, commit=True) == Err.NONE
    again = handle.produce(produced(0, transactional=True))
    assert (again.error, again.base_offset) == (Err.NONE, 0)
    assert put(handle, 1) == Err.INVALID_TXN_STATE


def test_guards_expire(open_log: OpenLog, clock: BrokerClock) -> None:
    log = open_log({**VERIFYING, "producer.id.expiration.ms": DAY_MS})
    handle = led(log)
    guard = handle.begin_verification(7, 0, 0, adds=False)
    log.expire_producers(NOW_MS + DAY_MS - 1)
    assert handle.begin_verification(7, 0, 0, adds=False) == guard
    log.expire_producers(NOW_MS + DAY_MS)
    assert put(handle, 0, guard) == Err.INVALID_TXN_STATE
    assert handle.begin_verification(7, 0, 0, adds=False) != guard


def test_many_guards_at_once_each_for_its_own_producer(handle: PartitionHandle) -> None:
    guards = {one: handle.begin_verification(one, 0, 0, adds=False) for one in range(100, 1100)}
    assert len(set(guards.values())) == 1000
    for one in sorted(guards, key=lambda each: each * 7919 % 1000):
        data = produced(0, producer_id=one, transactional=True)
        other = guards[100 + (one + 1) % 1000]
        assert handle.produce(data, -1, None, other).error == (
            Err.NONE if other == guards[one] else Err.INVALID_TXN_STATE
        )
        assert handle.produce(data, -1, None, guards[one]).error == Err.NONE


def test_too_many_guards_cost_the_oldest(handle: PartitionHandle) -> None:
    first = handle.begin_verification(1, 0, 0, adds=False)
    second = handle.begin_verification(2, 0, 0, adds=False)
    for one in range(10, 10 + 65_535):
        handle.begin_verification(one, 0, 0, adds=False)
    assert handle.produce(produced(0, producer_id=1, transactional=True), -1, None, first).error == (
        Err.INVALID_TXN_STATE
    )
    assert handle.produce(produced(0, producer_id=2, transactional=True), -1, None, second).error == Err.NONE


def test_the_setting_holds_from_the_next_append(open_log: OpenLog) -> None:
    log = open_log({"transaction.partition.verification.enable": "false"})
    handle = led(log)
    assert handle.begin_verification(7, 0, 0, adds=False) == 0
    assert handle.begin_verification(8, 0, 0, adds=True) > 0  # the coordinator has to hear of it in any case
    assert put(handle, 0) == Err.NONE
    log.configure(VERIFYING)
    assert put(handle, 1) == Err.NONE  # it has begun
    assert end(handle) == Err.NONE
    assert put(handle, 2) == Err.INVALID_TXN_STATE


def test_a_coordinators_batches_need_a_guard_too(handle: PartitionHandle) -> None:
    data = produced(-1, transactional=True)
    assert handle.append(data).error == Err.INVALID_TXN_STATE
    assert handle.append(data, guard=handle.begin_verification(7, 0, -1, adds=False)).error == Err.NONE
    assert handle.append(data).error == Err.NONE


def test_a_plain_batch_has_no_place_in_a_transaction(handle: PartitionHandle) -> None:
    assert put(handle, 0, handle.begin_verification(7, 0, 0, adds=False)) == Err.NONE
    assert handle.produce(produced(1)).error == Err.INVALID_TXN_STATE
    assert handle.produce(produced(5)).error == Err.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert handle.produce(produced(0, epoch=1)).error == Err.INVALID_TXN_STATE
    assert end(handle) == Err.NONE
    assert handle.produce(produced(1)).error == Err.NONE


def test_epochs_of_markers(handle: PartitionHandle) -> None:
    assert put(handle, 0, handle.begin_verification(7, 3, 0, adds=False), epoch=3) == Err.NONE
    assert end(handle, epoch=2) == Err.INVALID_PRODUCER_EPOCH
    assert end(handle, epoch=3, version=2) == Err.INVALID_PRODUCER_EPOCH
    assert end(handle, epoch=4, version=2, coordinator=5) == Err.NONE
    assert end(handle, epoch=4, version=2, coordinator=5) == Err.NONE  # a retry: nothing is open
    assert end(handle, epoch=5, version=2, coordinator=4) == Err.TRANSACTION_COORDINATOR_FENCED
    assert end(handle, epoch=4, version=1, coordinator=4) == Err.TRANSACTION_COORDINATOR_FENCED
    assert end(handle, epoch=4, version=1, coordinator=5) == Err.NONE
    assert put(handle, 1, handle.begin_verification(7, 3, 1, adds=False), epoch=3) == Err.INVALID_PRODUCER_EPOCH
    assert put(handle, 0, handle.begin_verification(7, 4, 0, adds=False), epoch=4) == Err.NONE


def test_a_producer_id_that_is_none_gets_a_guard_that_opens_nothing(handle: PartitionHandle) -> None:
    guards = [handle.begin_verification(nobody, 0, 0, adds=True) for nobody in (-1, -(2**63), -1) for _ in range(20)]
    assert len({*guards}) == len(guards)
    assert put(handle, 0, handle.begin_verification(7, 0, 0, adds=True)) == Err.NONE
