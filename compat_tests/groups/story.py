"""A story of one consumer group: heartbeats of members with chosen names, and what the broker wrote of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from compat_tests.client import WAIT_SECONDS
from compat_tests.harness import Broker
from compat_tests.raw.consumer_group_cases import given_out
from compat_tests.raw.talk import Talk, Topic
from compat_tests.until import until
from kbroker.coordinator.frames import GROUP, decode_record, encode_record
from kbroker.coordinator.group.facts import TopicFacts
from kbroker.coordinator.group.metadata_hash import topic_hash
from kbroker.coordinator.group.xxh3 import xxh3_64
from kbroker.coordinator.placement import OFFSETS_TOPIC, partition_for
from kbroker.protocol.records import ConsumerGroupMetadataValue, GroupMetadataValue

HEARTBEAT = "ConsumerGroupHeartbeat"
PARTITIONS = 1  # of the offsets topic: one log tells everything


class Story:
    def __init__(self, broker: Broker, name: str) -> None:
        self.group = f"group-{name}"
        self.talk = Talk(broker.bootstrap, name)
        self._bootstrap = broker.bootstrap
        self._topics: dict[str, tuple[Topic, int]] = {}
        self._ids: dict[str, bytes] = {}  # of deleted ones too
        self._owned: dict[str, list[dict[str, Any]]] = {}
        self._epochs: dict[str, int] = {}
        self._count = 0
        self._nicknames: dict[str, str] = {}
        self._by_chance = False  # in which order ids made by the broker stand
        until(self._coordinated, WAIT_SECONDS)

    def move(self, broker: Broker) -> None:
        self.talk.move(broker.bootstrap)
        self._bootstrap = broker.bootstrap
        until(self._coordinated, WAIT_SECONDS)

    def _coordinated(self) -> bool:
        found = self.talk.quietly("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": [self.group]})
        if found["coordinators"][0]["error_code"]:
            return False
        body = {"group_id": self.group, "topics": None, "member_id": None, "member_epoch": -1}
        asked = self.talk.quietly("OffsetFetch", 9, {"groups": [body]})
        return asked["groups"][0]["error_code"] not in (14, 15, 16)

    def topic(self, partitions: int) -> str:
        made = self.talk.topic(partitions)
        self._topics[made.name] = (made, partitions)
        self._ids[made.name] = made.topic_id
        until(lambda: given_out(self.talk, made.name), WAIT_SECONDS)
        return made.name

    def grow(self, name: str, partitions: int) -> None:
        wanted = [{"name": name, "count": partitions, "assignments": None}]
        self.talk.quietly("CreatePartitions", 3, {"topics": wanted, "timeout_ms": 30_000})
        until(lambda: self._partitions(name) == partitions, WAIT_SECONDS)
        self._topics[name] = (self._topics[name][0], partitions)

    def delete(self, name: str) -> None:
        wanted = [{"name": name, "topic_id": bytes(16)}]
        self.talk.quietly("DeleteTopics", 6, {"topics": wanted, "timeout_ms": 30_000})
        until(lambda: self._partitions(name) == 0, WAIT_SECONDS)
        del self._topics[name]

    def _partitions(self, name: str) -> int:
        asked = {"topics": [{"topic_id": bytes(16), "name": name}], "allow_auto_topic_creation": False}
        (found,) = self.talk.quietly("Metadata", 12, asked)["topics"]
        return len(found["partitions"])

    def topic_id(self, name: str) -> bytes:
        return self._topics[name][0].topic_id

    # -- members whose ids the broker makes

    def nickname(self, member_id: str, name: str) -> None:
        self._nicknames[member_id] = name
        self._by_chance = self._by_chance or member_id != name
        self.talk.symbol(member_id, name)

    def tell(self, label: str, answer: Any) -> None:
        self._count += 1
        self.talk.say(f"{self._count}: {label}", answer)

    def name_of_member(self, member_id: str) -> str:
        return self._nicknames.get(member_id, member_id)

    def epoch_of(self, member: str) -> int:
        return self._epochs[member]

    def state_of(self, members: Iterable[str]) -> str:
        return str([(self._epochs.get(one), self._owned.get(one)) for one in members])

    # -- heartbeats

    def beat(self, member: str, epoch: int | None = None, *, version: int = 1, **fields: Any) -> dict[str, Any]:
        """Says and keeps what came back. Without an epoch, the one the member was given last."""
        self._count += 1
        label = f"{self._count}: {member} {epoch} {' '.join(f'{k}={self._shown(v)}' for k, v in fields.items())}"
        body = {"group_id": self.group, "member_id": member, **fields}
        body["member_epoch"] = self._epochs.get(member, 0) if epoch is None else epoch
        answer = self.talk.connection.ask(HEARTBEAT, version, body)
        assert isinstance(answer, dict), answer
        if not answer["error_code"]:
            self._epochs[member] = answer["member_epoch"]
            if answer["assignment"] is not None:
                self._owned[member] = answer["assignment"]["topic_partitions"]
        self.talk.say(label, self._ordered(answer))
        return answer

    def beat_until_told(self, member: str) -> None:
        """A change of topics reaches Apache's coordinator some time later: the first answer that tells of it counts."""
        self._count += 1
        answer: dict[str, Any] = {}

        def told() -> bool:
            body = {"group_id": self.group, "member_id": member, "member_epoch": self._epochs[member]}
            answer.update(self.talk.quietly(HEARTBEAT, 1, body))
            return bool(answer["assignment"] is not None or answer["member_epoch"] != self._epochs[member])

        until(told, WAIT_SECONDS)
        self._epochs[member] = answer["member_epoch"]
        if answer["assignment"] is not None:
            self._owned[member] = answer["assignment"]["topic_partitions"]
        self.talk.say(f"{self._count}: {member} is told", self._ordered(answer))

    def quiet_beat(self, member: str) -> None:
        """To stay alive while something else is waited for."""
        body = {"group_id": self.group, "member_id": member, "member_epoch": self._epochs[member]}
        answer = self.talk.quietly(HEARTBEAT, 1, body)
        if not answer["error_code"]:
            self._epochs[member] = answer["member_epoch"]

    def has_all(self, member: str) -> bool:
        """Beats as a member should, and looks whether it is alone in a group that has nothing left to do."""
        body = {"group_id": self.group, "member_id": member, "member_epoch": self._epochs[member]}
        answer = self.talk.quietly(HEARTBEAT, 1, {**body, "topic_partitions": self.owned(member)})
        self._epochs[member] = answer["member_epoch"]
        if answer["assignment"] is not None:
            self._owned[member] = answer["assignment"]["topic_partitions"]
        asked = {"group_ids": [self.group], "include_authorized_operations": False}
        (group,) = self.talk.quietly("ConsumerGroupDescribe", 1, asked)["groups"]
        return len(group["members"]) == 1 and group["group_state"] == "Stable"

    def emptied(self) -> None:
        """The group is deleted, so that the next of its name begins anew."""
        self.tell("deleted", self.talk.quietly("DeleteGroups", 2, {"groups_names": [self.group]}))

    def _shown(self, value: Any) -> str:
        reported = isinstance(value, list) and value and isinstance(value[0], dict)
        return str([one["partitions"] for one in value]) if reported else str(value)

    def join(self, member: str, *topics: str, version: int = 1, **fields: Any) -> dict[str, Any]:
        given = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": list(topics), "topic_partitions": []}
        return self.beat(member, 0, version=version, **{**given, **fields})

    def owned(self, member: str) -> list[dict[str, Any]]:
        """What the member was last told to have, as it reports it."""
        return [
            {"topic_id": bytes.fromhex(one["topic_id"]), "partitions": one["partitions"]}
            for one in self._owned.get(member, [])
        ]

    def acknowledge(self, member: str) -> dict[str, Any]:
        return self.beat(member, topic_partitions=self.owned(member))

    def settle(self, *members: str, rounds: int = 12) -> None:
        """Everyone beats and does as told until nothing is left to do."""
        for _ in range(rounds):
            before = self.state_of(members)
            for one in members:
                self.beat(one)
                self.acknowledge(one)
            if before == self.state_of(members):
                return
        raise AssertionError("the group does not settle")

    def _ordered(self, answer: dict[str, Any]) -> dict[str, Any]:
        if answer.get("assignment") is not None:
            listed = answer["assignment"]["topic_partitions"]
            for one in listed:
                one["partitions"] = sorted(one["partitions"])
            listed.sort(key=lambda one: self._name_of(one["topic_id"]))
        return answer

    def _name_of(self, topic_id: str) -> str:
        return next((name for name, (one, _) in self._topics.items() if one.topic_id.hex() == topic_id), topic_id)

    # -- what others see

    def described(self, label: str, version: int = 1) -> Any:
        body = {"group_ids": [self.group], "include_authorized_operations": True}
        answer = self.talk.quietly("ConsumerGroupDescribe", version, body)
        for group in answer["groups"]:
            group["members"].sort(key=lambda one: self.name_of_member(one["member_id"]))
            for member in group["members"]:
                member["client_host"] = "the host"
                member["subscribed_topic_names"].sort()
                for kind in ("assignment", "target_assignment"):
                    for one in member[kind]["topic_partitions"]:
                        one["partitions"].sort()
                    member[kind]["topic_partitions"].sort(key=lambda one: one["topic_name"])
        self.talk.say(label, answer)
        return answer["groups"][0]

    def members(self) -> list[str]:
        body = {"group_ids": [self.group], "include_authorized_operations": False}
        (group,) = self.talk.quietly("ConsumerGroupDescribe", 1, body)["groups"]
        return [one["member_id"] for one in group["members"]]

    def written(self) -> list[Any]:
        """The group's records in their order; each is checked to be exactly what we would write for it."""
        partition = partition_for(self.group, PARTITIONS)
        reader = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "reader", "enable.auto.commit": False})
        try:
            _, end = reader.get_watermark_offsets(TopicPartition(OFFSETS_TOPIC, partition), timeout=WAIT_SECONDS)
            reader.assign([TopicPartition(OFFSETS_TOPIC, partition, 0)])
            found: list[Any] = []
            at = 0
            while at < end:
                message = reader.poll(WAIT_SECONDS)
                assert message is not None, "the offsets topic cannot be read"
                assert message.error() is None, message.error()
                key, offset = message.key(), message.offset()
                assert key is not None and offset is not None  # noqa: PT018 - the library's types say they may be
                at = offset + 1
                found += self._record(key, message.value())
        finally:
            reader.close()
        if not self._by_chance:
            return found
        runs = groupby(found, key=lambda text: str(text).partition("(")[0])
        return [text for _, run in runs for text in sorted(run)]

    def _record(self, key: bytes, value: bytes | None) -> list[Any]:
        record = decode_record(GROUP, key, value)
        assert record is not None, key
        if getattr(record.key, "group_id", getattr(record.key, "group", None)) != self.group:
            return []
        assert encode_record(record) == (key, value), record
        self._sort(record.value)
        if isinstance(record.value, GroupMetadataValue):
            record.value.members.sort(key=lambda one: self.name_of_member(one.member_id))
        if isinstance(record.value, ConsumerGroupMetadataValue):
            record.value.metadata_hash = self._meant(record.value.metadata_hash)  # type: ignore[assignment]
        for clock in ("assignment_timestamp", "commit_timestamp", "timestamp", "current_state_timestamp"):
            if getattr(record.value, clock, 0):
                setattr(record.value, clock, "then")
        text = f"{record.key} -> {record.value}"
        for name, topic_id in self._ids.items():
            text = text.replace(str(topic_id), f"id of {name}")
        for member_id, name in self._nicknames.items():
            text = text.replace(member_id, name)
        return [text]

    def _sort(self, value: Any) -> None:
        """Java's hash tables order topics by their ids, which differ, and partitions in a way of their own."""
        for field in ("topic_partitions", "assigned_partitions", "partitions_pending_revocation"):
            listed = getattr(value, field, None) or []
            listed.sort(key=lambda one: self._name_of(one.topic_id.hex()))
            for one in listed:
                epochs = getattr(one, "assignment_epochs", None)
                if epochs is not None:
                    one.assignment_epochs = [epoch for _, epoch in sorted(zip(one.partitions, epochs, strict=True))]
                one.partitions = sorted(one.partitions)

    def _meant(self, metadata_hash: int) -> str:
        """Ids differ from broker to broker and hashes with them: which topics give this one."""
        kinds = [TopicFacts(name, topic.topic_id, count) for name, (topic, count) in sorted(self._topics.items())]
        for chosen in range(1 << len(kinds)):
            subset = [one for index, one in enumerate(kinds) if chosen >> index & 1]
            hashes = [topic_hash(one, [[] for _ in range(one.partitions)]) for one in subset]
            value = xxh3_64(b"".join(one.to_bytes(8, "little") for one in hashes)) if hashes else 0
            if value == metadata_hash & 0xFFFFFFFFFFFFFFFF:
                return f"of {[one.name for one in subset]}"
        return "of topics as they were"


Tale = Callable[[Story], None]
TALES: dict[str, Tale] = {}


def tale(run: Tale) -> Tale:
    TALES[run.__name__.replace("_", " ")] = run
    return run
