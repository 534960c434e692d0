"""Groups as nobody should ask for them: unreadable metadata, ids as long as strings may be, old generations."""

from __future__ import annotations

from typing import Any

from compat_tests.client import WAIT_SECONDS
from compat_tests.raw.cases import case
from compat_tests.raw.group_cases import JOIN, Member, a_group, commit_simply, fetch_simply, joining, know, state_of
from compat_tests.raw.talk import Talk
from compat_tests.until import until

LONG = "x" * 32_000
LONGEST = "x" * 32_767
# Of a subscription: nothing, half a version, a version from far ahead. A count that is negative or larger than what
# follows is left out: Apache throws where it reads it, and never answers. Here it is as any other.
UNREADABLE = ("", "00", "7fff00000000ffffffff")


def _code(answer: Any) -> Any:
    return answer["error_code"] if isinstance(answer, dict) else answer


@case("JoinGroup", [0, 5, 9])
def metadata_that_cannot_be_read(talk: Talk, version: int) -> None:
    """It is the members' own affair; what the broker would like to know from it, it does without."""
    topic = talk.topic().name
    for number, unreadable in enumerate(UNREADABLE):
        group = a_group(talk)
        protocols = [{"name": "range", "metadata": bytes.fromhex(unreadable)}]
        member = Member(talk, group, protocols=protocols)
        joined = member.join(version)
        know(talk, member.member_id)
        talk.say(f"{number}: joined", [joined["error_code"], joined["members"]])
        sync = member.sync(assignments=[{"member_id": member.member_id, "assignment": bytes.fromhex(unreadable)}])
        talk.say(f"{number}: synced", sync)
        part = {"partition_index": 0, "committed_offset": 3}
        about = {"group_id": group, "topics": [{"name": topic, "partitions": [part]}]}
        identity = {"generation_id_or_member_epoch": member.generation, "member_id": member.member_id}
        talk.ask(f"{number}: commit", "OffsetCommit", 8, {**about, **identity})
        asked = {"group_id": group, "topics": [{"name": topic, "partitions": [{"partition_index": 0}]}]}
        talk.ask(f"{number}: delete offsets", "OffsetDelete", 0, asked)
        described = talk.quietly("DescribeGroups", 5, {"groups": [group]})["groups"][0]
        talk.say(f"{number}: described", [described["group_state"], described["members"][0]["member_metadata"]])


@case("JoinGroup", [5, 9])
def ids_as_long_as_a_string(talk: Talk, version: int) -> None:
    group = a_group(talk)
    many = [{"name": f"p{index}", "metadata": b"m" * 100} for index in range(2_000)]
    for label, body in {
        "instance": joining(group, group_instance_id=LONG),
        "member": joining(group, LONGEST),
        "member of an instance": joining(group, LONG, group_instance_id="i"),
        "type": joining(a_group(talk), protocol_type=LONGEST),
        "group": joining(LONGEST),
        "many protocols": joining(a_group(talk), protocols=many),
    }.items():
        answer = talk.connection.ask("JoinGroup", version, body)
        talk.say(label, _code(answer))
        if isinstance(answer, str):
            talk.connection = talk.connect()


@case("JoinGroup", [9])
def the_past_asked_again(talk: Talk, version: int) -> None:
    """What a member sent in its first generation comes once more in its third."""
    group, topic = a_group(talk), talk.topic().name
    member = Member(talk, group).settle()
    old = member.generation
    for _ in range(2):
        member.join(version, protocols=[{"name": "range", "metadata": bytes([_])}])
        member.sync(assignments=[{"member_id": member.member_id, "assignment": b"now"}])
    talk.say("generation", member.generation)
    talk.say("heartbeat", member.beat(generation_id=old))
    talk.say(
        "sync", member.sync(generation_id=old, assignments=[{"member_id": member.member_id, "assignment": b"then"}])
    )
    talk.say("assignment", member.sync()["assignment"])
    part = {"partition_index": 0, "committed_offset": 9}
    about = {"group_id": group, "member_id": member.member_id, "topics": [{"name": topic, "partitions": [part]}]}
    for generation in (-1, 0, old, member.generation + 1, 2**31 - 1):
        talk.ask(f"commit {generation}", "OffsetCommit", 8, {**about, "generation_id_or_member_epoch": generation})
    talk.say("committed", fetch_simply(talk, group, topic))
    talk.quietly("LeaveGroup", 5, {"group_id": group, "members": [{"member_id": member.member_id}]})
    until(lambda: state_of(talk, group) == "Empty", WAIT_SECONDS)
    talk.say("join of a gone one", _code(talk.connection.ask("JoinGroup", JOIN, joining(group, member.member_id))))
    talk.say("heartbeat of a gone one", member.beat())
    commit_simply(talk, group, topic)
    talk.say("committed without members", fetch_simply(talk, group, topic))


@case("ConsumerGroupHeartbeat", [0, 1])
def heartbeats_as_long_as_strings(talk: Talk, version: int) -> None:
    group, topic = a_group(talk), talk.topic(1).name
    whole: dict[str, Any] = {
        "group_id": group,
        "member_id": "one",
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": [topic],
        "topic_partitions": [],
    }
    names = [f"{LONG[:200]}-{index}" for index in range(2_000)]
    changes: dict[str, dict[str, Any]] = {
        "member": {"member_id": LONG},
        "instance": {"group_id": a_group(talk), "instance_id": LONG},
        "rack": {"group_id": a_group(talk), "rack_id": LONG},
        "assignor": {"server_assignor": LONG},
        "topic": {"group_id": a_group(talk), "subscribed_topic_names": [LONG]},
        "topics": {"group_id": a_group(talk), "subscribed_topic_names": names},
        "one topic, often": {"group_id": a_group(talk), "subscribed_topic_names": [topic] * 5_000},
        "owned, unknown": {"member_epoch": 5, "topic_partitions": [{"topic_id": b"\7" * 16, "partitions": [0] * 9000}]},
        "epoch": {"member_id": "two", "member_epoch": 2**31 - 1},
        "epoch below": {"member_id": "two", "member_epoch": -(2**31)},
        "timeout": {"group_id": a_group(talk), "rebalance_timeout_ms": 2**31 - 1},
        "no timeout": {"group_id": a_group(talk), "rebalance_timeout_ms": 0},
    }
    for label, change in changes.items():
        answer = talk.connection.ask("ConsumerGroupHeartbeat", version, {**whole, **change})
        talk.say(label, _code(answer))
        if isinstance(answer, str):
            talk.connection = talk.connect()


@case("ConsumerGroupHeartbeat", [1])
def expressions_that_are_absurd(talk: Talk, version: int) -> None:
    for label, pattern in {
        "long": "(" + "a|" * 5_000 + "b)",
        "counted": "((a{1,100}){1,100}){1,100}",
        "deep": "(" * 1_500 + "a" + ")" * 1_500,
        "empty": "",
        "null byte": "a\0b",
        "dear to backtrackers": "(a+)+$",
    }.items():
        body = {
            "group_id": a_group(talk),
            "member_id": "one",
            "rebalance_timeout_ms": 1000,
            "subscribed_topic_regex": pattern,
            "topic_partitions": [],
        }
        talk.say(label, _code(talk.connection.ask("ConsumerGroupHeartbeat", version, body)))
