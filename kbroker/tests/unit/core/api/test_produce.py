from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kbroker._core.errors import Err
from kbroker._core.record.crc32c import checksum
from kbroker._core.record.records import Record, build_batch
from kbroker.protocol.messages.k00_produce import ProduceRequest, ProduceResponse
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
    topic_id,
    values_of,
)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(tmp_path)
    node.topic("t", partitions=2)
    return node


def first(response: ProduceResponse) -> ProduceResponse.PartitionProduceResponse:
    return response.responses[0].partition_responses[0]


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_appends_and_answers(node: Node, version: int) -> None:
    response = node.produce([(0, batch(b"a", b"b")), (1, batch(b"c"))], version)
    (topic,) = response.responses
    assert topic.name == ("t" if version < 13 else "")
    assert topic.topic_id == (topic_id("t") if version >= 13 else bytes(16))
    assert [(p.index, p.error_code, p.base_offset, p.log_append_time_ms) for p in topic.partition_responses] == [
        (0, 0, 0, -1),
        (1, 0, 0, -1),
    ]
    assert [p.log_start_offset for p in topic.partition_responses] == [0, 0] if version >= 5 else [-1, -1]
    assert first(node.produce([(0, batch(b"c"))], version)).base_offset == 2
    assert values_of(only(node.fetch([of("t", ask())])).records) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("acks", [-1, 1])
def test_the_high_watermark_follows_when_this_node_is_the_only_in_sync_replica(node: Node, acks: int) -> None:
    node.produce([(0, batch(b"a", b"b"))], acks=acks)
    assert node.topics["t"][0].high_watermark == 2


def test_acks_0_is_silent(node: Node) -> None:
    outcome, reply, _ = node.send(produce_request([(0, batch())], acks=0), 9)
    assert (outcome, reply) == ("SILENT", None)
    assert node.topics["t"][0].high_watermark == 1


@pytest.mark.parametrize("parts", [[(9, batch())], [(0, b"junk")], [(0, batch()), (0, None)]])
def test_acks_0_that_fails_closes(node: Node, parts: list[tuple[int, bytes | None]]) -> None:
    outcome, _, reason = node.send(produce_request(parts, acks=0), 9)
    assert outcome == "CLOSE"
    assert reason


@pytest.mark.parametrize("acks", [-2, 2, 5])
def test_other_acks_are_refused_on_every_partition_that_exists(node: Node, acks: int) -> None:
    response = node.produce([(0, batch()), (1, batch()), (9, batch())], acks=acks)
    assert [p.error_code for p in response.responses[0].partition_responses] == [21, 21, 3]
    assert node.topics["t"][0].high_watermark == 0


def test_an_unknown_topic_is_told_by_name_or_by_id(node: Node) -> None:
    assert first(node.produce([(0, batch())], 12, "nosuch")).error_code == Err.UNKNOWN_TOPIC_OR_PARTITION
    assert first(node.produce([(0, batch())], 13, "nosuch")).error_code == Err.UNKNOWN_TOPIC_ID
    assert first(node.produce([(7, batch())], 13)).error_code == Err.UNKNOWN_TOPIC_OR_PARTITION


def test_the_zero_id_names_no_topic(node: Node) -> None:
    request = produce_request([(0, batch())])
    request.topic_data[0].topic_id = bytes(16)
    _, reply, _ = node.send(request, 13)
    assert first(produce_reply(reply, 13)).error_code == Err.UNKNOWN_TOPIC_ID


def flipped(data: bytes, at: int, value: bytes) -> bytes:
    return data[:at] + value + data[at + len(value) :]


