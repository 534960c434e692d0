"""DeleteRecords: what is refused, what is answered, and in which order Kafka looks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kbroker._core.errors import Err
from kbroker.cluster.topics import NewTopic
from kbroker.protocol.messages import DeleteRecordsRequest
from kbroker.tests.unit.api.desk import Desk, FakeLog, FakePartition

VERSIONS = range(3)


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    for partition in range(2):
        log = FakeLog(log_start_offset=5, high_watermark=10, log_end_offset=12)
        desk.replicas.partitions["t", partition] = FakePartition(log)
    return desk


def ask(desk: Desk, *wanted: tuple[str, int, int], version: int = 2) -> dict[tuple[str, int], tuple[int, int]]:
    topics = [
        DeleteRecordsRequest.DeleteRecordsTopic(
            name=topic,
            partitions=[DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=offset)],
        )
        for topic, index, offset in wanted
    ]
    answer: Any = desk.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000), version)
    return {
        (topic.name, one.partition_index): (one.error_code, one.low_watermark)
        for topic in answer.topics
        for one in topic.partitions
    }


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("offset", "answer"),
    [
        (7, (Err.NONE, 7)),
        (10, (Err.NONE, 10)),
        (-1, (Err.NONE, 10)),
        (5, (Err.NONE, 5)),
        (0, (Err.NONE, 5)),
        (11, (Err.OFFSET_OUT_OF_RANGE, -1)),
        (-2, (Err.OFFSET_OUT_OF_RANGE, -1)),
        (2**63 - 1, (Err.OFFSET_OUT_OF_RANGE, -1)),
    ],
)
def test_the_low_watermark_is_where_the_log_starts_then(
    desk: Desk, version: int, offset: int, answer: tuple[int, int]
) -> None:
    assert ask(desk, ("t", 0, offset), version=version) == {("t", 0): answer}


def test_what_cannot_be_done_changes_nothing_and_keeps_nothing_else(desk: Desk) -> None:
    desk.replicas.partitions["t", 2] = FakePartition(FakeLog(high_watermark=3), is_leader=False)
    desk.replicas.partitions["t", 3] = FakePartition(None)
    desk.replicas.partitions["t", 4] = FakePartition(None)
    desk.replicas.local.add(("t", 4))
    answers = ask(desk, *(("t", index, 6) for index in (0, 2, 3, 4, 9, -1)), ("unknown", 0, -1), ("t", 1, 11))
    assert answers == {
        ("t", 0): (Err.NONE, 6),
        ("t", 2): (Err.NOT_LEADER_OR_FOLLOWER, -1),
        ("t", 3): (Err.NOT_LEADER_OR_FOLLOWER, -1),
        ("t", 4): (Err.KAFKA_STORAGE_ERROR, -1),
        ("t", 9): (Err.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ("t", -1): (Err.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ("unknown", 0): (Err.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ("t", 1): (Err.OFFSET_OUT_OF_RANGE, -1),
    }
    assert desk.replicas.raised == [{("t", 0): 6}]


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        ("compact", Err.POLICY_VIOLATION),
        ("compact,delete", Err.NONE),
        ("delete", Err.NONE),
        ("", Err.NONE),
    ],
)
def test_records_of_a_topic_that_is_only_compacted_are_not_deleted(desk: Desk, policy: str, error: int) -> None:
    asyncio.run(desk.controller.create_topics([NewTopic("t", 1, 1, configs={"cleanup.policy": policy})]))
    assert ask(desk, ("t", 0, 6))["t", 0][0] == error


def test_internal_topics_keep_their_records(desk: Desk) -> None:
    desk.replicas.partitions["__consumer_offsets", 0] = FakePartition(FakeLog(high_watermark=3))
    answers = ask(desk, ("__consumer_offsets", 0, 1), ("__consumer_offsets", 7, 1))
    assert [error for error, _ in answers.values()] == [Err.INVALID_TOPIC_EXCEPTION, Err.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_log_whose_files_failed_is_a_storage_error(desk: Desk) -> None:
    desk.replicas.broken.add(("t", 1))
    assert ask(desk, ("t", 0, 6), ("t", 1, 6)) == {("t", 0): (Err.NONE, 6), ("t", 1): (Err.KAFKA_STORAGE_ERROR, -1)}


def test_of_a_partition_named_twice_the_last_word_counts(desk: Desk) -> None:
    assert ask(desk, ("t", 0, 9), ("t", 1, 6), ("t", 0, 7)) == {("t", 0): (Err.NONE, 7), ("t", 1): (Err.NONE, 6)}


def test_a_request_for_nothing_is_answered_with_nothing(desk: Desk) -> None:
    assert ask(desk) == {}
    assert desk.replicas.raised == []
