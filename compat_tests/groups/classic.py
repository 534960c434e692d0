"""A member of the classic protocol in a story: on a connection of its own, because its JoinGroup may have to wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compat_tests.groups.story import Story
from kbroker.protocol.codec import decode, encode
from kbroker.protocol.records import ConsumerProtocolAssignment, ConsumerProtocolSubscription

JOIN, SYNC, BEAT, LEAVE = 9, 5, 4, 5
MEMBER_ID_REQUIRED = 79
Owned = Sequence[tuple[str, Sequence[int]]]


def subscription(*topics: str, owned: Owned = (), version: int = 1, **more: Any) -> bytes:
    held = [ConsumerProtocolSubscription.TopicPartition(topic=name, partitions=[*parts]) for name, parts in owned]
    message = ConsumerProtocolSubscription(topics=[*topics], owned_partitions=held, **more)
    return encode(message, version, version.to_bytes(2, "big"))


def assignment(*parts: tuple[str, Sequence[int]], version: int = 1, user_data: bytes | None = None) -> bytes:
    held = [ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=[*ones]) for name, ones in parts]
    message = ConsumerProtocolAssignment(assigned_partitions=held, user_data=user_data)
    return encode(message, version, version.to_bytes(2, "big"))


class Classic:
    """`name` stands for the id that the broker gives it, unless it chose one."""

    def __init__(self, story: Story, name: str, *topics: str, member_id: str = "", **fields: Any) -> None:
        self.story, self.name, self.topics = story, name, topics
        self.member_id, self.generation = member_id, -1
        self.instance: str | None = fields.pop("group_instance_id", None)
        self.protocols: tuple[str, ...] = fields.pop("protocols", ("range",))
        self.fields = fields
        self.owned: list[tuple[str, list[int]]] = []
        self._connection = story.talk.connect()
        self._version = JOIN

    def reconnect(self) -> None:
        self._connection = self.story.talk.connect()

    def joining(self, **more: Any) -> dict[str, Any]:
        owned = more.pop("owned", ())
        metadata = more.pop("metadata", None) or subscription(*more.pop("topics", self.topics), owned=owned)
        names = more.pop("protocols", self.protocols)
        body = {
            "group_id": self.story.group,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": "consumer",
            "protocols": [{"name": one, "metadata": metadata} for one in names],
        }
        return {**body, **self.fields, **more}

    def start_join(self, version: int = JOIN, **more: Any) -> None:
        body = self.joining(**more)
        if not body["member_id"] and self.instance is None and version >= 4:
            asked: Any = self._connection.ask("JoinGroup", version, body)
            assert asked["error_code"] == MEMBER_ID_REQUIRED, asked
            self.member_id = body["member_id"] = asked["member_id"]
            self.story.nickname(self.member_id, self.name)
        self._version = version
        self._connection.send(self._connection.request_frame("JoinGroup", version, body))

    def finish_join(self) -> dict[str, Any]:
        answer = self._connection.answer("JoinGroup", self._version, self._connection.correlation_id)
        assert isinstance(answer, dict), answer
        if not answer["error_code"]:
            self.member_id, self.generation = answer["member_id"], answer["generation_id"]
            self.story.nickname(self.member_id, self.name)
        self.story.tell(f"{self.name} joins", answer)
        return answer

    def join(self, version: int = JOIN, **more: Any) -> dict[str, Any]:
        self.start_join(version, **more)
        return self.finish_join()

    def _identity(self, more: dict[str, Any]) -> dict[str, Any]:
        known = {"group_id": self.story.group, "generation_id": self.generation, "member_id": self.member_id}
        return {**known, "group_instance_id": self.instance, **more}

    def start_sync(self, **more: Any) -> None:
        body = {"protocol_type": "consumer", "protocol_name": self.protocols[0], "assignments": []}
        frame = self._connection.request_frame("SyncGroup", SYNC, {**self._identity({}), **body, **more})
        self._connection.send(frame)

    def finish_sync(self) -> dict[str, Any]:
        answer = self._connection.answer("SyncGroup", SYNC, self._connection.correlation_id)
        assert isinstance(answer, dict), answer
        data = bytes.fromhex(answer["assignment"])
        if data[:1] == b"\x00":
            found, _ = decode(ConsumerProtocolAssignment, data[1], data, 2)
            self.owned = sorted((one.topic, sorted(one.partitions)) for one in found.assigned_partitions)
            answer["assignment"] = [data[1], self.owned, str(found.user_data)]
        self.story.tell(f"{self.name} syncs", answer)
        return answer

    def sync(self, **more: Any) -> dict[str, Any]:
        self.start_sync(**more)
        return self.finish_sync()

    def beat(self, **more: Any) -> int:
        answer: Any = self._connection.ask("Heartbeat", BEAT, self._identity(more))
        self.story.tell(f"{self.name} beats {more or ''}", answer)
        return int(answer["error_code"])

    def quiet_beat(self) -> int:
        answer: Any = self._connection.ask("Heartbeat", BEAT, self._identity({}))
        return int(answer["error_code"])

    def leave(self, version: int = LEAVE, **more: Any) -> None:
        identity = {"member_id": self.member_id, "group_instance_id": self.instance, "reason": "it is time", **more}
        body = {"group_id": self.story.group, "member_id": self.member_id, "members": [identity]}
        self.story.tell(f"{self.name} leaves {more or ''}", self._connection.ask("LeaveGroup", version, body))

    def lead(self, *parts: tuple[Classic, bytes]) -> None:
        """Makes the assignment of a classic generation."""
        self.sync(assignments=[{"member_id": one.member_id, "assignment": data} for one, data in parts])

    def settle(self, *parts: tuple[str, Sequence[int]]) -> Classic:
        """Alone in a classic group, with an assignment."""
        self.join()
        self.lead((self, assignment(*parts)))
        return self

    def follow(self) -> bool:
        """Does what the protocol asks for after a heartbeat; whether there was anything to do."""
        if self.beat() == 0:
            return False
        cooperative = self.protocols[0] == "cooperative-sticky"
        self.join(owned=self.owned if cooperative else ())
        self.sync()
        return True


def settle_all(story: Story, classics: Sequence[Classic], consumers: Sequence[str], rounds: int = 12) -> None:
    """Everyone goes on until nothing is left to do."""
    for _ in range(rounds):
        before = story.state_of(consumers)
        moved = [one.follow() for one in classics]
        for name in consumers:
            story.beat(name)
            story.acknowledge(name)
        if not any(moved) and before == story.state_of(consumers):
            return
    raise AssertionError("the group does not settle")
