"""The classic group protocol, request by request: states, fencing, static members, and what operators ask."""

from __future__ import annotations

from typing import Any

from compat_tests.client import WAIT_SECONDS
from compat_tests.raw.cases import case
from compat_tests.raw.connection import Connection
from compat_tests.raw.talk import Talk
from compat_tests.until import until

SUBSCRIPTION = bytes.fromhex("0001 00000001 0001 74 ffffffff 00000000".replace(" ", ""))  # topic "t", owns nothing
SESSION_MS = 30_000
NOT_READY = (14, 15, 16)
JOIN, SYNC, BEAT, LEAVE = 9, 5, 4, 5  # versions for what is not the case's matter


def a_group(talk: Talk) -> str:
    """A name whose coordinator answers."""
    name = talk.name()

    def ready() -> bool:
        found = talk.quietly("FindCoordinator", 3, {"key": name, "key_type": 0})
        beat = talk.quietly("Heartbeat", BEAT, {"group_id": name, "generation_id": 0, "member_id": "x"})
        return found["error_code"] == 0 and beat["error_code"] not in NOT_READY

    until(ready, WAIT_SECONDS)
    return name


def joining(group: str, member: str = "", **more: Any) -> dict[str, Any]:
    body = {
        "group_id": group,
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": SESSION_MS,
        "member_id": member,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
    }
    return {**body, **more}


def told(talk: Talk, label: str, answer: Any) -> Any:
    """Member ids are symbols by the order in which they came; the leader's list has none."""
    if isinstance(answer, dict):
        for key in ("member_id", "leader"):
            know(talk, answer.get(key))
        for one in answer.get("members", []):
            know(talk, one["member_id"])
        answer.get("members", []).sort(key=lambda one: str(talk._symbols.get(one["member_id"])))
    return talk.say(label, answer)


def know(talk: Talk, member_id: Any) -> None:
    if member_id and member_id not in talk._symbols:
        talk.symbol(member_id, f"member {len([1 for name in talk._symbols.values() if name.startswith('member')]) + 1}")


class Member:
    """One member on a connection of its own: its JoinGroup may have to wait."""

    def __init__(self, talk: Talk, group: str, **more: Any) -> None:
        self.talk, self.group, self.more = talk, group, more
        self.connection: Connection = talk.connect()
        self.member_id, self.generation = "", -1

    def identity(self, **more: Any) -> dict[str, Any]:
        known = {"group_id": self.group, "generation_id": self.generation, "member_id": self.member_id}
        return {**known, "group_instance_id": self.more.get("group_instance_id"), **more}

    def start_join(self, version: int = JOIN, **more: Any) -> None:
        body = {**joining(self.group, self.member_id, **self.more), **more}
        if not self.member_id and version >= 4 and body.get("group_instance_id") is None:
            asked = self.connection.ask("JoinGroup", version, body)
            assert isinstance(asked, dict)
            assert asked["error_code"] == 79, asked
            self.member_id = body["member_id"] = asked["member_id"]
        self.version = version
        self.connection.send(self.connection.request_frame("JoinGroup", version, body))

    def finish_join(self) -> dict[str, Any]:
        answer = self.connection.answer("JoinGroup", self.version, self.connection.correlation_id)
        assert isinstance(answer, dict), answer
        if answer["error_code"] == 0:
            self.member_id, self.generation = answer["member_id"], answer["generation_id"]
        return answer

    def join(self, version: int = JOIN, **more: Any) -> dict[str, Any]:
        self.start_join(version, **more)
        return self.finish_join()

    def sync(self, version: int = SYNC, **more: Any) -> dict[str, Any]:
        body = self.identity(protocol_type="consumer", protocol_name="range", assignments=[])
        answer = self.connection.ask("SyncGroup", version, {**body, **more})
        assert isinstance(answer, dict), answer
        return answer

    def beat(self, version: int = BEAT, **more: Any) -> Any:
        return self.connection.ask("Heartbeat", version, {**self.identity(), **more})

    def settle(self, assignment: bytes = b"mine") -> Member:
        """Alone in the group, with an assignment."""
        answer = self.join()
        assert answer["error_code"] == 0, answer
        synced = self.sync(assignments=[{"member_id": self.member_id, "assignment": assignment}])
        assert synced["error_code"] == 0, synced
        know(self.talk, self.member_id)
        return self


def state_of(talk: Talk, group: str) -> str:
    (described,) = talk.quietly("DescribeGroups", 5, {"groups": [group]})["groups"]
    return str(described["group_state"])


# ---- JoinGroup ----


