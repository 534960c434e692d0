"""Commits and heartbeats that take the short way end as they would have the long way, through messages and on_*().

Two coordinators over two logs on disk, in the same state and at the same time; one of them knows no short way. Whatever
they are asked, they give the same bytes, write the same log, and hold the same offsets and deadlines.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbroker._core.record.records import Record as LogRecord
from kbroker._core.record.records import build_batch, build_plain_batch
from kbroker._core.wire.express import read_commit, read_heartbeat
from kbroker.coordinator.group import consumer_records
from kbroker.coordinator.group.consumer_settings import ConsumerSettings
from kbroker.coordinator.group.member import Member, State
from kbroker.coordinator.group.runtime import GroupCoordinator
from kbroker.coordinator.group.settings import GroupSettings
from kbroker.coordinator.later import Later
from kbroker.coordinator.placement import OFFSETS_TOPIC
from kbroker.coordinator.step import Record
from kbroker.protocol import codec
from kbroker.protocol.messages import HeartbeatRequest, OffsetCommitRequest
from kbroker.protocol.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kbroker.tests.property.two_ways import CLIENT_IDS, NOW_MS, Ground, ask, harmed, on_both, topic_id
from kbroker.tests.unit.api.desk import Desk

TOPICS = {"t": 3, "another-topic": 1}
GENERATION, EPOCH = 3, 5
PLAIN_COMMIT, PLAIN_BEAT = 9, 4


def stored() -> list[Record]:
    """A classic group in its third generation with a dynamic and a static member, offsets, a consumer group."""
    members = [
        GroupMetadataValue.MemberMetadata(
            member_id=member_id,
            group_instance_id=instance_id,
            client_id="c",
            client_host="/h",
            rebalance_timeout=60_000,
            session_timeout=30_000,
            subscription=b"",
            assignment=b"",
        )
        for member_id, instance_id in (("m1", None), ("m2", "i2"))
    ]
    generation = GroupMetadataValue(
        protocol_type="consumer",
        generation=GENERATION,
        protocol="range",
        leader="m1",
        current_state_timestamp=NOW_MS,
        members=members,
    )
    offset = OffsetCommitValue(offset=7, metadata="", commit_timestamp=NOW_MS, topic_id=topic_id("t"))
    consumer = Member("m1", client_id="c", client_host="/h", topics=frozenset({"t"}), rebalance_timeout_ms=60_000)
    assigned = {topic_id("t"): {0: EPOCH - 1, 1: EPOCH}}
    return [
        Record(GroupMetadataKey(group="classic"), generation),
        Record(OffsetCommitKey(group="simple", topic="t", partition=0), offset),
        consumer_records.member_record("consumer", consumer),
        consumer_records.epoch_record("consumer", EPOCH, 0),
        consumer_records.target_record("consumer", "m1", {topic_id("t"): frozenset({0, 1})}),
        consumer_records.target_epoch_record("consumer", EPOCH, NOW_MS),
        consumer_records.current_record("consumer", consumer.moved(EPOCH, State.STABLE, assigned)),
    ]


class Edge:
    """A coordinator on a log of its own, behind a gateway."""

    def __init__(self, directory: Path, *, short: bool) -> None:
        self.ground = Ground(directory, OFFSETS_TOPIC, TOPICS, stored())
        self.clock = self.ground.clock
        self.coordinator = GroupCoordinator(
            self.ground.site,
            version=lambda: 1,
            settings=lambda: GroupSettings(offset_metadata_max_bytes=20),
            consumer_settings=lambda group_id: ConsumerSettings(),
        )
        self.desk = Desk(groups=self.coordinator)
        if not short:
            self.desk.gateway.know_no_short_way()

    async def start(self) -> None:
        self.coordinator.start()
        while self.coordinator.is_loading:
            await asyncio.sleep(0)

    def ask(self, frame: bytes) -> tuple[bytes | None, str | None]:
        return ask(self.desk, frame)[0]

    def holds(self) -> tuple[Any, ...]:
        shard = self.coordinator.shard_of("classic")
        assert shard is not None
        groups = [*shard.offsets.groups()]
        offsets = {one: dict(shard.offsets.of_group(one)) for one in groups}
        return self.ground.written(), offsets, sorted(shard.groups), self._deadlines()

    def _deadlines(self) -> dict[Any, int]:
        now_ms = self.clock.monotonic_ms()
        return {timer: at_ms - now_ms for timer, at_ms in self.coordinator.deadlines().items()}

    def close(self) -> None:
        self.coordinator.resign()
        self.ground.log.close(sync=False)


# ---- what clients send ----

GROUPS = st.sampled_from(["classic", "classic", "simple", "consumer", "new", "gr\u00fcppe", ""])
MEMBERS = st.sampled_from(["m1", "m1", "m2", "", "m3", "m\u00e9"])
INSTANCES = st.sampled_from([None, None, "i2", "i3"])
EPOCHS = st.sampled_from([GENERATION, EPOCH, EPOCH - 1, -1, 0, 99])
TEXTS = st.one_of(st.none(), st.text(max_size=24), st.just("x" * 20), st.just("x" * 21))


@st.composite
def commits(draw: st.DrawFn) -> tuple[OffsetCommitRequest, int]:
    version = draw(st.integers(2, 10))
    topics = [
        OffsetCommitRequest.Topic(
            name=name if version < 10 else "",
            topic_id=topic_id(name) if version >= 10 else bytes(16),
            partitions=[
                OffsetCommitRequest.Partition(
                    partition_index=draw(st.integers(-1, 3))
                    if draw(st.integers(0, 9)) == 0
                    else draw(st.integers(0, 0)),
                    committed_offset=draw(st.integers(-(2**63), 2**63 - 1)),
                    committed_leader_epoch=draw(st.integers(-1, 9)) if version >= 6 else -1,
                    committed_metadata=draw(TEXTS),
                )
                for _ in range(draw(st.integers(0, 3)))
            ],
        )
        for name in draw(st.lists(st.sampled_from(["t", "t", "another-topic", "missing"]), max_size=3))
    ]
    return OffsetCommitRequest(
        group_id=draw(GROUPS),
        generation_id_or_member_epoch=draw(EPOCHS),
        member_id=draw(MEMBERS),
        group_instance_id=draw(INSTANCES) if version >= 7 else None,
        retention_time_ms=draw(st.sampled_from([-1, -1, -1, 5_000])) if version <= 4 else -1,
        topics=topics,
    ), version


@st.composite
def heartbeats(draw: st.DrawFn) -> tuple[HeartbeatRequest, int]:
    version = draw(st.integers(0, 4))
    return HeartbeatRequest(
        group_id=draw(GROUPS),
        generation_id=draw(EPOCHS),
        member_id=draw(MEMBERS),
        group_instance_id=draw(INSTANCES) if version >= 3 else None,
    ), version


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    request, version = draw(st.one_of(commits(), heartbeats()))
    return codec.encode_request(request, version, draw(st.integers(0, 2**31 - 1)), draw(CLIENT_IDS))


def frames() -> st.SearchStrategy[bytes]:
    return harmed(requests())


# ---- the judge ----


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(
    asked=st.lists(frames(), min_size=1, max_size=12), steps=st.lists(st.integers(0, 20_000), min_size=12, max_size=12)
)
def test_both_ways_agree(asked: list[bytes], steps: list[int]) -> None:
    async def story(short: Edge, long: Edge) -> None:
        for frame, step in zip(asked, steps, strict=False):
            assert short.ask(frame) == long.ask(frame)
            for edge in (short, long):
                edge.clock.advance(step)
        assert short.holds() == long.holds()

    on_both(Edge, story)


@settings(max_examples=500)
@given(frames())
def test_what_is_read_is_what_the_codec_reads(frame: bytes) -> None:
    version = int.from_bytes(frame[2:4], "big")
    if frame[1] == HeartbeatRequest.KEY:
        beating = read_heartbeat(frame)
        if beating is not None:
            told, _ = codec.decode(HeartbeatRequest, version, frame, codec.decode_request_header(frame)[1])
            assert (beating.group_id, beating.generation_id) == (told.group_id, told.generation_id)
            assert (beating.member_id, beating.group_instance_id) == (told.member_id, told.group_instance_id)
        return
    found = read_commit(frame)
    decided = None if found is None else found.decide({}, lambda name: ("t", bytes(16), 1 << 30), tuple, NOW_MS, 99)
    if found is not None and decided is not None:
        asked, _ = codec.decode(OffsetCommitRequest, version, frame, codec.decode_request_header(frame)[1])
        assert (found.group_id, found.member_id) == (asked.group_id, asked.member_id)
        assert found.generation_id_or_member_epoch == asked.generation_id_or_member_epoch
        assert found.group_instance_id == asked.group_instance_id
        assert [(place[1], kept[0], kept[1], kept[2]) for place, kept in decided[2]] == [
            (one.partition_index, one.committed_offset, one.committed_leader_epoch, one.committed_metadata or "")
            for topic in asked.topics
            for one in topic.partitions
        ]


@settings(max_examples=300)
@given(st.sampled_from([b"\0\x08", b"\0\x0c"]), st.integers(0, 10), st.binary(max_size=80))
def test_any_bytes_are_read_or_not(key: bytes, version: int, rest: bytes) -> None:
    frame = key + version.to_bytes(2, "big") + rest
    read_heartbeat(frame)
    found = read_commit(frame)
    if found is not None:
        found.decide({}, lambda name: ("t", bytes(16), 3), tuple, NOW_MS, 20)


@given(
    st.lists(st.tuples(st.binary(max_size=40), st.one_of(st.none(), st.binary(max_size=400))), min_size=1, max_size=9)
)
def test_a_plain_batch_is_the_same_batch(pairs: list[tuple[bytes, bytes | None]]) -> None:
    records = [LogRecord(timestamp=NOW_MS, key=key, value=value) for key, value in pairs]
    assert build_plain_batch(pairs, NOW_MS) == build_batch(records)


# ---- that there is a short way at all ----


def commit(**fields: Any) -> bytes:
    version = fields.pop("version", PLAIN_COMMIT)
    part = OffsetCommitRequest.Partition(
        partition_index=1, committed_offset=5, committed_metadata=fields.pop("said", "")
    )
    name = fields.pop("topic", "t")
    asked = OffsetCommitRequest.Topic(name=name if version < 10 else "", topic_id=topic_id(name), partitions=[part])
    if version < 10:
        asked.topic_id = bytes(16)
    return codec.encode_request(OffsetCommitRequest(topics=[asked], **fields), version, 1, "c")


def beat(**fields: Any) -> bytes:
    return codec.encode_request(HeartbeatRequest(**fields), PLAIN_BEAT, 1, "c")


@pytest.mark.parametrize(
    ("frame", "short"),
    [
        (commit(group_id="simple"), True),
        (commit(group_id="simple", version=2), True),
        (commit(group_id="simple", version=10), True),
        (commit(group_id="classic", member_id="m1", generation_id_or_member_epoch=GENERATION), True),
        (commit(group_id="consumer", member_id="m1", generation_id_or_member_epoch=EPOCH), True),
        (commit(group_id="consumer", member_id="m1", generation_id_or_member_epoch=EPOCH - 1), False),
        (commit(group_id="classic", member_id="m1", generation_id_or_member_epoch=1), False),
        (commit(group_id="simple", topic="missing"), False),
        (commit(group_id="simple", said="x" * 21), False),
        (commit(group_id="simple", said="\u00fc"), False),
        (commit(group_id="new"), False),
        (beat(group_id="classic", member_id="m1", generation_id=GENERATION), True),
        (beat(group_id="classic", member_id="m2", generation_id=GENERATION, group_instance_id="i2"), True),
        (beat(group_id="classic", member_id="m2", generation_id=GENERATION, group_instance_id="i3"), False),
        (beat(group_id="consumer", member_id="m1", generation_id=EPOCH), False),
        (beat(group_id="new", member_id="m1", generation_id=1), False),
    ],
)
def test_what_is_plain_goes_the_short_way(frame: bytes, short: bool) -> None:
    async def story(edge: Edge, _: Edge) -> None:
        is_commit = frame[1] == OffsetCommitRequest.KEY
        take = edge.coordinator.take_commit if is_commit else edge.coordinator.take_heartbeat
        assert take(frame, Later()) is short

    on_both(Edge, story)


def test_an_append_that_fails_is_answered_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    async def story(short: Edge, long: Edge) -> None:
        for edge in (short, long):
            edge.ground.handle.follow(2, 1)
        frame = commit(group_id="simple")
        assert short.ask(frame) == long.ask(frame)
        assert short.ask(frame)[0] is not None

    on_both(Edge, story)
