"""OffsetCommit, OffsetFetch, OffsetDelete: who may commit what, and what is found afterwards."""

from __future__ import annotations

from functools import partial
from typing import Any

from compat_tests.client import WAIT_SECONDS
from compat_tests.raw.cases import case
from compat_tests.raw.group_cases import Member, a_group, commit_simply, fetch_simply, joining, know, state_of
from compat_tests.raw.talk import Talk, Topic
from compat_tests.until import until


def part(index: int = 0, offset: int = 7, **more: Any) -> dict[str, Any]:
    return {"partition_index": index, "committed_offset": offset, "committed_metadata": "m", **more}


def of(topic: Topic, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"name": topic.name, "topic_id": topic.topic_id, "partitions": list(parts or [part()])}


def commit(group: str, *topics: dict[str, Any], **more: Any) -> dict[str, Any]:
    body = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "retention_time_ms": -1}
    return {**body, "topics": list(topics), **more}


def fetch(version: int, group: str, topics: list[tuple[Topic, list[int]]] | None) -> dict[str, Any]:
    wanted = None
    if topics is not None:
        wanted = [{"name": t.name, "topic_id": t.topic_id, "partition_indexes": indexes} for t, indexes in topics]
    if version >= 8:
        return {"groups": [{"group_id": group, "topics": wanted}]}
    old = None if wanted is None else [{k: v for k, v in one.items() if k != "topic_id"} for one in wanted]
    return {"group_id": group, "topics": old}


def asking(talk: Talk, api: str, version: int, label: str, body: dict[str, Any]) -> None:
    talk.ask(label, api, version, body)


NOWHERE = Topic("no-such-topic", b"\x07" * 16)


@case("OffsetCommit")
def without_membership(talk: Talk, version: int) -> None:
    group, topic, other = a_group(talk), talk.topic(2), talk.topic()
    ask = partial(asking, talk, "OffsetCommit", version)
    ask("first", commit(group, of(topic, part(0, 5, committed_leader_epoch=3), part(1, 6)), of(other)))
    ask("nothing", commit(group))
    ask("no partitions", commit(group, {"name": topic.name, "topic_id": topic.topic_id, "partitions": []}))
    ask("no group id", commit("", of(topic)))
    ask("negative offset", commit(group, of(topic, part(0, -1))))
    ask("no metadata", commit(group, of(topic, part(0, 1, committed_metadata=None))))
    ask("longest metadata", commit(group, of(topic, part(committed_metadata="x" * 4096))))
    ask("metadata too long", commit(group, of(topic, part(0), part(1, committed_metadata="x" * 4097))))
    ask("many bytes of metadata", commit(group, of(topic, part(committed_metadata="é" * 4000))))
    ask("wrong partitions", commit(group, of(topic, part(2), part(0), part(-1))))
    ask("unknown topic", commit(group, of(NOWHERE), of(topic)))
    ask("only an unknown topic", commit(group, of(NOWHERE), generation_id_or_member_epoch=9, member_id="x"))
    ask("twice", commit(group, of(topic, part(0, 1), part(0, 2))))
    ask("generation", commit(group, of(topic), generation_id_or_member_epoch=0))
    ask("member", commit(group, of(topic), member_id="m"))
    ask("member and generation", commit(group, of(topic), member_id="m", generation_id_or_member_epoch=1))
    ask("generation, unknown group", commit(talk.name(), of(topic), generation_id_or_member_epoch=0, member_id="m"))
    ask("member, unknown group", commit(talk.name(), of(topic), member_id="m"))
    talk.ask("found", "OffsetFetch", 7, fetch(7, group, [(topic, [0, 1]), (other, [0])]))


@case("OffsetCommit")
def of_members(talk: Talk, version: int) -> None:
    group, topic = a_group(talk), talk.topic()
    member = Member(talk, group)
    member.join()
    know(talk, member.member_id)
    told = {"member_id": member.member_id, "generation_id_or_member_epoch": 1}
    ask = partial(asking, talk, "OffsetCommit", version)
    ask("before sync", commit(group, of(topic), **told))
    member.sync()
    ask("stable", commit(group, of(topic), **told))
    ask("nobody", commit(group, of(topic)))
    ask("old generation", commit(group, of(topic), **{**told, "generation_id_or_member_epoch": 0}))
    ask("no generation", commit(group, of(topic), **{**told, "generation_id_or_member_epoch": -1}))
    ask("unknown member", commit(group, of(topic), **{**told, "member_id": "else"}))
    ask("unknown and old", commit(group, of(topic), member_id="else", generation_id_or_member_epoch=0))
    if version >= 7:
        ask("unknown instance", commit(group, of(topic), **told, group_instance_id="i"))
    other = Member(talk, group)
    other.start_join()
    until(lambda: state_of(talk, group) == "PreparingRebalance", WAIT_SECONDS)
    ask("in a rebalance", commit(group, of(topic), **told))