@case("JoinGroup")
def first_and_second_generation(talk: Talk, version: int) -> None:
    group = a_group(talk)
    answer = talk.connection.ask("JoinGroup", version, joining(group))
    told(talk, "first", answer)
    assert isinstance(answer, dict)
    if answer["error_code"] == 79:
        answer = told(
            talk, "with its id", talk.connection.ask("JoinGroup", version, joining(group, answer["member_id"]))
        )
    told(talk, "again", talk.connection.ask("JoinGroup", version, joining(group, answer["member_id"])))
    other = [{"name": "range", "metadata": b"else"}]
    body = joining(group, answer["member_id"], protocols=other)
    told(talk, "otherwise", talk.connection.ask("JoinGroup", version, body))
    body = joining(group, answer["member_id"], protocols=[*other, *other])
    told(talk, "named twice", talk.connection.ask("JoinGroup", version, body))


@case("JoinGroup")
def what_is_refused(talk: Talk, version: int) -> None:
    group = a_group(talk)
    bodies = {
        "no group": joining(""),
        "short session": joining(group, session_timeout_ms=5_999),
        "long session": joining(group, session_timeout_ms=1_800_001),
        "negative session": joining(group, session_timeout_ms=-1),
        "unknown group": joining(group, "somebody"),
        "no protocols": joining(group, protocols=[]),
        "no type": joining(group, protocol_type=""),
    }
    for label, body in bodies.items():
        told(talk, label, talk.connection.ask("JoinGroup", version, body))
    member = Member(talk, group).settle()
    bodies = {
        "unknown member": joining(group, "somebody"),
        "other type": joining(group, protocol_type="connect"),
        "nothing in common": joining(group, protocols=[{"name": "other", "metadata": b""}]),
        "nothing in common, known": joining(group, member.member_id, protocols=[{"name": "other", "metadata": b""}]),
        "no protocols now": joining(group, member.member_id, protocols=[]),
    }
    for label, body in bodies.items():
        told(talk, label, talk.connection.ask("JoinGroup", version, body))


@case("JoinGroup")
def a_member_more(talk: Talk, version: int) -> None:
    group = a_group(talk)
    one = Member(talk, group).settle()
    two = Member(talk, group)
    two.start_join(version, protocols=[{"name": "x", "metadata": b"x"}, {"name": "range", "metadata": b"meta"}])
    until(lambda: state_of(talk, group) == "PreparingRebalance", WAIT_SECONDS)
    talk.say("heartbeat of the first", one.beat())
    talk.say("sync of the first", one.sync())
    told(talk, "first", one.join(version))
    told(talk, "second", two.finish_join())
    talk.say("heartbeat in between", one.beat())
    two.connection.send(two.connection.request_frame("SyncGroup", SYNC, two.identity(assignments=[])))
    parts = [{"member_id": one.member_id, "assignment": b"1"}, {"member_id": two.member_id, "assignment": b"2"}]
    talk.say("sync of the leader", one.sync(assignments=[*parts, {"member_id": "else", "assignment": b"3"}]))
    talk.say("sync of the other", two.connection.answer("SyncGroup", SYNC, two.connection.correlation_id))
    talk.say(
        "follower joins unchanged",
        two.connection.ask(
            "JoinGroup",
            version,
            joining(
                group,
                two.member_id,
                protocols=[{"name": "x", "metadata": b"x"}, {"name": "range", "metadata": b"meta"}],
            ),
        ),
    )


@case("JoinGroup", range(5, 10))
def static_members(talk: Talk, version: int) -> None:
    group = a_group(talk)
    one = Member(talk, group, group_instance_id="i1").settle(b"kept")
    old_id = one.member_id
    told(talk, "comes back", talk.connection.ask("JoinGroup", version, joining(group, group_instance_id="i1")))
    talk.say("old id beats", one.beat())
    talk.say("old id beats as dynamic", one.beat(group_instance_id=None))
    talk.say("old id syncs", one.sync())
    told(
        talk, "old id joins", talk.connection.ask("JoinGroup", version, joining(group, old_id, group_instance_id="i1"))
    )
    told(talk, "other name", talk.connection.ask("JoinGroup", version, joining(group, old_id, group_instance_id="i2")))
    again = Member(talk, group, group_instance_id="i1")
    told(talk, "and again", again.join(version))
    synced = again.sync()
    talk.say("what it had", synced)


@case("JoinGroup", range(5, 10))
def static_follower_comes_back(talk: Talk, version: int) -> None:
    group = a_group(talk)
    leader = Member(talk, group).settle()
    static = Member(talk, group, group_instance_id="s")
    static.start_join()
    until(lambda: state_of(talk, group) == "PreparingRebalance", WAIT_SECONDS)
    leader.join()
    static.finish_join()
    know(talk, static.member_id)
    parts = [{"member_id": static.member_id, "assignment": b"of s"}]
    leader.sync(assignments=parts)
    again = Member(talk, group, group_instance_id="s")
    told(talk, "back", again.join(version))
    talk.say("assignment", again.sync())
    talk.say("leader unharmed", leader.beat())
    changed = Member(talk, group, group_instance_id="s")
    changed.start_join(version, protocols=[{"name": "range", "metadata": b"changed"}])
    told(talk, "back, changed", changed.finish_join())
    talk.say("leader now", leader.beat())


