"""ListOffsets of one partition's begin or end is answered in the data plane; all else is the control side's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbroker.protocol import codec
from kbroker.protocol.messages import ListOffsetsRequest, ListOffsetsResponse
from kbroker.tests.unit.core.api.given import NODE, Node, batch, whole

LATEST, EARLIEST = -1, -2
VERSIONS = range(1, 12)
Partition, Topic = ListOffsetsRequest.ListOffsetsPartition, ListOffsetsRequest.ListOffsetsTopic


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """Five records of which one is deleted, and the last ones are in an open transaction, of the third leader."""
    made = Node(tmp_path)
    (handle,) = made.topic("t")
    made.topic("other")
    made.produce([(0, batch(b"a", b"b", b"c"))])
    handle.lead(NODE, 2, 1, 1)
    handle.log.assign_epoch(2)
    begun = batch(b"d", b"e", producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    assert handle.append(begun).error == 0
    handle.log.raise_start(1)
    return made


def request(*asked: Partition, **fields: Any) -> ListOffsetsRequest:
    return ListOffsetsRequest(replica_id=-1, topics=[Topic(name="t", partitions=list(asked))], **fields)


def answered(node: Node, asked: ListOffsetsRequest, version: int) -> tuple[int, int, int, int]:
    outcome, reply, _ = node.send(asked, version)
    assert outcome == "READY"
    answer = whole(ListOffsetsResponse, version, reply)
    assert isinstance(answer, ListOffsetsResponse)
    (topic,) = answer.topics
    (part,) = topic.partitions
    assert (topic.name, part.partition_index) == ("t", 0)
    return part.error_code, part.timestamp, part.offset, part.leader_epoch


@pytest.mark.parametrize("version", VERSIONS)
def test_where_a_partition_begins_and_ends(node: Node, version: int) -> None:
    epochs = (0, 2) if version >= 4 else (-1, -1)
    assert answered(node, request(Partition(timestamp=EARLIEST)), version) == (0, -1, 1, epochs[0])
    assert answered(node, request(Partition(timestamp=LATEST)), version) == (0, -1, 5, epochs[1])
    if version >= 2:
        committed = request(Partition(timestamp=LATEST), isolation_level=1)
        assert answered(node, committed, version) == (0, -1, 3, epochs[1])
    if version >= 4:
        assert answered(node, request(Partition(timestamp=LATEST, current_leader_epoch=2)), version)[2] == 5


@pytest.mark.parametrize("version", [4, 6, 11])
@pytest.mark.parametrize(
    "asked",
    [
        request(),
        request(Partition(timestamp=0)),
        request(Partition(timestamp=-3)),
        request(Partition(timestamp=LATEST, current_leader_epoch=1)),
        request(Partition(timestamp=LATEST, current_leader_epoch=3)),
        request(Partition(timestamp=LATEST, partition_index=1)),
        request(Partition(timestamp=LATEST, partition_index=-1)),
        request(Partition(timestamp=LATEST), Partition(timestamp=LATEST, partition_index=1)),
        request(Partition(timestamp=LATEST), isolation_level=2),
        ListOffsetsRequest(replica_id=-1, topics=[]),
        ListOffsetsRequest(replica_id=-2, topics=[Topic(name="t", partitions=[Partition(timestamp=LATEST)])]),
        ListOffsetsRequest(replica_id=-1, topics=[Topic(name="gone", partitions=[Partition(timestamp=LATEST)])]),
        ListOffsetsRequest(
            replica_id=-1,
            topics=[Topic(name=name, partitions=[Partition(timestamp=LATEST)]) for name in ("t", "other")],
        ),
    ],
)
def test_everything_else_is_for_the_control_side(node: Node, version: int, asked: ListOffsetsRequest) -> None:
    assert node.send(asked, version) == ("POST", None, None)


def test_a_partition_that_another_leads_is_for_the_control_side(node: Node) -> None:
    node.topics["t"][0].follow(2, 3)
    assert node.send(request(Partition(timestamp=LATEST)), 7) == ("POST", None, None)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_that_is_cut_short_or_too_long_is_for_the_control_side(node: Node, version: int) -> None:
    frame = codec.encode_request(request(Partition(timestamp=LATEST)), version, 7, "test")
    assert node.calls.call(frame, 0)[0] == "READY"
    assert node.calls.call(frame + b"\0", 0)[0] == "POST"
    for length in range(8 + 6 + (version >= 6), len(frame)):
        assert node.calls.call(frame[:length], 0)[0] == "POST"


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(version=st.sampled_from(VERSIONS), body=st.binary(max_size=60))
def test_any_bytes_are_answered_or_posted(node: Node, version: int, body: bytes) -> None:
    header = codec.encode_request(ListOffsetsRequest(), version, 7, "test")[: 8 + 6 + (version >= 6)]
    assert node.calls.call(header + body, 0)[0] in ("READY", "POST")
