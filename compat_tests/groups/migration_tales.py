"""What is told of groups with members of both protocols: going over, living together, going back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compat_tests.client import WAIT_SECONDS
from compat_tests.groups.classic import Classic, assignment, settle_all, subscription
from compat_tests.groups.story import Story, Tale
from compat_tests.groups.tales import _commit, _fetch
from compat_tests.until import until

MIGRATIONS: dict[str, Tale] = {}
POLICIES: dict[str, Tale] = {}


def migration(run: Tale) -> Tale:
    MIGRATIONS[run.__name__.replace("_", " ")] = run
    return run


def policy(run: Tale) -> Tale:
    POLICIES[run.__name__.replace("_", " ")] = run
    return run


def _listed(story: Story, label: str) -> None:
    groups = story.talk.quietly("ListGroups", 5, {"states_filter": [], "types_filter": []})["groups"]
    story.talk.say(f"listed {label}", [one for one in groups if one["group_id"] == story.group])
    answer = story.talk.quietly("DescribeGroups", 6, {"groups": [story.group], "include_authorized_operations": False})
    for group in answer["groups"]:
        group["members"].sort(key=lambda one: story.name_of_member(one["member_id"]))
        for one in group["members"]:
            one["client_host"] = "the host"
    story.talk.say(f"described {label}", answer)


def _chosen(story: Story, name: str, topic: str, **fields: Any) -> Classic:
    """A member that joins a consumer group may choose its id, so that both brokers share out alike."""
    return Classic(story, name, topic, member_id=name, **fields)


def _mixed(story: Story, topic: str, **fields: Any) -> tuple[Classic, Classic]:
    """`c` of the consumer protocol, `a` and `b` of the classic one."""
    story.join("c", topic)
    first, second = _chosen(story, "a", topic, **fields), _chosen(story, "b", topic, **fields)
    for one in (first, second):
        one.join()
        one.sync()
    settle_all(story, [first, second], ["c"])
    return first, second


# ---- up and down ----


@migration
def one_goes_over_and_back(story: Story) -> None:
    topic = story.topic(4)
    first = Classic(story, "a", topic).settle((topic, [0, 1, 2, 3]))
    _listed(story, "classic")
    story.join("c", topic)
    story.described("upgraded")
    _listed(story, "mixed")
    _commit(story, "commit of the classic member", topic, (first.member_id, first.generation), 9)
    settle_all(story, [first], ["c"])
    story.described("shared")
    story.beat("c", -1)
    _listed(story, "back")
    story.described("no consumer group any more")
    first.beat()
    first.join()
    first.lead((first, assignment((topic, [0, 1, 2, 3]))))
    first.beat()
    _listed(story, "classic again")
    first.leave()


@migration
def a_cooperative_member_keeps_what_it_reads(story: Story) -> None:
    topic = story.topic(4)
    first = Classic(story, "a", topic, protocols=("cooperative-sticky",)).settle((topic, [0, 1, 2, 3]))
    story.join("c", topic)
    first.beat()
    first.join(owned=[(topic, [0, 1, 2, 3])])
    first.sync()
    story.described("it is to give up")
    story.beat("c")
    first.beat()
    first.join(owned=first.owned)
    first.sync()
    story.described("it gave up")
    first.beat()
    story.beat("c")
    settle_all(story, [first], ["c"])


@migration
def cooperative_members_of_a_mixed_group(story: Story) -> None:
    topic = story.topic(8)
    first, second = _mixed(story, topic, protocols=("cooperative-sticky", "range"))
    story.described("three")
    story.join("d", topic)
    settle_all(story, [first, second], ["c", "d"])
    story.described("four")
    first.leave()
    settle_all(story, [second], ["c", "d"])
    story.described("without a")


@migration
def members_of_both_kinds(story: Story) -> None:
    topic = story.topic(6)
    first, second = _mixed(story, topic)
    story.described("settled")
    _listed(story, "mixed")
    for label, who in {
        "now": (first.member_id, first.generation),
        "before": (first.member_id, first.generation - 1),
        "later": (first.member_id, first.generation + 1),
        "nobody": ("nobody", first.generation),
    }.items():
        for version in (8, 9):
            _commit(story, f"commit {label} v{version}", topic, who, version)
            _fetch(story, f"fetch {label} v{version}", topic, who, version)
    first.join()
    second.leave()
    second.beat()
    first.sync()
    first.beat()
    settle_all(story, [first], ["c"])
    story.described("without b")
    second.join()
    second.sync()
    settle_all(story, [first, second], ["c"])
    story.beat("c", -1)
    _listed(story, "classic")
    first.beat()
    second.beat()
    first.beat(generation_id=first.generation + 1)
    story.join("d", topic)
    story.described("up again, in the middle of a rebalance")
    settle_all(story, [first, second], ["d"])
    story.described("settled again")


@migration
def the_classic_members_leave_first(story: Story) -> None:
    topic = story.topic(2)
    first, second = _mixed(story, topic)
    first.leave()
    second.leave(version=2)
    settle_all(story, [], ["c"])
    story.described("alone")
    story.beat("c", -1)
    story.described("empty")
    _listed(story, "empty")
    third = Classic(story, "z", topic, protocols=("sticky",))
    third.join()
    third.lead((third, assignment((topic, [0, 1]))))
    _listed(story, "classic")


def _rejoined(story: Story, topic: str) -> tuple[Classic, Classic]:
    """A classic group of members that chose their ids: they did so while it was a consumer group."""
    first, second = _mixed(story, topic)
    story.beat("c", -1)
    first.start_join()
    second.start_join()
    leader = first if first.finish_join()["leader"] == "a" else second
    second.finish_join()
    for one in (first, second):
        if one is not leader:
            one.start_sync()
    leader.lead((first, assignment((topic, [0, 1]))), (second, assignment((topic, [2, 3]))))
    for one in (first, second):
        if one is not leader:
            one.finish_sync()
    return first, second


def _until_state(story: Story, state: str) -> None:
    def reached() -> bool:
        (group,) = story.talk.quietly("DescribeGroups", 5, {"groups": [story.group]})["groups"]
        return bool(group["group_state"] == state)

    until(reached, WAIT_SECONDS)


@migration
def whoever_waits_is_sent_over(story: Story) -> None:
    topic = story.topic(4)
    first, second = _rejoined(story, topic)
    second.start_join(protocols=("range", "roundrobin"))
    _until_state(story, "PreparingRebalance")
    first.beat()
    story.join("c", topic, rebalance_timeout_ms=20_000)
    second.finish_join()
    story.described("b had not joined yet")
    first.join()
    second.join()
    first.sync()
    second.sync()
    settle_all(story, [first, second], ["c"])


@migration
def whoever_waits_for_its_assignment_is_sent_over(story: Story) -> None:
    topic = story.topic(4)
    first, second = _rejoined(story, topic)
    first.start_join(protocols=("range", "roundrobin"))
    second.start_join(protocols=("range", "roundrobin"))
    leader = first.finish_join()["leader"]
    second.finish_join()
    waiting = second if leader == "a" else first
    waiting.start_sync()
    _listed(story, "completing")
    story.join("c", topic)
    waiting.finish_sync()
    story.described("in the middle")
    settle_all(story, [first, second], ["c"])


# ---- what is refused ----


@migration
def classic_requests_are_checked(story: Story) -> None:
    topic = story.topic(4)
    first, second = _mixed(story, topic, protocols=("range", "roundrobin"))
    other = _chosen(story, "x", topic)
    changes: dict[str, dict[str, Any]] = {
        "type": {"protocol_type": "connect"},
        "no type": {"protocol_type": ""},
        "no protocols": {"protocols": []},
        "unknown protocol": {"protocols": [{"name": "sticky", "metadata": subscription(topic)}]},
        "malformed": {"protocols": [{"name": "range", "metadata": b"\x00"}]},
        "malformed too": {"protocols": [{"name": "range", "metadata": b"\x00\x01\x00\x00\x00\x09"}]},
        "negative version": {"protocols": [{"name": "range", "metadata": b"\xff\xff\x00\x00\x00\x00"}]},
        "session too short": {"session_timeout_ms": 1},
        "session too long": {"session_timeout_ms": 2_000_000_000},
        "unknown instance": {"group_instance_id": "i", "member_id": "x"},
    }
    for label, change in changes.items():
        body = {**other.joining(), **change}
        story.talk.ask(f"join {label}", "JoinGroup", 9, body)
    for version in (9, 5, 4):
        asked = story.talk.quietly("JoinGroup", version, {**other.joining(), "member_id": ""})
        asked["member_id"] = bool(asked["member_id"])
        story.talk.say(f"no member id v{version}", asked)
    first.beat(generation_id=first.generation - 1)
    first.beat(generation_id=first.generation + 1)
    first.beat(member_id="nobody")
    first.beat(member_id="c", generation_id=story.epoch_of("c"))
    first.beat(group_instance_id="i")
    first.sync(generation_id=first.generation + 1)
    first.sync(member_id="nobody")
    first.sync(member_id="c", generation_id=story.epoch_of("c"))
    first.sync(protocol_type="connect")
    first.sync(protocol_name="roundrobin")
    first.sync(protocol_type=None, protocol_name=None)
    first.sync()
    first.leave(member_id="nobody")
    first.leave(group_instance_id="i")
    first.leave(member_id="", group_instance_id="i")
    story.beat("a", first.generation)
    story.described("nothing has changed but a, which speaks the other protocol now")
    second.beat()
    settle_all(story, [second], ["c", "a"])
    first.beat()
    first.leave(member_id="c")
    first.leave(member_id="a")
    second.beat()


@migration
def an_old_subscription(story: Story) -> None:
    topic = story.topic(4)
    story.join("c", topic)
    first = _chosen(story, "a", topic)
    for version in (0, 2, 3, 9):
        data = subscription(topic, version=min(version, 3), rack_id="r" if version >= 3 else None)
        first.join(metadata=version.to_bytes(2, "big") + data[2:])
        first.sync()
    story.described("joined")


@migration
def a_full_group(story: Story) -> None:
    topic = story.topic(2)
    story.join("c", topic)
    members = [_chosen(story, f"m-{index}", topic) for index in range(6)]
    for one in members:
        one.join()
    members[0].join()
    story.join("d", topic)


@migration
def groups_that_cannot_go_over(story: Story) -> None:
    topic = story.topic(2)
    kinds: dict[str, tuple[dict[str, Any], bytes]] = {
        "another type": ({"protocol_type": "connect"}, assignment((topic, [0, 1]))),
        "unreadable subscription": ({"metadata": b"\x00\x01\x00"}, assignment((topic, [0]))),
        "unreadable assignment": ({}, b"mine"),
        "data of an assignor": ({}, assignment((topic, [0]), user_data=b"mine")),
        "data in the subscription": (
            {"metadata": subscription(topic, user_data=b"mine")},
            assignment((topic, [0, 1])),
        ),
        "a topic that is not there": ({}, assignment(("nowhere", [0]), (topic, [0, 1]))),
    }
    for label, (fields, data) in kinds.items():
        metadata = fields.pop("metadata", None)
        one = Classic(story, f"a, {label}", topic, **fields)
        one.join(metadata=metadata)
        one.lead((one, data))
        story.join("c", topic)
        _listed(story, label)
        one.beat()
        one.leave()
        story.beat("c", -1)
        story.emptied()


# ---- static members ----


@migration
def an_instance_changes_its_protocol(story: Story) -> None:
    topic = story.topic(4)
    story.join("c", topic)
    static = Classic(story, "static", topic, group_instance_id="i")
    static.join()
    static.sync()
    settle_all(story, [static], ["c"])
    story.described("classic")
    story.join("d", topic, instance_id="i")
    story.described("consumer")
    static.beat()
    static.sync()
    static.leave()
    static.join()
    settle_all(story, [], ["c"])
    story.beat("d", instance_id="i")
    heir = Classic(story, "heir", topic, group_instance_id="i")
    heir.join()
    heir.sync()
    story.described("classic again")
    story.beat("d", instance_id="i")
    settle_all(story, [heir], ["c"])
    heir.leave(member_id="")


@migration
def a_classic_instance_comes_back(story: Story) -> None:
    topic, other = story.topic(4), story.topic(1)
    story.join("c", topic, other)
    static = Classic(story, "static", topic, group_instance_id="i")
    static.join()
    static.sync()
    settle_all(story, [static], ["c"])
    heir = Classic(story, "heir", topic, group_instance_id="i")
    heir.join()
    static.beat()
    heir.sync()
    heir.beat()
    settle_all(story, [heir], ["c"])
    other_heir = Classic(story, "other heir", other, group_instance_id="i")
    other_heir.join()
    other_heir.sync()
    settle_all(story, [other_heir], ["c"])
    story.described("with other wishes")


@migration
def the_last_instance_goes_back(story: Story) -> None:
    topic = story.topic(4)
    story.join("c", topic, instance_id="i")
    first = _chosen(story, "a", topic)
    first.join()
    first.sync()
    for _ in range(3):
        story.beat("c", instance_id="i")
        story.beat("c", instance_id="i", topic_partitions=story.owned("c"))
        first.follow()
    heir = Classic(story, "heir", topic, group_instance_id="i")
    heir.join()
    _listed(story, "classic at once")
    heir.sync()
    first.beat()
    first.sync()
    heir.beat()


@migration
def the_last_instance_goes_back_with_other_wishes(story: Story) -> None:
    topic, other = story.topic(4), story.topic(2)
    story.join("c", topic, instance_id="i")
    first = _chosen(story, "a", topic)
    first.join()
    first.sync()
    heir = Classic(story, "heir", topic, other, group_instance_id="i")
    heir.join()
    _listed(story, "rebalancing")
    heir.sync()
    first.beat()
    heir.beat()


# ---- time ----


@migration
def the_last_consumer_falls_silent(story: Story) -> None:
    topic = story.topic(4)
    first, _ = _mixed(story, topic)

    def fallen() -> bool:
        first.quiet_beat()
        answer = story.talk.quietly("DescribeGroups", 6, {"groups": [story.group]})
        return bool(answer["groups"][0]["error_code"] == 0)

    until(fallen, WAIT_SECONDS)
    _listed(story, "classic")
    story.beat("c")


@migration
def a_classic_member_falls_silent(story: Story) -> None:
    topic = story.topic(4)
    story.join("c", topic)
    first = _chosen(story, "a", topic, session_timeout_ms=1_000)
    first.join()
    first.sync()
    until(lambda: story.has_all("c"), WAIT_SECONDS)
    story.described("c is alone")
    first.beat()


@migration
def a_classic_member_does_not_join_again(story: Story) -> None:
    topic = story.topic(4)
    first, second = _mixed(story, topic, rebalance_timeout_ms=1_500)
    story.join("d", topic)
    first.follow()

    def fenced() -> bool:
        second.quiet_beat()
        return second.member_id not in story.members()

    until(fenced, WAIT_SECONDS)
    second.beat()


@migration
def a_classic_member_does_not_sync(story: Story) -> None:
    topic = story.topic(4)
    story.join("c", topic)
    first = _chosen(story, "a", topic, rebalance_timeout_ms=1_000)
    first.join()

    until(lambda: (first.quiet_beat(), story.has_all("c"))[1], WAIT_SECONDS)
    first.sync()


# ---- restarts ----


def a_restart_in_the_middle(story: Story, restart: Callable[[], None]) -> None:
    """Up, with what is to be given up still under way; shared; back, with the rebalance still to come."""
    topic = story.topic(4)
    story.join("c", topic)
    first = _chosen(story, "a", topic)
    first.join()
    restart()
    first.reconnect()
    first.sync()
    settle_all(story, [first], ["c"])
    restart()
    first.reconnect()
    first.beat()
    story.beat("c")
    story.described("shared")
    story.beat("c", -1)
    restart()
    first.reconnect()
    first.join()
    first.lead((first, assignment((topic, [0, 1, 2, 3]))))
    restart()
    first.reconnect()
    first.beat()
    story.join("d", topic)
    story.described("up again")


# ---- policies ----


@policy
def a_policy_holds(story: Story) -> None:
    topic = story.topic(4)
    first = Classic(story, "a", topic).settle((topic, [0, 1, 2, 3]))
    story.join("c", topic)
    _listed(story, "after a consumer came")
    first.follow()
    first.leave()
    story.beat("c", -1)
    story.emptied()
    story.join("c", topic)
    second = _chosen(story, "b", topic)
    refused = second.join()["error_code"]
    second.sync()
    if refused:
        return
    settle_all(story, [second], ["c"])
    story.beat("c", -1)
    _listed(story, "after the last consumer left")
    story.described("after the last consumer left")
    second.beat()
    story.join("c", topic)
    second.follow()
    story.beat("c", -1)
    second.leave()
    _listed(story, "in the end")