@case("JoinGroup", [9])
def protocol_votes(talk: Talk, version: int) -> None:
    for label, firsts in (("tie", ("range", "roundrobin")), ("other tie", ("sticky", "cooperative-sticky"))):
        group = a_group(talk)
        one = Member(talk, group, protocols=[{"name": name, "metadata": b""} for name in firsts])
        two = Member(talk, group, protocols=[{"name": name, "metadata": b""} for name in reversed(firsts)])
        one.join()
        two.start_join()
        until(lambda group=group: state_of(talk, group) == "PreparingRebalance", WAIT_SECONDS)  # type: ignore[misc]
        talk.say(label, one.join()["protocol_name"])
        two.finish_join()


@case("JoinGroup", [3, 9])
def absurd_ids(talk: Talk, version: int) -> None:
    long = "g" * 32_000
    answer = talk.connection.ask("JoinGroup", version, joining(long))
    talk.say("long group id", answer["error_code"] if isinstance(answer, dict) else answer)
    group = a_group(talk)
    for label, body in {
        "long member id": joining(group, "m" * 32_000),
        "long protocol": joining(group, "m", protocols=[{"name": "p" * 32_000, "metadata": b""}]),
    }.items():
        answer = talk.connection.ask("JoinGroup", version, body)
        talk.say(label, answer["error_code"] if isinstance(answer, dict) else answer)


# ---- SyncGroup, Heartbeat, LeaveGroup ----


@case("SyncGroup")
def assignments(talk: Talk, version: int) -> None:
    group = a_group(talk)
    talk.ask("no group", "SyncGroup", version, {"group_id": "", "generation_id": 1, "member_id": "m"})
    named = {"protocol_type": "consumer", "protocol_name": "range"}
    nobody = {"group_id": group, "generation_id": 1, "member_id": "m", **named}
    talk.ask("unknown group", "SyncGroup", version, nobody)
    member = Member(talk, group)
    member.join()
    know(talk, member.member_id)
    talk.say("unknown member", member.sync(version, member_id="else"))
    talk.say("old generation", member.sync(version, generation_id=0))
    talk.say("other type", member.sync(version, protocol_type="connect"))
    talk.say("other protocol", member.sync(version, protocol_name="sticky"))
    talk.say("no names", member.sync(version, protocol_type=None, protocol_name=None))
    twice = [{"member_id": member.member_id, "assignment": one} for one in (b"first", b"second")]
    talk.say("named twice", member.sync(version, assignments=twice))
    talk.say("again", member.sync(version))
    talk.say(
        "again with another", member.sync(version, assignments=[{"member_id": member.member_id, "assignment": b"3"}])
    )
    talk.say("unknown static", member.sync(version, group_instance_id="i"))


@case("SyncGroup", [0, 5])
def nothing_assigned(talk: Talk, version: int) -> None:
    member = Member(talk, a_group(talk))
    member.join()
    talk.say("empty", member.sync(version))


@case("Heartbeat")
def beats(talk: Talk, version: int) -> None:
    group = a_group(talk)
    talk.ask("no group", "Heartbeat", version, {"group_id": "", "generation_id": 1, "member_id": "m"})
    talk.ask("unknown group", "Heartbeat", version, {"group_id": group, "generation_id": 1, "member_id": "m"})
    member = Member(talk, group)
    member.join()
    talk.say("before sync", member.beat(version))
    member.sync()
    talk.say("stable", member.beat(version))
    talk.say("old generation", member.beat(version, generation_id=0))
    talk.say("new generation", member.beat(version, generation_id=2))
    talk.say("no member", member.beat(version, member_id=""))
    talk.say("unknown member", member.beat(version, member_id="else"))
    talk.say("unknown member of an old generation", member.beat(version, member_id="else", generation_id=0))