def with_crc(data: bytes) -> bytes:
    return flipped(data, 17, struct.pack(">I", checksum(data[21:])))


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (None, Err.INVALID_RECORD),
        (b"", Err.INVALID_RECORD),
        (b"short", Err.INVALID_RECORD),
        (batch()[:-3], Err.INVALID_RECORD),
        (batch() + batch(), Err.INVALID_RECORD),
        (flipped(batch(), 16, b"\0"), Err.INVALID_RECORD),
        (flipped(batch(), 16, b"\1"), Err.INVALID_RECORD),
        (flipped(batch(), 16, b"\3"), Err.CORRUPT_MESSAGE),
        (flipped(batch(), 8, struct.pack(">i", 5)), Err.CORRUPT_MESSAGE),
        (flipped(batch(), 8, struct.pack(">i", -5)), Err.CORRUPT_MESSAGE),
        (flipped(batch(), 8, struct.pack(">i", 30)), Err.CORRUPT_MESSAGE),
        (batch() + bytes(30), Err.CORRUPT_MESSAGE),
    ],
)
def test_records_refused_before_the_log_is_looked_at_report_no_log_start(
    node: Node, records: bytes | None, error: int
) -> None:
    partition = first(node.produce([(0, records)], 9))
    assert (partition.error_code, partition.base_offset, partition.log_start_offset) == (error, -1, -1)
    assert node.topics["t"][0].high_watermark == 0


@pytest.mark.parametrize("bad", [flipped(batch(), 16, b"\3"), flipped(batch(), 8, struct.pack(">i", -5))])
def test_a_batch_that_cannot_be_one_fails_the_whole_request(node: Node, bad: bytes) -> None:
    response = node.produce([(0, batch()), (1, bad), (9, batch())])
    answers = response.responses[0].partition_responses
    assert [(p.error_code, bool(p.error_message)) for p in answers] == [(Err.CORRUPT_MESSAGE, True)] * 3
    assert node.topics["t"][0].high_watermark == 0


@pytest.mark.parametrize(("version", "errors", "starts"), [(6, [-1, -1], [-1, -1]), (7, [0, -1], [0, 0])])
def test_an_unknown_codec_fails_the_whole_request_before_version_7(
    node: Node, version: int, errors: list[int], starts: list[int]
) -> None:
    unknown = with_crc(flipped(batch(), 22, b"\5"))
    answers = node.produce([(0, batch()), (1, unknown)], version).responses[0].partition_responses
    assert [p.error_code for p in answers] == errors
    assert [p.log_start_offset for p in answers] == starts
    assert [p.error_message for p in answers] == [None, None]


def test_only_errors_about_records_have_a_message(node: Node) -> None:
    partition = first(node.produce([(0, flipped(batch(), 17, b"\0\0\0\0"))]))
    assert (partition.error_code, partition.error_message) == (Err.CORRUPT_MESSAGE, None)


def test_a_partition_named_twice_counts_once_as_named_last(node: Node) -> None:
    response = node.produce([(0, batch(b"a")), (1, batch(b"b")), (0, batch(b"c", b"d"))])
    assert [p.index for p in response.responses[0].partition_responses] == [0, 1]
    assert values_of(only(node.fetch([of("t", ask())])).records) == [b"c", b"d"]


def test_a_wrong_crc_is_corrupt(node: Node) -> None:
    assert first(node.produce([(0, flipped(batch(), 17, b"\0\0\0\0"))])).error_code == Err.CORRUPT_MESSAGE


def test_a_few_bytes_behind_the_batch_are_cut_off(node: Node) -> None:
    assert first(node.produce([(0, batch(b"a") + b"junk!")])).error_code == 0
    assert values_of(only(node.fetch([of("t", ask())])).records) == [b"a"]


def test_one_partition_fails_alone(node: Node) -> None:
    response = node.produce([(0, batch()[:-3]), (1, batch())])
    assert [p.error_code for p in response.responses[0].partition_responses][1] == 0
    assert first(response).error_code != 0


@pytest.mark.parametrize("version", [7, 8, 13])
def test_record_errors_and_the_message_come_with_version_8(node: Node, version: int) -> None:
    records = build_batch([Record(timestamp=NOW, value=b"a"), Record(timestamp=NOW + 10**10, value=b"b")])
    partition = first(node.produce([(0, records)], version))
    assert partition.error_code == Err.INVALID_TIMESTAMP
    assert partition.log_start_offset == 0
    assert [e.batch_index for e in partition.record_errors] == ([1] if version >= 8 else [])
    assert bool(partition.error_message) == (version >= 8)
    for about in partition.record_errors:
        assert about.batch_index_error_message
        assert about.batch_index_error_message != partition.error_message


