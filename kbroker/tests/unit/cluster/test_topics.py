"""Codes and messages are those of Apache Kafka 4.3.1 for the same requests."""

import pytest

from kbroker.cluster.topics import (
    Decision,
    NewTopic,
    create_partitions,
    create_topics,
    delete_topics,
)
from kbroker.protocol.message import ZERO_UUID
from kbroker.protocol.records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from kbroker.tests.unit.cluster.given import cluster, rules, uuid_of, with_topics


def one(decision: Decision) -> tuple[int, str | None]:
    assert len(decision.results) == 1
    return decision.results[0].error_code, decision.results[0].error_message


def create(topic: NewTopic) -> tuple[int, str | None]:
    decision = create_topics(
        with_topics(cluster(1), NewTopic("alpha", 1, 1), NewTopic("my.topic", 1, 1)), [topic], rules()
    )
    assert bool(decision.records) == (decision.results[0].error_code == 0)
    return one(decision)


def test_a_topic_becomes_its_records_in_kafkas_order() -> None:
    decision = create_topics(
        cluster(1), [NewTopic("t", 2, 1, configs={"retention.ms": "5", "cleanup.policy": "compact"})], rules()
    )
    assert decision.results[0].topic_id == uuid_of(1)
    assert (decision.results[0].num_partitions, decision.results[0].replication_factor) == (2, 1)
    partition = PartitionRecord(
        partition_id=0, topic_id=uuid_of(1), replicas=[1], isr=[1], leader=1, leader_epoch=0, partition_epoch=0,
        directories=[uuid_of(201)],
    )  # fmt: skip
    second = PartitionRecord(
        partition_id=1, topic_id=uuid_of(1), replicas=[1], isr=[1], leader=1, leader_epoch=0, partition_epoch=0,
        directories=[uuid_of(201)],
    )  # fmt: skip
    assert decision.records == [
        TopicRecord(name="t", topic_id=uuid_of(1)),
        ConfigRecord(resource_type=2, resource_name="t", name="cleanup.policy", value="compact"),
        ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5"),
        partition,
        second,
    ]


def test_defaults_come_from_the_broker() -> None:
    decision = create_topics(cluster(1, 2, 3), [NewTopic("t")], rules(num_partitions=4, default_replication_factor=2))
    assert (decision.results[0].num_partitions, decision.results[0].replication_factor) == (4, 2)


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (NewTopic("alpha", 1, 1), 36, "Topic 'alpha' already exists."),
        (NewTopic("", 1, 1), 17, "Topic name is invalid: the empty string is not allowed"),
        (NewTopic(".", 1, 1), 17, "Topic name is invalid: '.' is not allowed"),
        (NewTopic("..", 1, 1), 17, "Topic name is invalid: '..' is not allowed"),
        (NewTopic("a b", 1, 1), 17, "Topic name is invalid: 'a b' contains one or more characters other than ASCII "
         "alphanumerics, '.', '_' and '-'"),
        (NewTopic("my_topic", 1, 1), 17, "Topic 'my_topic' collides with existing topic: my.topic"),
        (NewTopic("p", 0, 1), 37, "Number of partitions was set to an invalid non-positive value."),
        (NewTopic("p", -2, 1), 37, "Number of partitions was set to an invalid non-positive value."),
        (NewTopic("p", 1, 0), 38, "Replication factor must be larger than 0, or -1 to use the default value."),
        (NewTopic("p", 1, 2), 38, "Unable to replicate the partition 2 time(s): The target replication factor of 2 "
         "cannot be reached because only 1 broker(s) are registered or some brokers have all their log directories "
         "cordoned."),
        (NewTopic("p", 1, 1, configs={"nope": "1"}), 40, "Unknown topic config name: nope"),
        (NewTopic("p", 1, 1, configs={"segment.bytes": "1000"}), 40, "Invalid value 1000 for configuration "
         "segment.bytes: Value must be at least 1048576"),
    ],
)  # fmt: skip
def test_a_topic_that_cannot_be_is_refused_as_kafka_does(topic: NewTopic, code: int, message: str) -> None:
    assert create(topic) == (code, message)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("a" * 250, 1, 1), 17),
        (NewTopic("a" * 249, 1, 1), 0),
        (NewTopic("m", 3, -1, [(0, [1])]), 42),
        (NewTopic("m", -1, 1, [(0, [1])]), 42),
        (NewTopic("m", assignments=[(0, [99])]), 39),
        (NewTopic("m", assignments=[(1, [1])]), 39),
        (NewTopic("m", assignments=[(0, [1]), (0, [1])]), 39),
        (NewTopic("m", assignments=[(0, [])]), 39),
        (NewTopic("m", assignments=[(0, [1, 1])]), 39),
        (NewTopic("m", assignments=[(0, [1]), (1, [1])]), 0),
        (NewTopic("__cluster_metadata", 1, 1), 42),
        (NewTopic("many", 10_001, 1), 44),
        (NewTopic("n", 1, 1, configs={"retention.ms": None}), 40),
    ],
)
def test_each_condition_has_kafkas_code(topic: NewTopic, code: int) -> None:
    assert create(topic)[0] == code


