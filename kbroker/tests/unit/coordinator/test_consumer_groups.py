"""A consumer group, event by event: what a member is told, what is written, when time does something."""

from __future__ import annotations

import pytest

from kbroker.coordinator.group.consumer_settings import ConsumerSettings
from kbroker.coordinator.group.facts import Caller
from kbroker.coordinator.group.member import State
from kbroker.coordinator.step import Record
from kbroker.errors import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupIdNotFoundError,
    InvalidRegularExpressionError,
    KafkaError,
    NonEmptyGroupError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedVersionError,
)
from kbroker.protocol.records import ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue
from kbroker.tests.unit.coordinator.world import Request, Response, World, lasting

T = "t"


def _world(partitions: int = 4, **settings: int) -> World:
    world = World(ConsumerSettings(assignment_interval_ms=0)._replace(**settings))
    world.change_topic(T, partitions)
    return world


def _join(world: World, member: str, *topics: str, **fields: object) -> Response | KafkaError:
    request = Request(
        group_id="g",
        member_id=member,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=list(topics or [T]),
        topic_partitions=[],
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return world.beat(request)


def _beat(
    world: World, member: str, epoch: int, owned: list[int] | None = None, **fields: object
) -> Response | KafkaError:
    request = Request(group_id="g", member_id=member, member_epoch=epoch)
    if owned is not None:
        topic_id = world.topics.held[T].topic_id
        request.topic_partitions = [Request.TopicPartitions(topic_id=topic_id, partitions=owned)] if owned else []
    for name, value in fields.items():
        setattr(request, name, value)
    return world.beat(request)


def _told(answer: Response | KafkaError) -> tuple[int, list[int] | None]:
    """Its epoch and its partitions; None: nothing new."""
    assert isinstance(answer, Response), answer
    if answer.assignment is None:
        return answer.member_epoch, None
    return answer.member_epoch, [one for topic in answer.assignment.topic_partitions for one in topic.partitions]


def _state(world: World, member: str) -> State:
    group = world.group()
    assert group is not None
    return group.members[member].state


def test_a_member_alone_gets_everything_at_once_and_hears_it_once() -> None:
    world = _world()
    assert _told(_join(world, "a")) == (2, [0, 1, 2, 3])
    assert _told(_beat(world, "a", 2)) == (2, None)
    group = world.group()
    assert group is not None
    assert group.state_name == "Stable"


def test_a_partition_moves_only_when_its_owner_has_let_go() -> None:
    world = _world()
    _join(world, "a")
    assert _told(_join(world, "b")) == (3, [])
    assert _state(world, "b") == State.UNRELEASED_PARTITIONS
    assert _told(_beat(world, "a", 2)) == (2, [0, 1])
    assert _state(world, "a") == State.UNREVOKED_PARTITIONS
    assert _told(_beat(world, "b", 3)) == (3, None)
    assert _told(_beat(world, "a", 2, [0, 1, 2, 3])) == (2, None), "it still has them"
    assert _told(_beat(world, "a", 2, [0, 1])) == (3, None)
    assert _told(_beat(world, "b", 3)) == (3, [2, 3])
    assert _state(world, "a") == _state(world, "b") == State.STABLE


def test_who_does_not_let_go_in_time_is_fenced() -> None:
    world = _world()
    _join(world, "a")
    _join(world, "b")
    _beat(world, "a", 2)
    world.pass_time(999)
    _beat(world, "a", 2)
    world.pass_time(1)
    assert isinstance(_beat(world, "a", 2), UnknownMemberIdError)
    assert _told(_beat(world, "b", 3)) == (4, [0, 1, 2, 3])


def test_who_falls_silent_is_out_and_a_heartbeat_gives_another_session() -> None:
    world = _world()
    _join(world, "a")
    world.pass_time(44_999)
    assert _told(_beat(world, "a", 2)) == (2, None)
    world.pass_time(44_999)
    assert world.group() is not None
    assert "a" in world.group().members
    world.pass_time(1)
    group = world.group()
    assert group is not None
    assert group.state_name == "Empty"
    assert not group.owners
    assert not world.timers


def test_a_lost_answer_is_forgiven_once() -> None:
    world = _world()
    _join(world, "a")
    _join(world, "b")
    _beat(world, "a", 2)
    _beat(world, "a", 2, [0, 1])  # epoch 3, and the answer is lost
    assert _told(_beat(world, "a", 2, [0, 1])) == (3, None)
    assert isinstance(_beat(world, "a", 2, [0, 1, 2]), FencedMemberEpochError)
    assert isinstance(_beat(world, "a", 2), FencedMemberEpochError)
    assert isinstance(_beat(world, "a", 1, []), FencedMemberEpochError)
    assert isinstance(_beat(world, "a", 4, []), FencedMemberEpochError)
    assert _told(_join(world, "a")) == (3, [0, 1]), "it comes back to what it had"


def test_a_full_request_is_answered_in_full() -> None:
    world = _world(1)
    _join(world, "a")
    full = {"rebalance_timeout_ms": 1000, "subscribed_topic_names": [T]}
    assert _told(_beat(world, "a", 2, [0], **full)) == (2, [0])


def test_a_static_member_comes_back_under_another_id() -> None:
    world = _world(2)
    _join(world, "a", instance_id="i")
    assert isinstance(_join(world, "b", instance_id="i"), UnreleasedInstanceIdError)
    assert _told(_beat(world, "a", -2, instance_id="i")) == (-2, None)
    assert isinstance(_beat(world, "a", 2, instance_id="i"), FencedMemberEpochError)
    assert _told(_join(world, "b", instance_id="i")) == (2, [0, 1]), "without a rebalance"
    assert isinstance(_beat(world, "a", 2, instance_id="i"), FencedInstanceIdError)
    assert isinstance(_beat(world, "a", 2, instance_id="j"), UnknownMemberIdError)
    _beat(world, "b", -1, instance_id="i")
    group = world.group()
    assert group is not None
    assert not group.members
    assert not group.instances


def test_a_static_member_that_stays_away_loses_its_place() -> None:
    world = _world(2)
    _join(world, "a", instance_id="i")
    _beat(world, "a", -2, instance_id="i")
    world.pass_time(45_000)
    group = world.group()
    assert group is not None
    assert group.is_empty


def test_members_that_come_together_wait_for_one_target() -> None:
    world = _world(4, assignment_interval_ms=1000)
    _join(world, "a")
    assert _told(_join(world, "b")) == (2, [])
    group = world.group()
    assert group is not None
    assert (group.epoch, group.target_epoch, group.state_name) == (3, 2, "Assigning")
    world.pass_time(1000)
    assert _told(_beat(world, "b", 2)) == (3, None)
    assert _told(_beat(world, "a", 2)) == (2, [0, 1])


def test_topics_are_seen_as_they_come_grow_and_go() -> None:
    world = _world(1)
    _join(world, "a", T, "later")
    world.change_topic(T, 2)
    assert _told(_beat(world, "a", 2)) == (3, [0, 1])
    later = world.change_topic("later", 1)
    answer = _beat(world, "a", 3)
    assert _told(answer)[0] == 4
    assert isinstance(answer, Response)
    assert answer.assignment is not None
    assert later in {one.topic_id for one in answer.assignment.topic_partitions}
    assert _told(_beat(world, "a", 4)) == (4, None)
    world.change_topic("later", 0)
    assert _told(_beat(world, "a", 4)) == (4, [0, 1])
    world.change_topic("of no interest", 1)
    assert _told(_beat(world, "a", 4, [0, 1])) == (5, None)


def test_an_expression_follows_the_topics() -> None:
    world = _world(1)
    fields = {"subscribed_topic_names": None, "subscribed_topic_regex": "t|u.*"}
    assert _told(_join(world, "a", **fields)) == (2, [0])
    assert isinstance(_join(world, "b", subscribed_topic_regex="("), InvalidRegularExpressionError)
    world.change_topic("unseen", 1)
    world.change_topic("other", 1)
    assert _told(_beat(world, "a", 2)) == (3, [0, 0])
    group = world.group()
    assert group is not None
    assert group.expressions["t|u.*"].topics == {T, "unseen"}
    assert group.is_subscribed("unseen")
    assert not group.is_subscribed("other")
    _beat(world, "a", 3, subscribed_topic_regex="", subscribed_topic_names=["other"])
    assert world.group().expressions == {}  # type: ignore[union-attr]


def test_an_expression_is_tried_again_after_a_restart() -> None:
    world = _world(1)
    _join(world, "a", subscribed_topic_names=None, subscribed_topic_regex=".*")
    world.topics.make("made meanwhile", 1)
    world.reload()
    assert _told(_beat(world, "a", 2)) == (3, [0, 0])


@pytest.mark.parametrize(
    ("member", "epoch", "version", "error"),
    [
        ("a", 3, 9, None),
        ("a", 3, 8, UnsupportedVersionError),
        ("a", 4, 9, StaleMemberEpochError),
        ("nobody", 3, 9, UnknownMemberIdError),
        ("", -1, 9, UnknownMemberIdError),
    ],
)
def test_commits_are_for_members_in_their_epoch(
    member: str, epoch: int, version: int, error: type[KafkaError] | None
) -> None:
    world = _world()
    _join(world, "a")
    _join(world, "b")
    _beat(world, "a", 2)
    _beat(world, "a", 2, [0, 1])
    group = world.group()
    assert group is not None
    if error is None:
        assert group.check_commit(member, None, epoch, version) is None
    else:
        with pytest.raises(error):
            group.check_commit(member, None, epoch, version)


def test_a_member_that_is_behind_commits_what_it_had_by_then_and_nothing_else() -> None:
    world = _world()
    _join(world, "a")
    _join(world, "b")
    _beat(world, "a", 2)
    _beat(world, "a", 2, [0, 1])
    _beat(world, "b", 3)
    group = world.group()
    assert group is not None
    topic_id = world.topics.held[T].topic_id
    check = group.check_commit("a", None, 2, 9)
    assert check is not None
    assert check(topic_id, 0) is None
    assert isinstance(check(topic_id, 2), StaleMemberEpochError)
    late = group.check_commit("b", None, 2, 9)
    assert late is not None
    assert isinstance(late(topic_id, 2), StaleMemberEpochError)


def test_a_group_with_members_is_not_deleted_and_one_without_ends_in_its_log() -> None:
    world = _world()
    _join(world, "a")
    group = world.group()
    assert group is not None
    with pytest.raises(NonEmptyGroupError):
        group.check_delete()
    _beat(world, "a", -1)
    group.check_delete()
    for record in group.tombstones():
        world.shard.apply(record)
    assert world.group() is None


def test_a_restart_keeps_members_epochs_and_what_they_own() -> None:
    world = _world()
    _join(world, "a")
    _join(world, "b")
    _beat(world, "a", 2)
    before = lasting(world.shard)
    world.reload()
    assert lasting(world.shard) == before
    assert {timer.kind for timer in world.timers} == {"consumer-session", "consumer-rebalance", "expiry"}
    assert _told(_beat(world, "a", 2, [0, 1])) == (3, None)
    assert _told(_beat(world, "b", 3)) == (3, [2, 3])


def test_a_state_from_the_future_makes_the_member_start_anew() -> None:
    world = _world(1)
    _join(world, "a")
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="a")
    world.shard.apply(Record(key, ConsumerGroupCurrentMemberAssignmentValue(member_epoch=2, state=99)))
    assert isinstance(_beat(world, "a", 2), FencedMemberEpochError)
    assert _told(_join(world, "a")) == (2, [0])