def test_a_length_that_overflows_fails_the_whole_request(node: Node) -> None:
    records = batch()
    endless = records[:8] + (0x7FFFFFF8).to_bytes(4, "big") + records[12:]
    response = node.produce([(0, records), (1, endless)])
    assert [p.error_code for p in response.responses[0].partition_responses] == [-1, -1]
    assert node.topics["t"][0].high_watermark == 0


def test_a_transactional_batch_without_a_transactional_id_fails_the_whole_request(node: Node) -> None:
    records = batch(producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    response = node.produce([(0, records), (1, batch()), (9, batch())])
    assert [p.error_code for p in response.responses[0].partition_responses] == [53, 53, 53]


def test_internal_topics_take_records_from_the_admin_client_only(node: Node) -> None:
    node.topic("__internal", internal=True)
    assert first(node.produce([(0, batch())], name="__internal")).error_code == Err.INVALID_TOPIC_EXCEPTION
    assert first(node.produce([(0, batch())], name="__internal", client_id="__admin_client")).error_code == 0


@pytest.mark.parametrize("version", [9, 10, 13])
def test_not_the_leader_points_at_the_leader_from_version_10(node: Node, version: int) -> None:
    node.topics["t"][0].follow(2, 5)
    response = node.produce([(0, batch())], version)
    partition = first(response)
    assert partition.error_code == Err.NOT_LEADER_OR_FOLLOWER
    if version < 10:
        return
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (2, 5)
    assert [(e.node_id, e.host, e.port, e.rack) for e in response.node_endpoints] == [(2, "there", 9093, "r1")]


def test_a_leader_that_is_not_alive_has_no_endpoint(node: Node) -> None:
    node.topics["t"][0].follow(3, 5)
    response = node.produce([(0, batch())], 10)
    assert first(response).current_leader.leader_id == 3
    assert response.node_endpoints == []


def test_a_failed_directory_and_a_deleted_topic_say_so(node: Node) -> None:
    one, two = node.topics["t"]
    one.go_offline()
    two.retire()
    response = node.produce([(0, batch()), (1, batch())])
    assert [p.error_code for p in response.responses[0].partition_responses] == [56, 3]


def test_too_few_in_sync_replicas_refuse_acks_all_only(node: Node) -> None:
    partition = node.topics["t"][0]
    partition.lead(1, 0, 1, 2)
    assert first(node.produce([(0, batch())], acks=-1)).error_code == Err.NOT_ENOUGH_REPLICAS
    assert first(node.produce([(0, batch())], acks=1)).error_code == 0
    assert partition.high_watermark == 0


@pytest.mark.parametrize("version", range(3, 14))
def test_several_topics_and_empty_ones(node: Node, version: int) -> None:
    node.topic("u")
    topics = [
        ProduceRequest.TopicProduceData(
            name=name,
            topic_id=topic_id(name),
            partition_data=[ProduceRequest.PartitionProduceData(index=i, records=batch()) for i in indexes],
        )
        for name, indexes in [("t", [1, 0]), ("none", []), ("u", [0]), ("x", [0])]
    ]
    _, reply, _ = node.send(ProduceRequest(acks=1, timeout_ms=100, topic_data=topics), version)
    response = produce_reply(reply, version)
    assert [[(p.index, p.error_code) for p in t.partition_responses] for t in response.responses] == [
        [(1, 0), (0, 0)],
        [(0, 0)],
        [(0, 100 if version >= 13 else 3)],
    ]


@pytest.mark.parametrize("version", [3, 9, 13])
def test_no_topics_at_all(node: Node, version: int) -> None:
    _, reply, _ = node.send(ProduceRequest(acks=1, timeout_ms=100), version)
    assert produce_reply(reply, version).responses == []


def test_a_retry_of_an_idempotent_batch_answers_the_first_offset(node: Node) -> None:
    records = batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0)
    assert first(node.produce([(0, records)])).base_offset == 0
    assert first(node.produce([(0, batch())])).base_offset == 1
    again = first(node.produce([(0, records)]))
    assert (again.error_code, again.base_offset) == (0, 0)
    assert node.topics["t"][0].high_watermark == 2


