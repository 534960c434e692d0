"""What is told: joining, moving, leaving, lying, and everything a heartbeat can get wrong."""

from __future__ import annotations

from typing import Any

from compat_tests.client import WAIT_SECONDS
from compat_tests.groups.story import HEARTBEAT, Story, tale
from compat_tests.until import until


@tale
def a_life_alone(story: Story) -> None:
    topic = story.topic(3)
    story.described("before")
    story.join("one", topic)
    story.described("joined")
    story.beat("one")
    story.acknowledge("one")
    story.beat("one", rebalance_timeout_ms=30_000, subscribed_topic_names=[topic], topic_partitions=story.owned("one"))
    story.beat("one", rack_id="r1", server_assignor="range")
    story.described("changed")
    story.beat("one", -1)
    story.described("left", version=0)
    story.beat("one", -1)
    story.beat("one", 3)
    story.join("one", topic)
    story.beat("one", -1)


@tale
def two_share(story: Story) -> None:
    topic = story.topic(4)
    story.join("one", topic)
    story.join("two", topic)
    story.described("two waits")
    story.beat("one")
    story.described("one gives up")
    story.beat("two")
    story.acknowledge("one")
    story.described("one gave up")
    story.beat("two")
    story.beat("one")
    story.described("shared")
    story.beat("two", -1)
    story.described("two left")
    story.beat("one")
    story.described("one has all")


@tale
def epochs_are_checked(story: Story) -> None:
    topic = story.topic(4)
    story.join("one", topic)
    story.join("two", topic)
    story.beat("one", 3)
    story.beat("one", 1)
    story.beat("one", 2)
    story.acknowledge("one")  # its epoch rises to 3
    story.beat("one", 2)
    story.beat("one", 2, topic_partitions=story.owned("one"))
    story.beat("one", 2, topic_partitions=[{"topic_id": story.topic_id(topic), "partitions": [0, 1, 2, 3]}])
    story.beat("one", 4)
    story.beat("nobody", 3)
    story.join("one", topic)
    story.beat("one")


@tale
def a_static_member(story: Story) -> None:
    topic = story.topic(3)
    story.join("one", topic, instance_id="i")
    story.join("other", topic)
    story.settle("one", "other")
    story.join("two", topic, instance_id="i")
    story.beat("two", 3, instance_id="i")
    story.beat("two", 3, instance_id="j")
    story.beat("one", -2, instance_id="i")
    story.described("away")
    story.beat("one", 3, instance_id="i")
    story.join("two", topic, instance_id="i")
    story.described("back")
    story.beat("two", instance_id="i")
    story.beat("one", -1, instance_id="i")
    story.beat("two", -2)
    story.beat("two", -1, instance_id="i")
    story.described("gone")


@tale
def a_static_member_returns_with_other_wishes(story: Story) -> None:
    first, second = story.topic(2), story.topic(3)
    story.join("one", first, instance_id="i")
    story.beat("one", -2, instance_id="i")
    story.join("two", second, instance_id="i")
    story.described("back")
    story.beat("two", instance_id="i")


@tale
def a_subscription_changes(story: Story) -> None:
    first, second = story.topic(2), story.topic(2)
    story.join("one", first)
    story.beat("one", subscribed_topic_names=[first, second])
    story.acknowledge("one")
    story.beat("one", subscribed_topic_names=[second], topic_partitions=story.owned("one"))
    story.described("first is given up")
    story.acknowledge("one")
    story.beat("one", subscribed_topic_names=[])
    story.acknowledge("one")
    story.described("nothing is left")
    story.beat("one", subscribed_topic_names=[first])


@tale
def nothing_to_read(story: Story) -> None:
    topic = story.topic(1)
    story.join("one")
    story.join("two", "a-topic-that-is-not-there")
    story.described("joined")
    story.beat("two", subscribed_topic_names=[topic])
    story.settle("one", "two")


@tale
def ranges(story: Story) -> None:
    first, second = story.topic(7), story.topic(3)
    story.join("b", first, second, server_assignor="range")
    story.join("a", first, second, server_assignor="range")
    story.join("c", first, server_assignor="range", instance_id="z")
    story.settle("a", "b")
    story.described("shared")


@tale
def the_assignor_most_ask_for(story: Story) -> None:
    topic = story.topic(4)
    story.join("a", topic, server_assignor="uniform")
    story.join("b", topic, server_assignor="range")
    story.described("a tie is not told")
    story.join("c", topic, server_assignor="range")
    story.described("range")
    story.beat("d", 0, server_assignor="simple", rebalance_timeout_ms=1, subscribed_topic_names=[], topic_partitions=[])


