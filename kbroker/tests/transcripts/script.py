"""Transcripts of groups: a command, then exactly what happened.

    join a protocols=range,sticky        a client named `a` sends JoinGroup with the id it was given last, if any
    ----
    a: MEMBER_ID_REQUIRED a-1            what clients are told
    timer session a-1 +30000             what is armed, or disarmed (off)
    record group generation=0 Empty      what is written
    Empty 0 awaited=a-1                  the group afterwards

    consume c topics=t owned=t:0,1       a client named `c` sends ConsumerGroupHeartbeat with the epoch it was given
    ----
    c: epoch 2 t:0,1,2,3

`make transcripts` writes what happens now; the diff is the review.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kbroker._core.errors import Err
from kbroker.coordinator.frames import GROUP as KIND
from kbroker.coordinator.frames import decode_record
from kbroker.coordinator.group import embedded
from kbroker.coordinator.group.classic import ClassicGroup
from kbroker.coordinator.group.consumer import ConsumerGroup
from kbroker.coordinator.group.consumer_settings import ConsumerSettings
from kbroker.coordinator.group.settings import GroupSettings
from kbroker.errors import NONE, KafkaError
from kbroker.protocol.codec import encode
from kbroker.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kbroker.protocol.records import ConsumerProtocolSubscription, GroupMetadataKey, OffsetCommitKey
from kbroker.tests.transcripts.shown import consumer_record, shown, shown_assignment
from kbroker.tests.unit.coordinator.stage import Stage, topic_id

FOLDER = Path(__file__).parent
RULE = "----"
GROUP = "g"


class Script:
    def __init__(self) -> None:
        self.settings = GroupSettings(initial_rebalance_delay_ms=3_000)
        self.stage = Stage(self.settings, t=4, u=2)
        self.ids: dict[str, str] = {}
        self.generations: dict[str, int] = {}
        self._tokens = 0
        self._who: dict[object, str] = {}

    def play(self, line: str) -> list[str]:
        """What the command brings about, a line each."""
        verb, *words = shlex.split(line)
        options = dict(word.split("=", 1) for word in words if "=" in word)
        names = [word for word in words if "=" not in word]
        steps, before = len(self.stage.steps), len(self.stage.log)
        self._heard: list[str] = []
        self.stage.told = self._hear
        getattr(self, f"do_{verb.replace('-', '_')}")(*names, **options)
        timers = [timer for step in self.stage.steps[steps:] for timer in step.timers]
        return [*self._heard, *self._records(before), *self._armed(timers), self._state()]

    # ---- commands ----

    def do_settings(self, **changes: str) -> None:
        policy = changes.pop("policy", "bidirectional")
        consumer = ConsumerSettings(assignment_interval_ms=0, migration_policy=policy)
        self.settings = self.settings._replace(**{name: int(value) for name, value in changes.items()})
        self.stage = Stage(self.settings, consumer, t=4, u=2)
        self.stage.told = self._hear

    def do_join(self, who: str, **options: str) -> None:
        names = options.get("protocols", "range")
        metadata = options.get("metadata")
        subscription = ConsumerProtocolSubscription(topics=options.get("topics", "t").split(","))
        version = 0
        if "owned" in options:
            version = 1
            for name, partitions in _places(options["owned"]).items():
                held = ConsumerProtocolSubscription.TopicPartition(topic=name, partitions=partitions)
                subscription.owned_partitions.append(held)
        data = encode(subscription, version, version.to_bytes(2, "big")) if metadata is None else metadata.encode()
        session_ms = int(options.get("session", "30000"))
        request = JoinGroupRequest(
            group_id=options.get("group", GROUP),
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=int(options.get("rebalance", "60000")),
            member_id=options.get("id", self.ids.get(who, "")),
            group_instance_id=options.get("instance"),
            protocol_type=options.get("type", "consumer"),
            protocols=[JoinGroupRequest.Protocol(name=name, metadata=data) for name in names.split(",") if name],
        )
        self.stage.join(self._token(who), request, version=int(options.get("version", "9")), client_id=who)

    def do_seek(self, *connections: str) -> None:
        """FindCoordinator, on connections of these names."""
        for one in connections:
            self.stage.carry_out(self.stage.shard.on_sought(GROUP, one, self.stage.now_ms))

    def do_sync(self, who: str, *parts: str, **options: str) -> None:
        """Parts of the assignment stand as member:bytes, or as member:@0,1 for partitions of `t`."""
        assigned = [part.split(":") for part in parts]
        request = SyncGroupRequest(
            **self._identity(who, options),
            protocol_type=options.get("type"),
            protocol_name=options.get("protocol"),
            assignments=[
                SyncGroupRequest.Assignment(member_id=self.ids.get(one, one), assignment=self._assignment(data))
                for one, data in assigned
            ],
        )
        self.stage.sync(self._token(who), request)

    def _assignment(self, data: str) -> bytes:
        if not data.startswith("@"):
            return data.encode()
        partitions = [int(one) for one in data[1:].split(",")]
        return embedded.assignment_bytes({topic_id("t"): partitions}, self.stage.topics, 0)

    def do_consume(self, who: str, **options: str) -> None:
        epoch = int(options.get("epoch", self.generations.get(who, 0)))
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=who, member_epoch=epoch, instance_id=options.get("instance")
        )
        if epoch == 0:
            request.rebalance_timeout_ms = int(options.get("rebalance", "60000"))
            request.subscribed_topic_names = options.get("topics", "t").split(",")
            request.topic_partitions = []
        if "owned" in options:
            request.topic_partitions = [
                ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id(name), partitions=partitions)
                for name, partitions in _places(options["owned"]).items()
            ]
        self.stage.consume(self._token(who), request)

    def do_beat(self, who: str, **options: str) -> None:
        self.stage.heartbeat(self._token(who), HeartbeatRequest(**self._identity(who, options)))

    def do_leave(self, *who: str, **options: str) -> None:
        members = [
            LeaveGroupRequest.MemberIdentity(
                member_id=options.get("id", self.ids.get(one, one)), group_instance_id=options.get("instance")
            )
            for one in who
        ]
        request = LeaveGroupRequest(group_id=options.get("group", GROUP), members=members)
        self.stage.leave(self._token(",".join(who)), request)

    def do_commit(self, who: str, *places: str, **options: str) -> None:
        """Places stand as topic-partition:offset."""
        topics: dict[str, list[OffsetCommitRequest.Partition]] = {}
        for place in places:
            name, _, rest = place.partition("-")
            partition, _, offset = rest.partition(":")
            topics.setdefault(name, []).append(
                OffsetCommitRequest.Partition(
                    partition_index=int(partition),
                    committed_offset=int(offset),
                    committed_metadata=options.get("metadata", ""),
                )
            )
        identity = self._identity(who, options)
        request = OffsetCommitRequest(
            group_id=identity["group_id"],
            generation_id_or_member_epoch=identity["generation_id"],
            member_id=identity["member_id"],
            group_instance_id=identity["group_instance_id"],
            retention_time_ms=int(options.get("retention", "-1")),
            topics=[OffsetCommitRequest.Topic(name=name, partitions=parts) for name, parts in topics.items()],
        )
        self.stage.commit(self._token(who), request, version=int(options.get("version", "9")))

    def do_wait(self, ms: str) -> None:
        self.stage.advance(int(ms))

    def do_reload(self) -> None:
        self.stage.reload()

    def do_topic_deleted(self, name: str) -> None:
        self.stage.carry_out(self.stage.shard.on_topics_deleted([name]))

    def do_delete(self, group: str = GROUP) -> None:
        self.stage.ask(self._token("admin"), lambda shard, token, now: shard.on_delete_group(token, group))

    # ---- what happened ----

    def _identity(self, who: str, options: dict[str, str]) -> dict[str, Any]:
        return {
            "group_id": options.get("group", GROUP),
            "generation_id": int(options.get("generation", self.generations.get(who, -1))),
            "member_id": options.get("id", self.ids.get(who, "")),
            "group_instance_id": options.get("instance"),
        }

    def _token(self, who: str) -> int:
        self._tokens += 1
        self._who[self._tokens] = who
        return self._tokens

    def _hear(self, token: object, answer: Any) -> None:
        who = self._who[token]
        if isinstance(answer, ConsumerGroupHeartbeatResponse):
            self.generations[who] = max(answer.member_epoch, 0)
        if isinstance(answer, JoinGroupResponse):
            if answer.member_id and answer.error_code in (NONE, Err.MEMBER_ID_REQUIRED):
                self.ids[who] = answer.member_id
            if answer.error_code == NONE:
                self.generations[who] = answer.generation_id
        self._heard.append(f"{who}: {_told(answer)}")

    def _records(self, before: int) -> list[str]:
        lines = []
        for key, value, _ in self.stage.log[before:]:
            record = decode_record(KIND, key, value)
            assert record is not None
            if isinstance(record.key, OffsetCommitKey):
                what = "gone" if record.value is None else str(record.value.offset)  # type: ignore[attr-defined]
                lines.append(f"record offset {record.key.topic}-{record.key.partition} {what}")
            elif isinstance(record.key, GroupMetadataKey):
                lines.append(f"record group {_group_value(record.value)}")
            else:
                lines.append(consumer_record(record))
        return lines

    def _armed(self, timers: list[tuple[Any, int | None]]) -> list[str]:
        last = dict(timers)  # of several moves the last counts
        return [
            f"timer {one.kind.removeprefix('classic-').replace('consumer-', '848-')} {one.member}".rstrip()
            + (" off" if at_ms is None else f" +{at_ms - self.stage.now_ms}")
            for one, at_ms in last.items()
        ]

    def _state(self) -> str:
        group = self.stage.shard.groups.get(GROUP)
        if isinstance(group, ConsumerGroup):
            return f"consumer group {group.state_name} {group.epoch} members=" + ",".join(group.members)
        if not isinstance(group, ClassicGroup):
            return "no group"
        words = [group.state, str(group.generation_id)]
        if group.members:
            words.append("members=" + ",".join(group.members))
        if group.pending:
            words.append("awaited=" + ",".join(group.pending))
        if group.expected:
            words.append(f"expected={group.expected}")
        return " ".join(words)


def _told(answer: Any) -> str:
    if isinstance(answer, KafkaError):
        return answer.name
    if isinstance(answer, LeaveGroupResponse):
        return " ".join(
            f"{one.member_id or one.group_instance_id}={Err(one.error_code).name}" for one in answer.members
        )
    if isinstance(answer, OffsetCommitResponse):
        parts = [(topic.name, one) for topic in answer.topics for one in topic.partitions]
        return " ".join(f"{name}-{one.partition_index}={Err(one.error_code).name}" for name, one in parts)
    code = Err(answer.error_code).name
    if isinstance(answer, JoinGroupResponse):
        if answer.error_code != NONE:
            return f"{code} {answer.member_id}".rstrip()
        words = [
            f"joined {answer.generation_id} as {answer.member_id}",
            answer.protocol_name,
            f"led by {answer.leader or 'nobody'}",
        ]
        words += ["of " + ",".join(one.member_id for one in answer.members)] if answer.members else []
        return " ".join([*words, *(["skip"] if answer.skip_assignment else [])])
    if isinstance(answer, SyncGroupResponse) and answer.error_code == NONE:
        return f"assigned {shown_assignment(answer.assignment)}"
    if isinstance(answer, ConsumerGroupHeartbeatResponse):
        parts = None if answer.assignment is None else answer.assignment.topic_partitions
        told = "" if parts is None else shown({one.topic_id: one.partitions for one in parts})
        return f"epoch {answer.member_epoch} {told} again in {answer.heartbeat_interval_ms}".replace("  ", " ")
    return code


def _places(text: str) -> dict[str, list[int]]:
    """`t:0,1 u:0`, or nothing."""
    found = [part.split(":") for part in text.split()]
    return {name: [int(one) for one in partitions.split(",")] for name, partitions in found}


def _group_value(value: Any) -> str:
    if value is None:
        return "gone"
    members = ",".join(f"{one.member_id}:{shown_assignment(one.assignment).strip(chr(39))}" for one in value.members)
    return f"generation={value.generation} " + (members or "Empty")


def blocks(text: str) -> list[tuple[str, list[str]]]:
    """Commands and what is written beneath them."""
    found = []
    for block in text.strip().split("\n\n"):
        lines = [line for line in block.splitlines() if not line.startswith("#")]
        if lines:
            found.append((lines[0], lines[2:]))
    return found


def rewrite(path: Path, play: Callable[[str], list[str]]) -> None:
    """`play` says what a command of this transcript comes to."""
    written = []
    for block in path.read_text().strip().split("\n\n"):
        comments = [line for line in block.splitlines() if line.startswith("#")]
        commands = [line for line in block.splitlines() if not line.startswith("#")][:1]
        happened = [text for command in commands for text in (command, RULE, *play(command))]
        written.append("\n".join([*comments, *happened]))
    path.write_text("\n\n".join(written) + "\n")


if __name__ == "__main__":
    for one in sorted(FOLDER.glob("*.txt")):
        rewrite(one, Script().play)
