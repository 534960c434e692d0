"""Pipelined Produce requests are written together and answered as if each had come alone."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker._core.errors import Err
from kbroker.protocol import codec
from kbroker.protocol.message import Message
from kbroker.protocol.messages.k00_produce import ProduceResponse
from kbroker.tests.unit.core.api.given import (
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

VERSION = 9


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(tmp_path)
    node.topic("t", partitions=2)
    return node


def framed(request: Message, version: int = VERSION) -> bytes:
    return codec.encode_request(request, version, 7, "test")


def produced(*values: bytes, partition: int = 0, acks: int = -1, **fields: object) -> bytes:
    return framed(produce_request([(partition, batch(*values, **fields))], acks=acks))


def told(answers: list[tuple[str, bytes | None, str | None]]) -> list[tuple[int, int]]:
    """(error, base offset) of each answer's only partition."""
    found = []
    for outcome, reply, reason in answers:
        assert outcome == "READY", (outcome, reason)
        part: ProduceResponse.PartitionProduceResponse = (
            produce_reply(reply, VERSION).responses[0].partition_responses[0]
        )
        found.append((part.error_code, part.base_offset))
    return found


def stored(node: Node, partition: int = 0) -> list[bytes | None]:
    return values_of(only(node.fetch([of("t", ask(partition))])).records)


def test_batches_of_one_partition_are_numbered_in_their_order(node: Node) -> None:
    answers = node.calls.pipeline([produced(b"a", b"b"), produced(b"c"), produced(b"d", b"e", b"f"), produced(b"g")])
    assert told(answers) == [(0, 0), (0, 2), (0, 3), (0, 6)]
    assert stored(node) == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]


def test_a_run_longer_than_one_write_goes_on_in_the_next(node: Node) -> None:
    answers = node.calls.pipeline([produced(b"%d" % number) for number in range(40)])
    assert told(answers) == [(0, number) for number in range(40)]
    assert stored(node) == [b"%d" % number for number in range(40)]


def test_partitions_keep_their_own_order(node: Node) -> None:
    node.calls.pipeline([produced(b"%d" % number, partition=number % 2) for number in range(9)])
    assert stored(node, 0) == [b"0", b"2", b"4", b"6", b"8"]
    assert stored(node, 1) == [b"1", b"3", b"5", b"7"]


def test_one_request_with_both_partitions_stands_between_its_neighbours(node: Node) -> None:
    both = framed(produce_request([(0, batch(b"b")), (1, batch(b"x"))]))
    node.calls.pipeline([produced(b"a"), both, produced(b"y", partition=1), produced(b"c")])
    assert stored(node, 0) == [b"a", b"b", b"c"]
    assert stored(node, 1) == [b"x", b"y"]


def test_a_batch_that_is_refused_leaves_its_neighbours_alone(node: Node) -> None:
    damaged = bytearray(batch(b"no"))
    damaged[-1] ^= 1
    frames = [
        produced(b"a"),
        framed(produce_request([(0, bytes(damaged))])),
        framed(produce_request([(7, batch(b"no"))])),
        framed(produce_request([(0, None)])),
        produced(b"b"),
    ]
    answers = told(node.calls.pipeline(frames))
    assert answers == [(0, 0), (Err.CORRUPT_MESSAGE, -1), (3, -1), (Err.INVALID_RECORD, -1), (0, 1)]
    assert stored(node) == [b"a", b"b"]


def test_acks_may_differ_within_a_run(node: Node) -> None:
    frames = [produced(b"%d" % number, acks=acks) for number, acks in enumerate([0, -1, 1, 0, -1])]
    answers = node.calls.pipeline(frames)
    assert [outcome for outcome, _, _ in answers] == ["SILENT", "READY", "READY", "SILENT", "READY"]
    assert told([answers[1], answers[2], answers[4]]) == [(0, 1), (0, 2), (0, 4)]
    assert stored(node) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_fetch_behind_a_run_sees_all_of_it(node: Node) -> None:
    frames = [produced(b"a"), produced(b"b"), framed(fetch_request([of("t", ask())]), 12)]
    answers = node.calls.pipeline(frames)
    assert values_of(only(fetch_reply(answers[2][1], 12)).records) == [b"a", b"b"]


def test_a_frame_that_closes_ends_the_run_behind_what_came_before_it(node: Node) -> None:
    answers = node.calls.pipeline([produced(b"a"), produced(b"b")[:-3]])
    assert [outcome for outcome, _, _ in answers] == ["READY", "CLOSE"]
    assert stored(node) == [b"a"]