@case("OffsetFetch")
def found(talk: Talk, version: int) -> None:
    group, topic, other = a_group(talk), talk.topic(3), talk.topic()
    parts = [part(0, 5, committed_leader_epoch=2), part(2, 9, committed_metadata="")]
    talk.quietly("OffsetCommit", 8, commit(group, {"name": topic.name, "partitions": parts}))
    ask = partial(asking, talk, "OffsetFetch", version)
    ask("some", fetch(version, group, [(topic, [0, 1, 2]), (other, [0])]))
    ask("not there", fetch(version, group, [(topic, [9, -1])]))
    ask("unknown topic", fetch(version, group, [(NOWHERE, [0]), (topic, [0])]))
    ask("nothing", fetch(version, group, []))
    ask("unknown group", fetch(version, talk.name(), [(topic, [0])]))
    ask("no group id", fetch(version, talk.name() if version < 8 else "", []))
    if version >= 2:
        answer = talk.connection.ask("OffsetFetch", version, fetch(version, group, None))
        assert isinstance(answer, dict)
        for one in answer["groups"] if version >= 8 else [answer]:
            one["topics"][0]["partitions"].sort(key=lambda each: int(each["partition_index"]))
        talk.say("all", answer)
        ask("all of an unknown group", fetch(version, talk.name(), None))
    if version >= 7:
        ask("stable ones", {**fetch(version, group, [(topic, [0])]), "require_stable": True})
    if version >= 8:
        two = fetch(version, group, [(topic, [0])])["groups"] + fetch(version, talk.name(), None)["groups"]
        ask("two groups", {"groups": two})
        ask("no groups", {"groups": []})
    if version >= 9:
        (one,) = fetch(version, group, [(topic, [0])])["groups"]
        ask("as a member", {"groups": [{**one, "member_id": "m", "member_epoch": 4}]})


@case("OffsetDelete")
def deleted(talk: Talk, version: int) -> None:
    group, topic = a_group(talk), talk.topic(2)

    def delete(label: str, name: str, *wanted: tuple[str, list[int]]) -> None:
        topics = [{"name": t, "partitions": [{"partition_index": i} for i in indexes]} for t, indexes in wanted]
        talk.ask(label, "OffsetDelete", version, {"group_id": name, "topics": topics})

    delete("no group", "", (topic.name, [0]))
    delete("unknown group", group, (topic.name, [0]))
    commit_simply(talk, group, topic.name)
    delete("not there", group, (topic.name, [1, 5]), (NOWHERE.name, [0]))
    delete("there", group, (topic.name, [0]))
    talk.say("left", fetch_simply(talk, group, topic.name))
    delete("nothing", group)
    reader = bytes.fromhex("0000 00000001") + len(topic.name).to_bytes(2, "big") + topic.name.encode() + b"\xff" * 4
    member = Member(talk, group, protocols=[{"name": "range", "metadata": reader}]).settle()
    other = talk.topic()
    commit_other = commit(group, of(other), member_id=member.member_id, generation_id_or_member_epoch=1)
    talk.quietly("OffsetCommit", 8, commit_other)
    delete("subscribed", group, (topic.name, [0]), (other.name, [0]))
    broken = a_group(talk)
    Member(talk, broken, protocols=[{"name": "range", "metadata": b"\x00"}]).settle()
    delete("malformed metadata", broken, (topic.name, [0]))
    connect = a_group(talk)
    one = Member(talk, connect, protocol_type="connect")
    one.join()
    delete("of another kind", connect, (topic.name, [0]))
    awaited = a_group(talk)
    talk.quietly("JoinGroup", 9, joining(awaited))
    delete("awaited", awaited, (topic.name, [0]))