def test_a_name_given_twice_in_one_request_gets_one_refusal() -> None:
    decision = create_topics(cluster(1), [NewTopic("t", 1, 1), NewTopic("t", 2, 1), NewTopic("u", 1, 1)], rules())
    assert [(result.name, result.error_code) for result in decision.results] == [("t", 42), ("u", 0)]


def test_two_new_names_of_one_request_may_collide_as_kafka_lets_them() -> None:
    decision = create_topics(cluster(1), [NewTopic("a.b", 1, 1), NewTopic("a_b", 1, 1)], rules())
    assert [result.error_code for result in decision.results] == [0, 0]


def test_one_bad_topic_does_not_spoil_the_others() -> None:
    decision = create_topics(cluster(1), [NewTopic("bad name", 1, 1), NewTopic("good", 1, 1)], rules())
    assert [result.error_code for result in decision.results] == [17, 0]
    assert [record.name for record in decision.records if isinstance(record, TopicRecord)] == ["good"]


def test_partitions_are_added_behind_the_present_ones() -> None:
    image = with_topics(cluster(1), NewTopic("t", 2, 1))
    result, records = create_partitions(image, "t", 4, None, rules())
    assert result.error_code == 0
    assert [record.partition_id for record in records if isinstance(record, PartitionRecord)] == [2, 3]


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code"),
    [
        ("t", 2, None, 37),
        ("t", -1, None, 37),
        ("t", 3, [[]], 39),
        ("t", 1, None, 37),
        ("nope", 3, None, 3),
        ("t", 4, [[1]], 39),
        ("t", 3, [[9]], 39),
        ("t", 3, [[1, 1]], 39),
        ("t", 3, [[1]], 0),
        ("t", 100_000, None, 44),
    ],
)
def test_adding_partitions_answers_as_kafka(
    name: str, count: int, assignments: list[list[int]] | None, code: int
) -> None:
    image = with_topics(cluster(1), NewTopic("t", 2, 1))
    result, records = create_partitions(image, name, count, assignments, rules())
    assert result.error_code == code
    assert bool(records) == (code == 0)


def test_topics_are_deleted_by_name_and_by_id() -> None:
    image = with_topics(cluster(1), NewTopic("a", 1, 1), NewTopic("b", 1, 1), NewTopic("c", 1, 1))
    decision = delete_topics(image, ["a", "nope"], [uuid_of(2), uuid_of(99)])
    assert [(result.name, result.topic_id, result.error_code) for result in decision.results] == [
        ("a", uuid_of(1), 0),
        ("nope", ZERO_UUID, 3),
        ("b", uuid_of(2), 0),
        (None, uuid_of(99), 100),
    ]
    assert decision.records == [RemoveTopicRecord(topic_id=uuid_of(1)), RemoveTopicRecord(topic_id=uuid_of(2))]


def test_deleting_can_be_disabled() -> None:
    image = with_topics(cluster(1), NewTopic("a", 1, 1))
    assert one(delete_topics(image, ["a"], [], enabled=False))[0] == 73


def test_a_topic_named_and_identified_in_one_request_is_not_deleted() -> None:
    image = with_topics(cluster(1), NewTopic("a", 1, 1))
    decision = delete_topics(image, ["a"], [uuid_of(1)])
    assert one(decision) == (42, "The provided topic name maps to an ID that was already supplied.")
    assert decision.records == []


def test_a_topic_asked_for_twice_is_not_deleted() -> None:
    image = with_topics(cluster(1), NewTopic("a", 1, 1))
    assert one(delete_topics(image, ["a", "a"], [])) == (42, "Duplicate topic name.")
    assert one(delete_topics(image, [], [uuid_of(1), uuid_of(1)])) == (42, "Duplicate topic id.")


def test_an_unknown_topic_is_refused_in_kafkas_words() -> None:
    assert one(delete_topics(cluster(1), ["x"], [])) == (3, "This server does not host this topic-partition.")
    assert one(delete_topics(cluster(1), [], [uuid_of(9)])) == (100, "This server does not host this topic ID.")


class Reluctant(list[str]):
    """Names that cannot be searched one by one: a request may hold a hundred thousand."""

    def count(self, _value: object) -> int:
        raise AssertionError("searched from end to end")

    def __contains__(self, _value: object) -> bool:
        raise AssertionError("searched from end to end")


def test_many_names_in_one_request_are_not_compared_with_each_other() -> None:
    names = Reluctant(f"n{number}" for number in range(10))
    decision = delete_topics(cluster(1), names, [])
    assert [result.error_code for result in decision.results] == [3] * 10
