"""Topics: Metadata, CreateTopics, DeleteTopics, CreatePartitions, DescribeTopicPartitions, reassignments."""

import json
from typing import Any

import pytest

from kbroker.protocol.messages import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeTopicPartitionsRequest,
    ListPartitionReassignmentsRequest,
    MetadataRequest,
)
from kbroker.protocol.records import PartitionChangeRecord
from kbroker.tests.unit.api.desk import Desk, registration

Wanted = CreateTopicsRequest.CreatableTopic
Setting = CreateTopicsRequest.CreatableTopicConfig
NOBODY = b"\x01" * 16


def create(desk: Desk, *names: str, partitions: int = 1) -> None:
    request = CreateTopicsRequest(
        topics=[Wanted(name=one, num_partitions=partitions, replication_factor=1) for one in names]
    )
    assert [one.error_code for one in desk.ask(request, 7).topics] == [0] * len(names)


def by_name(*names: str, **more: Any) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequest.Topic(name=name) for name in names], **more)


def errors(response: Any) -> dict[Any, int]:
    return {topic.name or topic.topic_id: topic.error_code for topic in response.topics}


@pytest.mark.parametrize("version", range(14))
def test_metadata_of_every_version_names_the_broker_and_the_topic(version: int) -> None:
    desk = Desk()
    create(desk, "a", partitions=2)
    answer = desk.ask(by_name("a"), version)
    assert [(one.node_id, one.host, one.port) for one in answer.brokers] == [(1, "broker.example", 9092)]
    (topic,) = answer.topics
    assert (topic.error_code, topic.name) == (0, "a")
    assert [(one.partition_index, one.leader_id, one.isr_nodes) for one in topic.partitions] == [
        (0, 1, [1]),
        (1, 1, [1]),
    ]
    if version >= 2:
        assert answer.cluster_id == "a-cluster-id"
    if version >= 10:
        assert topic.topic_id == desk.controller.image.topics["a"].topic_id


def test_metadata_v0_with_no_topic_means_all_and_v1_means_none() -> None:
    desk = Desk()
    create(desk, "a", "b")
    assert errors(desk.ask(MetadataRequest(topics=[]), 0)) == {"a": 0, "b": 0}
    assert errors(desk.ask(MetadataRequest(topics=[]), 1)) == {}
    assert errors(desk.ask(MetadataRequest(topics=None), 1)) == {"a": 0, "b": 0}


def test_metadata_creates_an_unknown_topic_and_answers_with_it() -> None:
    desk = Desk(num_partitions=3)
    (topic,) = desk.ask(by_name("new"), 12).topics
    assert topic.error_code == 0
    assert len(topic.partitions) == 3
    assert "new" in desk.controller.image.topics


def test_a_failed_auto_creation_is_logged_once_with_its_reason() -> None:
    desk = Desk(default_replication_factor=3)
    for _ in range(3):
        assert errors(desk.ask(by_name("new", "newer"), 12)) == {"new": 38, "newer": 38}
        desk.gateway.forget_answers()
    line = json.loads(desk.logged())
    assert (line["event"], line["level"], line["topic"]) == ("topic auto-creation failed", "warning", "new")
    assert line["error"] == "INVALID_REPLICATION_FACTOR"
    assert "only 1 broker(s) are registered" in line["reason"]
    assert (line["peer"], line["client_id"], line["count"]) == ("127.0.0.1:50000", "a-client", 2)


def test_an_invalid_name_is_logged_where_it_would_have_been_created_and_others_are_created() -> None:
    desk = Desk()
    bad = "b d" + "x" * 30_000
    assert errors(desk.ask(by_name(bad, "new"), 12)) == {bad: 17, "new": 0}
    line = json.loads(desk.logged())
    assert (line["error"], line["topic"][:3]) == ("INVALID_TOPIC_EXCEPTION", "b d")
    assert "the length of 'b d" in line["reason"]
    assert len(line["topic"]) + len(line["reason"]) < 1000
    desk = Desk(auto_create_topics_enable=False)
    assert errors(desk.ask(by_name("b d"), 12)) == {"b d": 17}
    assert desk.logged() == ""


def test_metadata_creates_nothing_when_the_client_or_the_broker_forbids_it() -> None:
    desk = Desk()
    assert errors(desk.ask(by_name("new", allow_auto_topic_creation=False), 12)) == {"new": 3}
    desk = Desk(auto_create_topics_enable=False)
    assert errors(desk.ask(by_name("new"), 12)) == {"new": 3}
    assert not desk.controller.image.topics


def test_metadata_v3_has_no_way_to_forbid_creation() -> None:
    desk = Desk()
    assert errors(desk.ask(by_name("new"), 3)) == {"new": 0}


def test_metadata_refuses_a_bad_name_and_creates_the_others() -> None:
    assert errors(Desk().ask(by_name("bad name", "good"), 12)) == {"bad name": 17, "good": 0}