class TestWaitingForReplicas:
    @pytest.fixture
    def replicated(self, node: Node) -> Node:
        node.topics["t"][0].lead(1, 0, 2, 1, [2])
        return node

    def test_acks_all_waits_for_the_follower(self, replicated: Node) -> None:
        partition = replicated.topics["t"][0]
        assert replicated.send(produce_request([(0, batch(b"a", b"b")), (1, batch())]), 9)[0] == "PARKED"
        assert partition.high_watermark == 0
        partition.follower_fetched(2, 1)
        assert replicated.calls.collect() is None
        partition.follower_fetched(2, 2)
        slot, reply = replicated.calls.collect() or (None, None)
        assert slot == 0
        assert [p.error_code for p in produce_reply(reply, 9).responses[0].partition_responses] == [0, 0]
        assert replicated.calls.parked == 0

    def test_time_runs_out_and_the_records_stay(self, replicated: Node) -> None:
        partition = replicated.topics["t"][0]
        request = produce_request([(0, batch())], timeout_ms=250)
        assert replicated.send(request, 13)[0] == "PARKED"
        assert replicated.calls.next_deadline_ms == replicated.clock.monotonic_ms() + 250
        replicated.clock.advance(249)
        assert replicated.calls.collect() is None
        replicated.clock.advance(1)
        _, reply = replicated.calls.collect() or (None, None)
        answer = first(produce_reply(reply, 13))
        assert (answer.error_code, answer.base_offset) == (Err.REQUEST_TIMED_OUT, 0)
        partition.follower_fetched(2, 1)
        assert partition.high_watermark == 1

    def test_losing_the_leadership_ends_the_wait(self, replicated: Node) -> None:
        assert replicated.send(produce_request([(0, batch())]), 10)[0] == "PARKED"
        replicated.topics["t"][0].follow(2, 1)
        _, reply = replicated.calls.collect() or (None, None)
        response = produce_reply(reply, 10)
        assert first(response).error_code == Err.NOT_LEADER_OR_FOLLOWER
        assert [e.node_id for e in response.node_endpoints] == [2]

    def test_replicas_that_fall_behind_after_the_append_are_told(self, replicated: Node) -> None:
        partition = replicated.topics["t"][0]
        partition.lead(1, 0, 2, 2, [2])
        assert replicated.send(produce_request([(0, batch())]), 9)[0] == "PARKED"
        partition.follower_fetched(2, 1)
        partition.lead(1, 0, 1, 2)
        _, reply = replicated.calls.collect() or (None, None)
        assert first(produce_reply(reply, 9)).error_code == Err.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def test_acks_1_does_not_wait_and_consumers_do_not_see_it_yet(self, replicated: Node) -> None:
        assert first(replicated.produce([(0, batch())], acks=1)).error_code == 0
        assert only(replicated.fetch([of("t", ask())])).records == b""

    def test_unknown_names_survive_the_frame(self, replicated: Node) -> None:
        request = produce_request([(0, batch())])
        request.topic_data.append(produce_request([(0, batch())], "nosuch").topic_data[0])
        assert replicated.send(request, 12)[0] == "PARKED"
        replicated.topics["t"][0].follower_fetched(2, 1)
        _, reply = replicated.calls.collect() or (None, None)
        assert [t.name for t in produce_reply(reply, 12).responses] == ["t", "nosuch"]

    def test_a_fetch_waits_for_the_high_watermark_too(self, replicated: Node) -> None:
        replicated.produce([(0, batch(b"a"))], acks=1)
        assert replicated.send(fetch_request([of("t", ask())], max_wait_ms=500), 12)[0] == "PARKED"
        replicated.topics["t"][0].follower_fetched(2, 1)
        _, reply = replicated.calls.collect() or (None, None)
        assert values_of(only(fetch_reply(reply, 12)).records) == [b"a"]
