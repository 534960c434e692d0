"""Transactions in the data plane: who may append here and who must ask first; what readers at read_committed get."""

import struct
from pathlib import Path

import pytest

from kbroker._core.errors import Err
from kbroker._core.partitions import PartitionHandle
from kbroker._core.record.records import Record, build_batch
from kbroker.tests.unit.core.api.given import (
    NOW,
    Node,
    ask,
    batch,
    fetch_reply,
    fetch_request,
    of,
    only,
    produce_reply,
    produce_request,
    values_of,
)

VERIFYING = {"transaction.partition.verification.enable": True}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(tmp_path)
    node.topic("t", 2, **VERIFYING)
    return node


def tx(sequence: int, *values: bytes, producer: int = 7, epoch: int = 0) -> bytes:
    return batch(*values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=True)


def begin(handle: PartitionHandle, *values: bytes, producer: int = 7, epoch: int = 0) -> int:
    guard = handle.begin_verification(producer, epoch, 0, adds=False)
    done = handle.produce(tx(0, *values, producer=producer, epoch=epoch), -1, None, guard)
    assert done.error == Err.NONE
    return done.base_offset


def end(handle: PartitionHandle, *, commit: bool, producer: int = 7, epoch: int = 0) -> None:
    record = Record(timestamp=NOW, key=struct.pack(">hh", 0, commit), value=struct.pack(">hi", 0, 0))
    data = build_batch([record], control=True, transactional=True, producer_id=producer, producer_epoch=epoch)
    assert handle.append(data).error == Err.NONE


def sent(node: Node, parts: list[tuple[int, bytes | None]], version: int = 11, acks: int = -1) -> str | list[int]:
    request = produce_request(parts, acks=acks, transactional_id="tx")
    outcome, reply, _ = node.send(request, version)
    if outcome != "READY":
        return outcome
    return [one.error_code for one in produce_reply(reply, version).responses[0].partition_responses]


@pytest.mark.parametrize("version", [3, 9, 11, 12, 13])
def test_a_first_batch_is_handed_over_and_those_behind_it_are_not(node: Node, version: int) -> None:
    assert sent(node, [(0, tx(0))], version) == "POST"
    assert node.topics["t"][0].log is not None
    assert node.topics["t"][0].log.log_end_offset == 0  # nothing of it has been appended
    begin(node.topics["t"][0])
    assert sent(node, [(0, tx(1))], version) == [0]
    assert sent(node, [(0, tx(2)), (1, tx(0))], version) == "POST"  # the other partition does not know it yet
    assert sent(node, [(0, tx(0, epoch=1))], version) == "POST"
    end(node.topics["t"][0], commit=True)
    assert sent(node, [(0, tx(2))], version) == "POST"
    assert sent(node, [(0, tx(1))], version) == "POST"  # even a repeat: Kafka asks first, too


@pytest.mark.parametrize(("version", "outcome"), [(11, [0]), (12, "POST")])
def test_without_verification_only_who_adds_by_producing_is_handed_over(
    tmp_path: Path, version: int, outcome: object
) -> None:
    node = Node(tmp_path)
    node.topic("t", **{"transaction.partition.verification.enable": "false"})
    assert sent(node, [(0, tx(0))], version) == outcome


def test_what_cannot_be_appended_anyway_is_answered_here(node: Node) -> None:
    assert sent(node, [(9, tx(0))]) == [3]
    node.topics["t"][0].follow(2, 1)
    assert sent(node, [(0, tx(0))]) == [6]
    assert sent(node, [(1, tx(0))], acks=5) == [21]


def test_one_request_has_one_producer(node: Node) -> None:
    assert sent(node, [(0, tx(0)), (1, tx(0, producer=8))]) == [49, 49]
    assert sent(node, [(0, tx(0)), (1, tx(0, epoch=1))]) == [49, 49]
    assert sent(node, [(0, tx(0)), (1, batch(producer_id=8, producer_epoch=0, base_sequence=0))]) == "POST"


def test_a_transactional_batch_without_a_producer_is_nobodys(node: Node) -> None:
    assert sent(node, [(0, batch(transactional=True))]) == [0]


def test_a_marker_between_two_requests_of_a_run(node: Node) -> None:
    """Both were judged before the marker came; the log has the last word."""
    handle = node.topics["t"][0]
    begin(handle)
    end(handle, commit=False)
    assert handle.produce(tx(1)).error == Err.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [4, 11, 12, 17])