def test_metadata_names_each_topic_once() -> None:
    desk = Desk()
    create(desk, "a")
    topic_id = desk.controller.image.topics["a"].topic_id
    request = by_name("a", "a")
    assert request.topics is not None
    request.topics.append(MetadataRequest.Topic(name=None, topic_id=topic_id))
    assert len(desk.ask(request, 12).topics) == 1


def test_metadata_by_id_finds_the_topic_or_answers_unknown_topic_id() -> None:
    desk = Desk()
    create(desk, "a")
    topic_id = desk.controller.image.topics["a"].topic_id
    asked = [MetadataRequest.Topic(name=None, topic_id=one) for one in (topic_id, NOBODY)]
    known, unknown = desk.ask(MetadataRequest(topics=asked), 12).topics
    assert (known.name, known.error_code) == ("a", 0)
    assert (unknown.name, unknown.topic_id, unknown.error_code) == (None, NOBODY, 100)


@pytest.mark.parametrize("version", [10, 11])
def test_metadata_by_id_before_v12_is_an_invalid_request(version: int) -> None:
    (topic,) = Desk().ask(MetadataRequest(topics=[MetadataRequest.Topic(name=None, topic_id=NOBODY)]), version).topics
    assert topic.error_code == 42


def test_metadata_tells_authorized_operations_only_when_asked() -> None:
    desk = Desk()
    create(desk, "a")
    plain = desk.ask(by_name("a"), 8)
    assert plain.cluster_authorized_operations == plain.topics[0].topic_authorized_operations == -2147483648
    asked = by_name("a", include_cluster_authorized_operations=True, include_topic_authorized_operations=True)
    full = desk.ask(asked, 8)
    assert (full.cluster_authorized_operations, full.topics[0].topic_authorized_operations) == (8096, 3576)


def test_metadata_leaves_out_fenced_brokers_and_has_no_leader_among_them() -> None:
    desk = Desk()
    create(desk, "a")
    desk.controller.apply([registration(2)])
    assert [one.node_id for one in desk.ask(by_name("a"), 12).brokers] == [1, 2]
    desk.controller.apply([registration(1, fenced=True)])
    answer = desk.ask(by_name("a"), 12)
    assert [one.node_id for one in answer.brokers] == [2]
    (partition,) = answer.topics[0].partitions
    assert (partition.error_code, partition.leader_id, partition.offline_replicas) == (5, -1, [1])


def test_metadata_of_a_leader_without_this_listener_says_so_from_v6_on() -> None:
    desk = Desk()
    create(desk, "a")
    desk.controller.apply([registration(1, listener="OTHER")])
    assert [one.error_code for one in desk.ask(by_name("a"), 6).topics[0].partitions] == [72]
    assert [one.error_code for one in desk.ask(by_name("a"), 5).topics[0].partitions] == [5]


@pytest.mark.parametrize("version", range(2, 8))
def test_create_topics_of_every_version_creates(version: int) -> None:
    desk = Desk()
    wanted = Wanted(
        name="a", num_partitions=2, replication_factor=1, configs=[Setting(name="retention.ms", value="1000")]
    )
    (result,) = desk.ask(CreateTopicsRequest(topics=[wanted]), version).topics
    assert (result.name, result.error_code, result.error_message) == ("a", 0, None)
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (2, 1)
        settings = {one.name: (one.value, one.config_source) for one in result.configs}
        assert settings["retention.ms"] == ("1000", 1)
        assert settings["cleanup.policy"] == ("delete", 5)
    if version >= 7:
        assert result.topic_id == desk.controller.image.topics["a"].topic_id


def test_create_topics_answers_each_topic_by_itself() -> None:
    desk = Desk()
    create(desk, "a")
    one = {"num_partitions": 1, "replication_factor": 1}
    wanted = [
        Wanted(name="a", **one),
        Wanted(name="bad name", **one),
        Wanted(name="twice", **one),
        Wanted(name="twice", **one),
        Wanted(name="none", num_partitions=0, replication_factor=1),
        Wanted(name="five", num_partitions=1, replication_factor=5),
        Wanted(name="odd", configs=[Setting(name="x", value="y")], **one),
        Wanted(name="good", num_partitions=-1, replication_factor=-1),
    ]
    answer = desk.ask(CreateTopicsRequest(topics=wanted), 7)
    assert errors(answer) == {"a": 36, "bad name": 17, "twice": 42, "none": 37, "five": 38, "odd": 40, "good": 0}


def test_create_topics_that_only_validates_creates_nothing() -> None:
    desk = Desk()
    wanted = Wanted(name="a", num_partitions=1, replication_factor=1)
    (result,) = desk.ask(CreateTopicsRequest(topics=[wanted], validate_only=True), 7).topics
    assert result.error_code == 0
    assert not desk.controller.image.topics