@tale
def five_share_uniformly(story: Story) -> None:
    topic = story.topic(12)
    names = ["m-1", "m-2", "m-3", "m-4", "m-5"]
    for count, name in enumerate(names, 1):
        story.join(name, topic)
        story.settle(*names[:count])
    story.described("all")
    story.beat("m-2", -1)
    story.settle("m-1", "m-3", "m-4", "m-5")
    story.beat("m-4", -1)
    story.settle("m-1", "m-3", "m-5")
    story.described("three")


@tale
def a_topic_grows_and_goes(story: Story) -> None:
    topic = story.topic(1)
    story.join("one", topic)
    story.grow(topic, 3)
    story.beat_until_told("one")
    story.acknowledge("one")
    story.delete(topic)
    story.beat_until_told("one")
    story.acknowledge("one")
    story.described("gone")


@tale
def requests_that_are_refused(story: Story) -> None:
    topic = story.topic(1)
    whole: dict[str, Any] = {
        "group_id": story.group,
        "member_id": "one",
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": [topic],
        "topic_partitions": [],
    }
    owned = [{"topic_id": story.topic_id(topic), "partitions": [0]}]
    cases: dict[str, dict[str, Any]] = {
        "no group": {"group_id": ""},
        "no member": {"member_id": ""},
        "no member, beating": {"member_id": "", "member_epoch": 1},
        "no member, leaving": {"member_id": "", "member_epoch": -1},
        "empty instance": {"instance_id": ""},
        "empty rack": {"rack_id": ""},
        "no timeout": {"rebalance_timeout_ms": -1},
        "no partitions": {"topic_partitions": None},
        "owning on joining": {"topic_partitions": owned},
        "no topics": {"subscribed_topic_names": None},
        "no instance, leaving for a while": {"member_epoch": -2},
        "epoch -3": {"member_epoch": -3},
        "assignor": {"server_assignor": "sticky"},
        "unknown group": {"member_epoch": 1},
        "unknown group, leaving": {"member_epoch": -1},
        "unknown group, leaving for a while": {"member_epoch": -2, "instance_id": "i"},
    }
    for version in (0, 1):
        for label, change in cases.items():
            if version == 0 and label == "no member":
                continue  # then it makes a group
            story.talk.ask(f"{label}, v{version}", HEARTBEAT, version, {**whole, **change})
    for pattern in ("(", "a{2,1}", "(?=a)b", "(a)\\1", "[z-a]", "*"):
        change = {"subscribed_topic_names": None, "subscribed_topic_regex": pattern}
        story.talk.ask(f"pattern {pattern}", HEARTBEAT, 1, {**whole, **change})
    story.described("none", version=0)
    body = {"group_ids": ["", "nowhere"], "include_authorized_operations": False}
    for version in (0, 1):
        story.talk.ask(f"describe v{version}", "ConsumerGroupDescribe", version, body)


@tale
def commits_are_checked(story: Story) -> None:
    topic = story.topic(4)
    story.join("one", topic)
    story.join("two", topic)
    story.beat("one")
    story.acknowledge("one")
    story.beat("two")
    for label, member, epoch in (
        ("no member", "", -1),
        ("unknown", "nobody", 3),
        ("now", "one", 3),
        ("before", "one", 2),
        ("long ago", "one", 1),
        ("later", "one", 4),
        ("two, before", "two", 2),
    ):
        for version in (8, 9, 10):
            _commit(story, f"commit {label} v{version}", topic, (member, epoch), version)
        for version in (8, 9, 10):
            _fetch(story, f"fetch {label} v{version}", topic, (member, epoch), version)
    story.beat("one", -1)
    _commit(story, "commit after leaving", topic, ("one", 3), 9)
    story.beat("two", -1)
    _commit(story, "commit to an empty group", topic, ("", -1), 9)
    _commit(story, "commit to an empty group as a member", topic, ("one", 3), 9)


def _commit(story: Story, label: str, topic: str, who: tuple[str, int], version: int) -> None:
    partitions = [
        {"partition_index": one, "committed_offset": one, "committed_leader_epoch": -1, "committed_metadata": ""}
        for one in range(4)
    ]
    named = {"name": topic, "topic_id": story.topic_id(topic), "partitions": partitions}
    body = {"group_id": story.group, "generation_id_or_member_epoch": who[1], "member_id": who[0], "topics": [named]}
    story.talk.ask(label, "OffsetCommit", version, body)


