"""The hand-written readers of Produce and Fetch see what the plan codec wrote; no frame, however mutilated, hurts."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker._core.api import fetch_request
from kbroker._core.api.produce_request import describe as describe_produce
from kbroker.protocol import codec
from kbroker.protocol.messages.k00_produce import ProduceRequest
from kbroker.protocol.messages.k01_fetch import FetchRequest
from kbroker.protocol.messages.k02_list_offsets import ListOffsetsRequest
from kbroker.protocol.messages.k18_api_versions import ApiVersionsRequest
from kbroker.tests.unit.core.api import given as made
from kbroker.tests.unit.core.api.given import Node, ask, batch, of, produce_request

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(st.characters(codec="utf-8"), max_size=20)
ids = st.binary(min_size=16, max_size=16)

produce_requests = st.builds(
    ProduceRequest,
    transactional_id=st.none() | names,
    acks=st.integers(-(2**15), 2**15 - 1),
    timeout_ms=int32,
    topic_data=st.lists(
        st.builds(
            ProduceRequest.TopicProduceData,
            name=names,
            topic_id=ids,
            partition_data=st.lists(
                st.builds(
                    ProduceRequest.PartitionProduceData, index=int32, records=st.none() | st.binary(max_size=200)
                ),
                max_size=4,
            ),
        ),
        max_size=4,
    ),
)

fetch_requests = st.builds(
    FetchRequest,
    cluster_id=st.none() | names,
    max_wait_ms=int32,
    min_bytes=int32,
    max_bytes=int32,
    isolation_level=st.integers(-128, 127),
    session_id=int32,
    session_epoch=int32,
    topics=st.lists(
        st.builds(
            FetchRequest.FetchTopic,
            topic=names,
            topic_id=ids,
            partitions=st.lists(
                st.builds(
                    FetchRequest.FetchPartition,
                    partition=int32,
                    current_leader_epoch=int32,
                    fetch_offset=int64,
                    log_start_offset=int64,
                    partition_max_bytes=int32,
                    replica_directory_id=ids,
                    high_watermark=int64,
                ),
                max_size=4,
            ),
        ),
        max_size=4,
    ),
    rack_id=names,
)


def last_of_each(parts: list[Any], field: str) -> list[Any]:
    """A partition that is named twice counts once, as it was named last."""
    return list({getattr(part, field): part for part in parts}.values())


@settings(deadline=None)
@given(version=st.integers(3, 13), request=produce_requests)
def test_the_produce_reader_agrees_with_the_plan(version: int, request: ProduceRequest) -> None:
    body = codec.encode(request, version)
    assert describe_produce(body, version) == (
        request.transactional_id is not None,
        request.acks,
        request.timeout_ms,
        [
            (topic.topic_id if version >= 13 else topic.name.encode(), part.index, part.records)
            for topic in request.topic_data
            for part in last_of_each(topic.partition_data, "index")
        ],
    )
    if body:
        assert describe_produce(body[:-1], version) is None


@settings(deadline=None)
@given(
    version=st.integers(4, 18),
    request=fetch_requests,
    replica_id=int32,
    last_fetched_epoch=int32,
    forgotten=st.lists(st.tuples(names, ids, st.lists(int32, max_size=3)), max_size=3),
)
def test_the_fetch_reader_agrees_with_the_plan(
    version: int,
    request: FetchRequest,
    replica_id: int,
    last_fetched_epoch: int,
    forgotten: list[tuple[str, bytes, list[int]]],
) -> None:
    if version >= 15:
        request.replica_state = FetchRequest.ReplicaState(replica_id=replica_id, replica_epoch=3)
    else:
        request.replica_id = replica_id
    if version >= 7:
        request.forgotten_topics_data = [
            FetchRequest.ForgottenTopic(topic=name, topic_id=id, partitions=parts) for name, id, parts in forgotten
        ]
    if version >= 12:
        for topic in request.topics:
            for part in topic.partitions:
                part.last_fetched_epoch = last_fetched_epoch
    body = codec.encode(request, version)
    assert fetch_request.describe(body, version) == {
        "replica_id": replica_id,
        "max_wait_ms": request.max_wait_ms,
        "min_bytes": request.min_bytes,
        "max_bytes": request.max_bytes,
        "isolation_level": request.isolation_level,
        "session_id": request.session_id if version >= 7 else 0,
        "session_epoch": request.session_epoch if version >= 7 else -1,
        "partitions": [
            (
                topic.topic_id if version >= 13 else topic.topic.encode(),
                part.partition,
                part.current_leader_epoch if version >= 9 else -1,
                part.fetch_offset,
                part.last_fetched_epoch if version >= 12 else -1,
                part.partition_max_bytes,
            )
            for topic in request.topics
            for part in last_of_each(topic.partitions, "partition")
        ],
    }
    assert fetch_request.describe(body[:-1], version) is None


@settings(deadline=None)
@given(version=st.integers(3, 13), body=st.binary(max_size=300))
def test_the_produce_reader_survives_any_bytes(version: int, body: bytes) -> None:
    describe_produce(body, version)


@settings(deadline=None)
@given(version=st.integers(4, 18), body=st.binary(max_size=300))
def test_the_fetch_reader_survives_any_bytes(version: int, body: bytes) -> None:
    fetch_request.describe(body, version)


def mutilated(frame: bytes, chance: random.Random) -> bytes:
    data = bytearray(frame)
    for _ in range(chance.randint(1, 4)):
        what = chance.randrange(5)
        at = chance.randrange(2, len(data)) if len(data) > 2 else 0
        if what == 0:
            data[at : at + 1] = bytes([chance.randrange(256)])
        elif what == 1:
            del data[at : at + chance.randint(1, 8)]
        elif what == 2:
            data[at:at] = chance.randbytes(chance.randint(1, 8))
        elif what == 3:
            data[at : at + 4] = chance.choice([b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\x80\0\0\0"])
        else:
            del data[at:]
    return bytes(data)


@pytest.mark.parametrize("seed", range(8))
def test_mutilated_frames_are_answered_or_closed(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    node = Node(tmp_path)
    node.topic("t", partitions=2)
    node.produce([(0, batch(b"a", b"b"))])
    session = node.fetch([of("t", ask(0), ask(1))], session_epoch=0).session_id
    frames = [
        codec.encode_request(
            produce_request(
                [(0, batch(b"x", producer_id=1, producer_epoch=0, base_sequence=0)), (1, batch())], acks=acks
            ),
            version,
            7,
            "test",
        )
        for version in range(3, 14)
        for acks in (-1, 0, 1)
    ]
    for version in range(4, 19):
        fields = {"session_id": session, "session_epoch": 1} if version >= 7 else {}
        request = made.fetch_request(
            [of("t", ask(0), ask(1, 1)), of("x", ask())], max_wait_ms=50, min_bytes=1 << 20, **fields
        )
        frames.append(codec.encode_request(request, version, 7, "test"))
    frames += [codec.encode_request(ApiVersionsRequest(), version, 7, "test") for version in range(5)]
    bounds = [
        ListOffsetsRequest.ListOffsetsTopic(
            name="t", partitions=[ListOffsetsRequest.ListOffsetsPartition(timestamp=-1)]
        )
    ]
    frames += [
        codec.encode_request(ListOffsetsRequest(replica_id=-1, topics=bounds), version, 7, "test")
        for version in range(1, 12)
    ]
    for slot in range(3000):
        outcome, reply, reason = node.calls.call(mutilated(chance.choice(frames), chance), slot)
        assert (outcome == "READY") == (reply is not None)
        assert (outcome == "CLOSE") == (reason is not None)
        if slot % 50 == 0:
            node.clock.advance(60)
            while node.calls.collect() is not None:
                pass
    node.clock.advance(2**31)
    while node.calls.collect() is not None:
        pass
    assert node.calls.parked == 0
    assert node.fetch([of("t", ask(0))]).responses[0].partitions[0].error_code == 0