def test_delete_topics_by_name_and_by_id() -> None:
    desk = Desk()
    create(desk, "a", "b", "c")
    topic_id = desk.controller.image.topics["b"].topic_id
    state = DeleteTopicsRequest.DeleteTopicState
    asked = [
        state(name="a"),
        state(name=None, topic_id=topic_id),
        state(name="nope"),
        state(name=None, topic_id=NOBODY),
    ]
    answer = desk.ask(DeleteTopicsRequest(topics=asked), 6)
    assert {one.name or one.topic_id: one.error_code for one in answer.responses} == {
        "a": 0,
        "b": 0,
        "nope": 3,
        NOBODY: 100,
    }
    assert list(desk.controller.image.topics) == ["c"]


def test_delete_topics_refuses_what_names_a_topic_twice_or_not_at_all() -> None:
    desk = Desk()
    create(desk, "a", "b")
    state = DeleteTopicsRequest.DeleteTopicState
    topic_id = desk.controller.image.topics["b"].topic_id
    asked = [state(name="a"), state(name="a"), state(name="b", topic_id=topic_id), state(name=None)]
    answer = desk.ask(DeleteTopicsRequest(topics=asked), 6)
    assert [one.error_code for one in answer.responses] == [42, 42, 42]
    assert set(desk.controller.image.topics) == {"a", "b"}


@pytest.mark.parametrize("version", range(1, 6))
def test_delete_topics_before_v6_takes_names(version: int) -> None:
    desk = Desk()
    create(desk, "a")
    answer = desk.ask(DeleteTopicsRequest(topic_names=["a", "nope"]), version)
    assert {one.name: one.error_code for one in answer.responses} == {"a": 0, "nope": 3}


@pytest.mark.parametrize("version", range(4))
def test_create_partitions_adds_and_refuses_by_topic(version: int) -> None:
    desk = Desk()
    create(desk, "a", "b")
    wanted = CreatePartitionsRequest.CreatePartitionsTopic
    asked = [
        wanted(name="a", count=3, assignments=None),
        wanted(name="nope", count=3, assignments=None),
        wanted(name="b", count=1, assignments=None),
    ]
    answer = desk.ask(CreatePartitionsRequest(topics=asked), version)
    assert {one.name: one.error_code for one in answer.results} == {"a": 0, "nope": 3, "b": 37}
    assert len(desk.controller.image.topics["a"].partitions) == 3


def test_create_partitions_of_one_topic_twice_is_an_invalid_request() -> None:
    desk = Desk()
    create(desk, "a")
    wanted = CreatePartitionsRequest.CreatePartitionsTopic
    asked = [wanted(name="a", count=count, assignments=None) for count in (2, 3)]
    (result,) = desk.ask(CreatePartitionsRequest(topics=asked), 3).results
    assert result.error_code == 42


def describe(desk: Desk, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    return desk.ask(
        DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=cursor and DescribeTopicPartitionsRequest.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
        ),
        0,
    )


def pages(response: Any) -> list[tuple[str, list[int]]]:
    return [(topic.name, [one.partition_index for one in topic.partitions]) for topic in response.topics]


def test_describe_topic_partitions_goes_through_sorted_topics_in_pages() -> None:
    desk = Desk()
    create(desk, "b", "a", partitions=2)
    first = describe(desk, limit=3)
    assert pages(first) == [("a", [0, 1]), ("b", [0])]
    assert (first.next_cursor.topic_name, first.next_cursor.partition_index) == ("b", 1)
    second = describe(desk, limit=3, cursor=("b", 1))
    assert pages(second) == [("b", [1])]
    assert second.next_cursor is None


def test_describe_topic_partitions_puts_the_cursor_on_the_next_topic_when_a_page_is_just_full() -> None:
    desk = Desk()
    create(desk, "b", "a", partitions=2)
    answer = describe(desk, limit=2)
    assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == ("b", 0)


def test_describe_topic_partitions_tells_unknown_and_bad_names() -> None:
    assert errors(describe(Desk(), "nope", "b ad")) == {"b ad": 17, "nope": 3}


@pytest.mark.parametrize("cursor", [("a", -1), ("aa", 0)])
def test_describe_topic_partitions_refuses_a_cursor_that_points_nowhere(cursor: tuple[str, int]) -> None:
    desk = Desk()
    create(desk, "a", "b")
    assert set(errors(describe(desk, "a", "b", cursor=cursor)).values()) == {42}


def test_reassignments_are_listed_while_they_last() -> None:
    desk = Desk()
    create(desk, "a", "b")
    assert desk.ask(ListPartitionReassignmentsRequest(topics=None), 0).topics == []
    topic_id = desk.controller.image.topics["b"].topic_id
    desk.controller.apply(
        [PartitionChangeRecord(partition_id=0, topic_id=topic_id, replicas=[1, 2], adding_replicas=[2])]
    )
    (topic,) = desk.ask(ListPartitionReassignmentsRequest(topics=None), 0).topics
    assert (topic.name, [(one.partition_index, one.adding_replicas) for one in topic.partitions]) == ("b", [(0, [2])])