def test_sequences_are_checked_against_the_batch_just_before(node: Node) -> None:
    def one(value: bytes, sequence: int) -> bytes:
        return produced(value, producer_id=5, producer_epoch=0, base_sequence=sequence)

    frames = [one(b"a", 0), one(b"b", 1), one(b"b", 1), one(b"gap", 9), one(b"c", 2), one(b"a", 0)]
    answers = told(node.calls.pipeline(frames))
    assert answers == [(0, 0), (0, 1), (0, 1), (Err.OUT_OF_ORDER_SEQUENCE_NUMBER, -1), (0, 2), (0, 0)]
    assert stored(node) == [b"a", b"b", b"c"]


def test_a_segment_may_roll_within_a_run(tmp_path: Path) -> None:
    node = Node(tmp_path)
    (handle,) = node.topic("t", **{"segment.bytes": 300})
    answers = node.calls.pipeline([produced(b"x" * 60) for _ in range(10)])
    assert told(answers) == [(0, number) for number in range(10)]
    bases = sorted(int(path.stem) for path in (tmp_path / "t-0").glob("*.log"))
    assert bases == [0, 2, 4, 6, 8]
    assert handle.high_watermark == 10


def test_when_the_write_fails_no_request_of_the_run_is_acknowledged(node: Node, tmp_path: Path) -> None:
    node.calls.pipeline([produced(b"kept")])
    size = (tmp_path / "t-0" / f"{0:020d}.log").stat().st_size

    def retried(sequence: int) -> bytes:
        return produced(b"lost", producer_id=5, producer_epoch=0, base_sequence=sequence)

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, before[1]))
        answers = node.calls.pipeline([retried(0), retried(0), produced(b"other", partition=1), retried(1)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    failed = (Err.KAFKA_STORAGE_ERROR, -1)
    assert told(answers) == [failed, failed, (0, 0), failed]
    assert (tmp_path / "t-0" / f"{0:020d}.log").stat().st_size == size
    assert node.topics["t"][0].high_watermark == 1
    assert told(node.calls.pipeline([produced(b"later")])) == [failed]


def test_only_the_last_of_a_run_waits_for_replicas(node: Node) -> None:
    node.topics["t"][1].lead(1, 1, 2, 1, in_sync_followers=[2])
    frames = [produced(b"a"), produced(b"waits", partition=1)]
    answers = node.calls.pipeline(frames)
    assert [outcome for outcome, _, _ in answers] == ["READY", "PARKED"]
    node.topics["t"][1].follower_fetched(2, 1)
    collected = node.calls.collect()
    assert collected is not None
    assert told([("READY", collected[1], None)]) == [(0, 0)]


def test_a_request_of_many_partitions_joins_without_a_search(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.topic("t", partitions=2)
    many = framed(produce_request([(index, batch(b"m") if index < 2 else None) for index in range(20_000)]))
    answers = node.calls.pipeline([produced(b"a"), many])
    assert [outcome for outcome, _, _ in answers] == ["READY", "READY"]
    assert stored(node, 0) == [b"a", b"m"]


SOME_FRAME = st.tuples(
    st.sampled_from([0, 0, 0, 1, 9]),  # partition; the last is unknown
    st.sampled_from([-1, -1, 1, 0, 3]),  # acks; the last is none
    st.integers(1, 3),  # records
    st.one_of(st.none(), st.integers(0, 6)),  # sequence of an idempotent producer
    st.booleans(),  # damaged
)


@settings(max_examples=150, deadline=None)
@given(wanted=st.lists(SOME_FRAME, min_size=1, max_size=24))
def test_a_run_answers_and_stores_what_its_requests_would_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, wanted: list[tuple[int, int, int, int | None, bool]]
) -> None:
    frames = []
    for number, (partition, acks, records, sequence, damaged) in enumerate(wanted):
        fields = {} if sequence is None else {"producer_id": 5, "producer_epoch": 0, "base_sequence": sequence}
        data = bytearray(batch(*[b"%d.%d" % (number, i) for i in range(records)], **fields))
        data[-1] ^= damaged
        frames.append(framed(produce_request([(partition, bytes(data))], acks=acks)))
    ways = []
    for together in (True, False):
        directory = tmp_path_factory.mktemp("run")
        node = Node(directory)
        node.topic("t", partitions=2, **{"segment.bytes": 700})
        answers = node.calls.pipeline(frames) if together else [node.calls.call(frame) for frame in frames]
        files = {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*.log"))}
        ways.append((answers, files, [handle.high_watermark for handle in node.topics["t"]]))
    assert ways[0] == ways[1]
