from __future__ import annotations

from pathlib import Path

import pytest

from kbroker._core.api.direct import DirectCaller
from kbroker.protocol import codec
from kbroker.protocol.messages.k03_metadata import MetadataRequest, MetadataResponse
from kbroker.tests.unit.core.api.given import APIS, BODIES, NODE, Node, topic_id, unframe

VERSIONS = range(14)
NOT_REQUESTED = -2147483648


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(tmp_path)
    node.calls = DirectCaller(node.clock, node.view, {**APIS, 3: (0, 13, 9, True)}, BODIES)
    node.topic("t", partitions=2)
    node.topic("__internal", internal=True)
    for handles in node.topics.values():
        for handle in handles:
            handle.place([NODE, 2], [NODE])
    node.topics["t"][1].follow(2, 7)
    publish(node)
    return node


def publish(node: Node, cluster_id: str | None = "cluster") -> None:
    topics = [(name, topic_id(name), name.startswith("_"), handles) for name, handles in node.topics.items()]
    node.view.publish(topics, node.endpoints, cluster_id, NODE)


def expected(version: int, *names: str) -> bytes:
    """What the control side would write for these topics, by the plan."""
    leaders = {"t": [(NODE, 0), (2, 7)], "__internal": [(NODE, 0)]}
    response = MetadataResponse(
        cluster_id="cluster",
        controller_id=NODE,
        brokers=[
            MetadataResponse.Broker(node_id=1, host="here", port=9092, rack=None),
            MetadataResponse.Broker(node_id=2, host="there", port=9093, rack="r1"),
        ],
        topics=[
            MetadataResponse.Topic(
                name=name,
                topic_id=topic_id(name),
                is_internal=name.startswith("_"),
                partitions=[
                    MetadataResponse.Partition(
                        partition_index=index, leader_id=leader, leader_epoch=epoch, replica_nodes=[1, 2], isr_nodes=[1]
                    )
                    for index, (leader, epoch) in enumerate(leaders[name])
                ],
                topic_authorized_operations=NOT_REQUESTED,
            )
            for name in names
        ],
        cluster_authorized_operations=NOT_REQUESTED,
    )
    return codec.encode_response(response, version, 7)


def named(*names: str, **fields: object) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequest.Topic(name=name) for name in names], **fields)


@pytest.mark.parametrize("version", VERSIONS)
def test_all_topics_are_answered_as_the_plan_would_write_them(node: Node, version: int) -> None:
    request = MetadataRequest(topics=None if version >= 1 else [])
    outcome, reply, _ = node.send(request, version)
    assert outcome == "READY"
    assert unframe(reply) == expected(version, "t", "__internal")


@pytest.mark.parametrize("version", VERSIONS)
def test_named_topics_come_in_the_order_asked_for(node: Node, version: int) -> None:
    outcome, reply, _ = node.send(named("__internal", "t", "__internal"), version)
    assert outcome == "READY"
    assert unframe(reply) == expected(version, "__internal", "t")


@pytest.mark.parametrize("version", range(1, 14))
def test_no_topics_is_not_all_of_them(node: Node, version: int) -> None:
    _, reply, _ = node.send(MetadataRequest(topics=[]), version)
    assert unframe(reply) == expected(version)


@pytest.mark.parametrize("version", [12, 13])
def test_topics_may_be_asked_for_by_id(node: Node, version: int) -> None:
    request = MetadataRequest(topics=[MetadataRequest.Topic(name=None, topic_id=topic_id("t"))])
    _, reply, _ = node.send(request, version)
    assert unframe(reply) == expected(version, "t")


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (named("t", "unknown"), 12),
        (named("t", include_topic_authorized_operations=True), 12),
        (named("t", include_cluster_authorized_operations=True), 10),
        (MetadataRequest(topics=[MetadataRequest.Topic(name=None, topic_id=b"x" * 16)]), 12),
        (MetadataRequest(topics=[MetadataRequest.Topic(name=None)]), 12),
        (MetadataRequest(topics=[MetadataRequest.Topic(name="t", topic_id=topic_id("t"))]), 11),
    ],
)
def test_what_the_table_cannot_tell_is_posted(node: Node, request_: MetadataRequest, version: int) -> None:
    assert node.send(request_, version)[:2] == ("POST", None)


def test_a_broker_that_is_not_alive_is_the_control_sides_to_explain(node: Node) -> None:
    del node.endpoints[1]
    publish(node)
    assert node.send(named("t"), 12)[0] == "POST"
    assert node.send(named("__internal"), 12)[0] == "POST"


def test_a_table_without_a_cluster_id_is_not_asked(node: Node) -> None:
    publish(node, None)
    assert node.send(named("t"), 12)[0] == "POST"


def test_a_partition_that_was_not_placed_is_posted(node: Node) -> None:
    node.topic("new")
    publish(node)
    assert node.send(named("new"), 12)[0] == "POST"
    assert node.send(named("t"), 12)[0] == "READY"


@pytest.mark.parametrize("version", VERSIONS)
def test_metadata_cut_anywhere_closes(node: Node, version: int) -> None:
    frame = codec.encode_request(named("t", "__internal"), version, 7, "test")
    for length in range(8, len(frame)):
        assert node.calls.call(frame[:length])[0] == "CLOSE"