def test_read_committed_ends_at_the_last_stable_offset(node: Node, version: int) -> None:
    handle = node.topics["t"][0]
    node.produce([(0, batch(b"a"))])
    begin(handle, b"b")
    node.produce([(0, batch(b"c"))])
    everything = only(node.fetch([of("t", ask())], version))
    assert values_of(everything.records) == [b"a", b"b", b"c"]
    committed = only(node.fetch([of("t", ask())], version, isolation_level=1))
    assert values_of(committed.records) == [b"a"]
    assert (committed.high_watermark, committed.last_stable_offset) == (3, 1)
    behind = only(node.fetch([of("t", ask(offset=2))], version, isolation_level=1))
    assert (behind.error_code, behind.records, behind.aborted_transactions) == (0, b"", [])
    end(handle, commit=False)
    committed = only(node.fetch([of("t", ask(offset=1))], version, isolation_level=1))
    assert [(one.producer_id, one.first_offset) for one in committed.aborted_transactions or []] == [(7, 1)]
    assert (committed.high_watermark, committed.last_stable_offset) == (4, 4)
    everything = only(node.fetch([of("t", ask())], version))
    assert everything.aborted_transactions is None


def test_only_what_the_slice_touches_is_listed(tmp_path: Path) -> None:
    node = Node(tmp_path)
    (handle,) = node.topic("t", **{"index.interval.bytes": 0})
    for producer in range(50):
        assert handle.produce(tx(0, b"x" * 50, producer=producer)).error == 0
        end(handle, commit=False, producer=producer)
    first = only(node.fetch([of("t", ask(max_bytes=1))], isolation_level=1))
    assert [one.producer_id for one in first.aborted_transactions or []] == [0]
    later = only(node.fetch([of("t", ask(offset=41, max_bytes=300))], isolation_level=1))
    assert [one.producer_id for one in later.aborted_transactions or []] == [20, 21]


def waiting(node: Node, isolation: int, slot: int) -> None:
    request = fetch_request([of("t", ask())], max_wait_ms=10_000, isolation_level=isolation)
    assert node.send(request, 12, slot)[0] == "PARKED"


def test_a_long_poll_at_read_committed_sleeps_through_what_is_not_committed(node: Node) -> None:
    handle = node.topics["t"][0]
    waiting(node, 1, 5)
    begin(handle, b"a")
    assert node.calls.wakes == 0
    node.produce([(0, batch(b"plain"))])
    assert node.calls.wakes == 0
    assert node.calls.collect() is None
    end(handle, commit=True)
    assert node.calls.wakes == 1
    answer = node.calls.collect()
    assert answer is not None
    assert answer[0] == 5
    assert len(values_of(only(fetch_reply(answer[1], 12)).records)) == 3
    waiting_for_everything = fetch_request([of("t", ask(offset=3))], max_wait_ms=10_000)
    assert node.send(waiting_for_everything, 12, 6)[0] == "PARKED"
    begin(handle, b"b", epoch=1)
    assert node.calls.wakes == 2


def test_without_transactions_both_kinds_of_readers_are_woken(node: Node) -> None:
    waiting(node, 1, 5)
    waiting(node, 0, 6)
    node.produce([(0, batch(b"a"))])
    woken = {one[0] for one in iter(node.calls.collect, None)}
    assert woken == {5, 6}


def test_with_followers_a_marker_counts_when_they_have_it(node: Node) -> None:
    handle = node.topics["t"][0]
    handle.lead(1, 1, 2, 1, (2,))
    begin(handle, b"a")
    handle.follower_fetched(2, 1)
    waiting(node, 1, 5)
    end(handle, commit=True)
    assert node.calls.wakes == 0
    assert handle.log is not None
    assert handle.log.last_stable_offset == 0
    handle.follower_fetched(2, 2)
    assert node.calls.wakes == 1
    answer = node.calls.collect()
    assert answer is not None
    assert only(fetch_reply(answer[1], 12)).last_stable_offset == 2


def test_an_index_that_cannot_be_read_gives_no_records(tmp_path: Path) -> None:
    """Without the list a reader would take aborted records for good ones."""
    node = Node(tmp_path)
    (handle,) = node.topic("t", **{"segment.bytes": 200})
    for sequence in range(3):
        assert handle.produce(tx(sequence, b"x" * 80)).error == 0
        end(handle, commit=False)
    assert handle.log is not None
    handle.log.close()
    reopened = PartitionHandle(0, node.open_log("t-0", **{"segment.bytes": 200}))
    reopened.lead(1, 1, 1, 1)
    node.topics["t"] = [reopened]
    node.publish()
    index = sorted(tmp_path.rglob("*.txnindex"))[0]
    index.unlink()
    index.mkdir()
    partition = only(node.fetch([of("t", ask())], isolation_level=1))
    assert (partition.error_code, partition.records) == (Err.KAFKA_STORAGE_ERROR, b"")
    index.rmdir()
