"""Absurd requests: Kafka's error, and memory that does not grow with them."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker._core.errors import Err
from kbroker.coordinator.group.classic import PREPARING
from kbroker.coordinator.group.rebalance import PENDING_ROOM
from kbroker.coordinator.group.settings import GroupSettings
from kbroker.errors import UnknownMemberIdError, UnknownServerError
from kbroker.protocol.messages import JoinGroupRequest, SyncGroupRequest
from kbroker.tests.unit.coordinator.stage import Stage


def joining(group: str = "g", member: str = "", metadata: bytes = b"", **more: Any) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.Protocol(name="range", metadata=metadata)],
        **more,
    )


def a_stage(**settings: int) -> Stage:
    return Stage(GroupSettings(initial_rebalance_delay_ms=0, **settings), t=1)


def test_a_generation_that_no_batch_can_hold_is_refused_and_the_group_rebalances() -> None:
    stage = a_stage(max_record_bytes=10_000)
    stage.join("join", joining(), version=1)
    stage.advance(0)
    member_id = stage.answers["join"].member_id
    part = SyncGroupRequest.Assignment(member_id=member_id, assignment=bytes(10_000))
    sync = SyncGroupRequest(group_id="g", generation_id=1, member_id=member_id, assignments=[part])
    written = len(stage.log)
    assert stage.sync("sync", sync).error_code == Err.UNKNOWN_SERVER_ERROR
    assert len(stage.log) == written
    assert stage.group("g").state == PREPARING


@pytest.mark.parametrize("client_id", ["c", "c" * 30_000])
def test_ids_given_out_are_forgotten_when_they_are_too_many(client_id: str) -> None:
    most = 1 << 18
    stage = a_stage(pending_bytes_max=most)
    first = stage.join("first", joining(), client_id=client_id).member_id
    each = len(first) + PENDING_ROOM
    for number in range(most // each + 10):
        stage.join(number, joining(f"g{number % 7}"), client_id=client_id)
    held = [one for group_id in stage.shard.groups for one in stage.group(group_id).pending]
    assert most - 2 * each < sum(len(one) + PENDING_ROOM for one in held) <= most
    assert len(stage.timers) == len(held) + 1  # the expiry of offsets has one too
    assert isinstance(stage.join("late", joining(member=first)), UnknownMemberIdError)


@pytest.mark.parametrize("version", [1, 9])
def test_an_id_that_would_not_fit_a_string_founds_no_group(version: int) -> None:
    stage = a_stage()
    assert isinstance(stage.join("join", joining(), version=version, client_id="c" * 32_767), UnknownServerError)
    assert not stage.shard.groups
    assert not stage.log


@pytest.mark.parametrize(
    "metadata", [b"", b"\x00", b"\x00\x00\x7f\xff\xff\xff", b"\x00\x00\xff\xff\xff\xff", b"x" * 999]
)
def test_metadata_that_cannot_be_read_keeps_offsets_from_expiring(metadata: bytes) -> None:
    stage = a_stage()
    stage.join("join", joining(metadata=metadata), version=1)
    stage.advance(0)
    assert stage.answers["join"].error_code == Err.NONE
    assert stage.group("g").subscribed is None
    assert stage.group("g").is_subscribed("t")


def test_a_thousand_members_join_and_leave_with_work_that_grows_as_they_do() -> None:
    """Timers armed are a measure of work that no clock disturbs."""
    stage = a_stage()
    for number in range(1_000):
        stage.join(number, joining(), version=1)
    stage.advance(0)
    stage.advance(0)
    group = stage.group("g")
    assert len(group.members) == 1_000
    leader = stage.answers[0]
    sync = SyncGroupRequest(group_id="g", generation_id=1, member_id=leader.member_id)
    stage.sync("sync", sync)
    assert sum(len(step.timers) for step in stage.steps) < 5_000
    stage.check_replay()