def _fetch(story: Story, label: str, topic: str, who: tuple[str, int], version: int) -> None:
    named = {"name": topic, "topic_id": story.topic_id(topic), "partition_indexes": [0, 1]}
    group = {"group_id": story.group, "member_id": who[0] or None, "member_epoch": who[1], "topics": [named]}
    story.talk.ask(label, "OffsetFetch", version, {"groups": [group], "require_stable": False})


@tale
def a_group_is_full(story: Story) -> None:
    topic = story.topic(2)
    for name in ("a", "b", "c", "d", "e", "f"):
        story.join(name, topic)
    story.join("g", topic)
    story.join("a", topic)
    story.beat("b", -1)
    story.join("g", topic)


@tale
def a_member_falls_silent(story: Story) -> None:
    topic = story.topic(2)
    story.join("one", topic)
    until(lambda: story.members() == [], WAIT_SECONDS)
    story.described("nobody")
    story.beat("one", 2)


@tale
def a_member_does_not_give_up(story: Story) -> None:
    topic = story.topic(2)
    story.join("one", topic, rebalance_timeout_ms=500)
    story.join("two", topic)
    story.beat("one")

    def fenced() -> bool:
        story.talk.quietly(HEARTBEAT, 1, {"group_id": story.group, "member_id": "one", "member_epoch": 2})
        return story.members() == ["two"]

    until(fenced, WAIT_SECONDS)
    story.beat("one", 2)
    story.beat("two")
    story.described("two has all")


GROUP, SET, DELETE, APPEND = 32, 0, 1, 2


@tale
def settings_of_a_group(story: Story) -> None:
    name = story.group

    def alter(label: str, *changes: tuple[str, int, str | None], group: str = name) -> None:
        configs = [{"name": one, "config_operation": what, "value": value} for one, what, value in changes]
        body = {"resources": [{"resource_type": GROUP, "resource_name": group, "configs": configs}]}
        story.talk.ask(label, "IncrementalAlterConfigs", 1, {**body, "validate_only": False})

    def described() -> list[Any]:
        asked = {"resources": [{"resource_type": GROUP, "resource_name": name, "configuration_keys": None}]}
        (result,) = story.talk.quietly("DescribeConfigs", 4, {**asked, "include_synonyms": True})["results"]
        for one in result["configs"]:
            one["documentation"] = None
        return [result["error_code"], sorted(result["configs"], key=lambda one: str(one["name"]))]

    def value_of(setting: str) -> str:
        return next(str(one["value"]) for one in described()[1] if one["name"] == setting)

    story.talk.say("untouched", described())
    alter("shorter", ("consumer.session.timeout.ms", SET, "5500"), ("consumer.heartbeat.interval.ms", SET, "5000"))
    until(lambda: value_of("consumer.session.timeout.ms") == "5500", WAIT_SECONDS)
    story.talk.say("shorter, described", described())
    for label, change in {
        "too short": ("consumer.session.timeout.ms", SET, "2999"),
        "too long": ("consumer.session.timeout.ms", SET, "60001"),
        "shorter than a heartbeat": ("consumer.session.timeout.ms", SET, "5000"),
        "no number": ("consumer.session.timeout.ms", SET, "x"),
        "unknown": ("retention.ms", SET, "1"),
        "no list": ("consumer.session.timeout.ms", APPEND, "1"),
        "null": ("consumer.session.timeout.ms", SET, None),
        "heartbeat too often": ("consumer.heartbeat.interval.ms", SET, "4999"),
        "assignment too seldom": ("consumer.assignment.interval.ms", SET, "15001"),
        "streams": ("streams.num.standby.replicas", SET, "3"),
        "share": ("share.isolation.level", SET, "none"),
    }.items():
        alter(label, change)
    alter("no group", ("consumer.session.timeout.ms", SET, "5500"), group="")
    topic = story.topic(1)
    alter("heartbeats", ("consumer.heartbeat.interval.ms", SET, "5200"))
    until(lambda: value_of("consumer.heartbeat.interval.ms") == "5200", WAIT_SECONDS)
    story.join("one", topic)
    alter("as before", ("consumer.heartbeat.interval.ms", DELETE, None), ("consumer.session.timeout.ms", DELETE, None))
    until(lambda: value_of("consumer.heartbeat.interval.ms") == "5000", WAIT_SECONDS)
    story.beat("one")