@case("LeaveGroup")
def leaving(talk: Talk, version: int) -> None:
    group = a_group(talk)

    def leave(label: str, *members: tuple[str, str | None]) -> None:
        named = [{"member_id": one, "group_instance_id": instance, "reason": "test"} for one, instance in members]
        body = {"group_id": group, "member_id": members[0][0] if members else "", "members": named}
        talk.ask(label, "LeaveGroup", version, body)

    talk.ask("no group", "LeaveGroup", version, {"group_id": "", "member_id": "m", "members": []})
    leave("unknown group", ("m", None))
    member = Member(talk, group).settle()
    leave("unknown member", ("else", None))
    if version >= 3:
        leave("nobody")
        static = Member(talk, group, group_instance_id="i")
        static.start_join()
        until(lambda: state_of(talk, group) == "PreparingRebalance", WAIT_SECONDS)
        member.join()
        static.finish_join()
        know(talk, static.member_id)
        leave("wrong instance", (member.member_id, "j"))
        leave("fenced", ("else", "i"))
        leave("several", ("else", None), ("", "i"), ("", None), ("", "j"), (member.member_id, None))
    else:
        leave("the member", (member.member_id, None))
    leave("gone already", (member.member_id, None))
    talk.say("state", state_of(talk, group))
    talk.say("beat of the gone", member.beat())
    pending = talk.quietly("JoinGroup", JOIN, joining(group))["member_id"]
    talk.symbol(pending, "a pending id")
    leave("pending", (pending, None))
    told(talk, "joins nevertheless", talk.connection.ask("JoinGroup", JOIN, joining(group, pending)))


# ---- operators ----


@case("DescribeGroups")
def described(talk: Talk, version: int) -> None:
    group, empty, strange = a_group(talk), a_group(talk), a_group(talk)
    body = {"groups": [group, ""], "include_authorized_operations": True}
    talk.ask("unknown", "DescribeGroups", version, body)
    talk.quietly("JoinGroup", JOIN, joining(empty))
    until(lambda: state_of(talk, empty) == "Empty", WAIT_SECONDS)
    talk.ask("awaited", "DescribeGroups", version, {"groups": [empty]})
    member = Member(talk, group)
    member.join()
    know(talk, member.member_id)
    talk.ask("completing", "DescribeGroups", version, body)
    member.sync(assignments=[{"member_id": member.member_id, "assignment": b"mine"}])
    talk.ask("stable", "DescribeGroups", version, body)
    other = Member(talk, strange, protocol_type="connect", group_instance_id="i")
    other.join()
    know(talk, other.member_id)
    talk.ask("other kind", "DescribeGroups", version, {"groups": [strange, group, strange]})
    talk.ask("nothing", "DescribeGroups", version, {"groups": []})


@case("ListGroups")
def listed(talk: Talk, version: int) -> None:
    stable, empty, simple = a_group(talk), a_group(talk), a_group(talk)
    topic = talk.topic()
    Member(talk, stable).settle()
    talk.quietly("JoinGroup", JOIN, joining(empty))
    until(lambda: state_of(talk, empty) == "Empty", WAIT_SECONDS)
    commit_simply(talk, simple, topic.name)

    def ask(label: str, states: list[str], types: list[str]) -> None:
        answer = talk.connection.ask("ListGroups", version, {"states_filter": states, "types_filter": types})
        if isinstance(answer, dict):
            mine = [one for one in answer["groups"] if one["group_id"] in (stable, empty, simple)]
            answer["groups"] = sorted(mine, key=lambda one: str(one["group_id"]))
        talk.say(label, answer)

    ask("all", [], [])
    if version >= 4:
        ask("stable", ["Stable"], [])
        ask("two states, any case", ["eMpty", " stable "], [])
        ask("no such state", ["Sleeping"], [])
    if version >= 5:
        ask("classic", [], ["Classic"])
        ask("consumer", [], ["consumer"])
        ask("no such type", [], ["odd"])
        ask("both", ["Empty"], ["classic"])


@case("DeleteGroups")
def deleted(talk: Talk, version: int) -> None:
    stable, empty, simple = a_group(talk), a_group(talk), a_group(talk)
    topic = talk.topic()
    member = Member(talk, stable).settle()
    talk.quietly("JoinGroup", JOIN, joining(empty))
    commit_simply(talk, simple, topic.name)

    def delete(label: str, *names: str) -> None:
        answer = talk.connection.ask("DeleteGroups", version, {"groups_names": list(names)})
        if isinstance(answer, dict):
            answer["results"].sort(key=lambda one: str(one["group_id"]))
        talk.say(label, answer)

    delete("each", stable, empty, simple, talk.name(), "")
    delete("again", stable, empty, simple)
    delete("nothing")
    talk.say("offsets", fetch_simply(talk, simple, topic.name))
    talk.say("unharmed", member.beat())


# ---- shared with the cases of offsets ----


def commit_simply(talk: Talk, group: str, topic: str, offset: int = 5) -> None:
    part = {"partition_index": 0, "committed_offset": offset}
    body = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": topic, "partitions": [part]}],
    }
    answer = talk.quietly("OffsetCommit", 8, body)
    assert answer["topics"][0]["partitions"][0]["error_code"] == 0, answer


def fetch_simply(talk: Talk, group: str, topic: str) -> int:
    body = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}
    return int(talk.quietly("OffsetFetch", 5, body)["topics"][0]["partitions"][0]["committed_offset"])