def test_only_a_join_makes_a_group() -> None:
    world = _world()
    assert isinstance(_beat(world, "a", 1), GroupIdNotFoundError)
    assert isinstance(_beat(world, "a", -1), GroupIdNotFoundError)
    assert world.group() is None
    assert not world.log


def test_the_one_who_asks_is_remembered() -> None:
    world = _world()
    request = Request(
        group_id="g", member_id="a", rebalance_timeout_ms=1, subscribed_topic_names=[], topic_partitions=[]
    )
    world.beat(request, Caller(1, "first", "/here"))
    group = world.group()
    assert group is not None
    assert (group.members["a"].client_id, group.members["a"].client_host) == ("first", "/here")


def _intervals(world: World, member: str, epoch: int, beats: int) -> list[int]:
    found = []
    for _ in range(beats):
        answer = world.beat(Request(group_id="g", member_id=member, member_epoch=epoch))
        assert isinstance(answer, Response), answer
        found.append(answer.heartbeat_interval_ms)
        world.pass_time(answer.heartbeat_interval_ms)
    return found


def test_the_longer_nothing_happens_the_later_a_member_comes_again() -> None:
    world = _world(heartbeat_interval_ms=5_000)
    _join(world, "one", "t")
    assert _intervals(world, "one", 2, 8) == [200, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]


def test_whoever_waits_for_a_partition_comes_once_a_second_however_long_it_waits() -> None:
    world = _world(heartbeat_interval_ms=5_000)
    _join(world, "one", "t")
    _join(world, "two", "t")
    assert _intervals(world, "two", 3, 6) == [200, 200, 400, 800, 1_000, 1_000]
