"""A broker that stops while members wait: whoever waits is told to look for its coordinator, and the stop is clean."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kbroker
from kbroker._core.errors import Err
from kbroker.protocol import codec
from kbroker.protocol.messages import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kbroker.tests.integration.wire import Connection
from kbroker.tests.unit.net.harness import eventually

MINUTES_MS = 300_000  # how long a member would wait if nobody told it
NOT_READY = (Err.COORDINATOR_LOAD_IN_PROGRESS, Err.COORDINATOR_NOT_AVAILABLE, Err.NOT_COORDINATOR)


def joining(member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=MINUTES_MS,
        rebalance_timeout_ms=MINUTES_MS,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.Protocol(name="range", metadata=b"")],
    )


def id_of(connection: Connection) -> str:
    """A member id, once the group has a coordinator."""
    given: list[Any] = []

    def known() -> bool:
        connection.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        given[:] = [connection.ask(joining(), 9)]
        return given[0].error_code not in NOT_READY

    eventually(known)
    assert given[0].error_code == Err.MEMBER_ID_REQUIRED
    return str(given[0].member_id)


def state(connection: Connection) -> str:
    return str(connection.ask(DescribeGroupsRequest(groups=["g"]), 5).groups[0].group_state)


def test_a_parked_join_and_a_parked_sync_are_answered_by_a_stop(
    start_broker: Callable[..., kbroker.Broker], tmp_path: Path
) -> None:
    config = {"group.initial.rebalance.delay.ms": 0}
    broker = start_broker(tmp_path, config=config)
    with (
        Connection(broker.port) as leader,
        Connection(broker.port) as follower,
        Connection(broker.port) as late,
        Connection(broker.port) as looking,
    ):
        leader_id, follower_id = id_of(leader), id_of(follower)
        leader.send(joining(leader_id), 9)
        answer = codec.decode_response(JoinGroupResponse, 9, leader.receive())[1]
        follower.send(joining(follower_id), 9)
        eventually(lambda: state(looking) == "PreparingRebalance")
        generation = leader.ask(joining(leader_id), 9).generation_id
        assert generation == answer.generation_id + 1
        follower.receive()
        sync = SyncGroupRequest(
            group_id="g",
            generation_id=generation,
            member_id=follower_id,
            protocol_type="consumer",
            protocol_name="range",
        )
        follower.send(sync, 5)  # the leader does not sync: it waits
        late_id = id_of(late)
        follower_waits = follower
        broker.stop()
        synced = codec.decode_response(SyncGroupResponse, 5, follower_waits.receive())[1]
        assert synced.error_code == Err.NOT_COORDINATOR
        assert late_id
    assert not broker.failed


def test_a_join_that_waits_for_others_is_answered_by_a_stop_and_the_group_is_there_again(
    start_broker: Callable[..., kbroker.Broker], tmp_path: Path
) -> None:
    config = {"group.initial.rebalance.delay.ms": 0}
    broker = start_broker(tmp_path, config=config)
    with Connection(broker.port) as first, Connection(broker.port) as second:
        first_id = id_of(first)
        generation = first.ask(joining(first_id), 9).generation_id
        first.ask(SyncGroupRequest(group_id="g", generation_id=generation, member_id=first_id), 3)
        second.send(joining(id_of(second)), 9)
        eventually(lambda: state(first) == "PreparingRebalance")
        broker.stop()
        joined = codec.decode_response(JoinGroupResponse, 9, second.receive())[1]
        assert joined.error_code == Err.NOT_COORDINATOR
        assert second.is_closed()
    assert not broker.failed
    again = start_broker(tmp_path, config=config)
    with Connection(again.port) as looking:
        eventually(lambda: state(looking) == "Stable")  # as its last generation was written
