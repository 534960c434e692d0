"""Members of groups by the hundred in one process: they speak our own codec, so that no client is measured."""

from __future__ import annotations

import asyncio
import struct
import uuid
from contextlib import suppress
from typing import TypeVar

from bench import frames
from kbroker.protocol import codec, messages
from kbroker.protocol.message import Message

JOIN, SYNC, BEAT, LEAVE, FIND, COMMIT, CONSUMER_BEAT = 9, 5, 4, 5, 4, 9, 1
SESSION_MS, REBALANCE_MS = 30_000, 60_000
MEMBER_ID_REQUIRED, REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID = 79, 27, 22, 25
FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID, STALE_MEMBER_EPOCH = 110, 111, 113
COORDINATOR_TROUBLE = {14, 15, 16}  # loading, not available, not the coordinator: ask again
BUDGET = 1 << 26
PAUSE_S = 0.02

R = TypeVar("R", bound=Message)


class Wired:
    """One connection, and what is waited for on it."""

    def __init__(self, port: int, group: str) -> None:
        self._port = port
        self.group = group
        self.waits_for = ""  # the request that is not answered yet

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()

    async def ask(self, request: Message, version: int, answer: type[R]) -> R:
        self.waits_for = type(request).__name__.removesuffix("Request")
        try:
            self._writer.write(frames.frame(request, version))
            (size,) = struct.unpack(">i", await self._reader.readexactly(4))
            return codec.decode_response(answer, version, await self._reader.readexactly(size), BUDGET)[1]
        finally:
            self.waits_for = ""

    async def find(self) -> None:
        """Until the group has a coordinator."""
        request = messages.FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group])
        while (await self.ask(request, FIND, messages.FindCoordinatorResponse)).coordinators[0].error_code:
            await asyncio.sleep(PAUSE_S)

    async def commit_as(self, member_id: str, epoch: int, topic: str, partition: int, offset: int) -> int:
        """The error, or 0."""
        part = messages.OffsetCommitRequest.Partition(
            partition_index=partition, committed_offset=offset, committed_metadata=""
        )
        request = messages.OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            topics=[messages.OffsetCommitRequest.Topic(name=topic, partitions=[part])],
        )
        answer = await self.ask(request, COMMIT, messages.OffsetCommitResponse)
        return answer.topics[0].partitions[0].error_code


class Member(Wired):
    """Of a classic group. The assignment is its own name, unless `divide` and `take` say more."""

    def __init__(self, port: int, group: str, session_ms: int = SESSION_MS) -> None:
        super().__init__(port, group)
        self._session_ms = session_ms
        self.member_id = ""
        self.generation = -1
        self.leads = False

    def divide(self, members: list[str]) -> dict[str, bytes]:
        """What the leader gives to whom."""
        return {one: one.encode() for one in members}

    def take(self, assignment: bytes) -> None:
        if assignment != self.member_id.encode():
            raise RuntimeError("a member was given another one's assignment")

    async def join(self) -> None:
        """Until this member has an assignment in a generation that holds; it has no generation meanwhile."""
        while True:
            self.generation = -1
            if await self._join():
                generation = await self._sync()
                if generation >= 0:
                    self.generation = generation
                    return

    async def _join(self) -> bool:
        protocol = messages.JoinGroupRequest.Protocol(
            name="range", metadata=b"\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff"
        )
        answer = await self.ask(
            messages.JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=self._session_ms,
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[protocol],
            ),
            JOIN,
            messages.JoinGroupResponse,
        )
        if answer.error_code == MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif answer.error_code in COORDINATOR_TROUBLE:
            await asyncio.sleep(PAUSE_S)
        elif answer.error_code == UNKNOWN_MEMBER_ID:
            self.member_id = ""
        elif answer.error_code:
            raise RuntimeError(f"JoinGroup answered {answer.error_code}")
        self._joined = answer.generation_id
        self.leads = answer.leader == self.member_id
        self._others = [one.member_id for one in answer.members]
        return answer.error_code == 0

    async def _sync(self) -> int:
        share = messages.SyncGroupRequest.Assignment
        answer = await self.ask(
            messages.SyncGroupRequest(
                group_id=self.group,
                generation_id=self._joined,
                member_id=self.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[share(member_id=one, assignment=part) for one, part in self.divide(self._others).items()]
                if self.leads
                else [],
            ),
            SYNC,
            messages.SyncGroupResponse,
        )
        if answer.error_code in {REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION, *COORDINATOR_TROUBLE}:
            return -1
        if answer.error_code == UNKNOWN_MEMBER_ID:
            self.member_id = ""
            return -1
        if answer.error_code:
            raise RuntimeError(f"SyncGroup answered {answer.error_code}")
        self.take(bytes(answer.assignment))
        return self._joined

    async def beat(self) -> int:
        request = messages.HeartbeatRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.member_id
        )
        return (await self.ask(request, BEAT, messages.HeartbeatResponse)).error_code

    async def stay(self, every_s: float) -> None:
        """Heartbeats, and joins again whenever the group asks for it."""
        while True:
            await asyncio.sleep(every_s)
            if await self.beat():
                await self.join()

    async def commit(self, topic: str, partition: int, offset: int) -> int:
        return await self.commit_as(self.member_id, self.generation, topic, partition, offset)

    async def leave(self) -> None:
        one = messages.LeaveGroupRequest.MemberIdentity(member_id=self.member_id)
        request = messages.LeaveGroupRequest(group_id=self.group, members=[one])
        await self.ask(request, LEAVE, messages.LeaveGroupResponse)
        self.member_id, self.generation = "", -1


class ConsumerMember(Wired):
    """Of a group of the consumer protocol. It does as it is told: gives up at once, and says what it owns."""

    def __init__(self, port: int, group: str, topic: str) -> None:
        super().__init__(port, group)
        self._topic = topic
        self.member_id = str(uuid.uuid4())
        self.epoch = 0
        self.owned: set[int] = set()
        self._id = bytes(16)  # the topic's
        self._said = False  # whether the broker has heard what is owned
        self._whole = True  # the next heartbeat tells everything: an answer to the last one may be lost

    async def connect(self) -> None:
        await super().connect()
        self._whole = True

    async def join(self) -> None:
        """Until the group has it."""
        self.epoch, self.owned, self._said = 0, set(), True
        while self.epoch <= 0:
            await self.beat()

    async def beat(self) -> int:
        """One heartbeat; whoever was thrown out is at epoch 0 afterwards, and joins with the next one."""
        request = messages.ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=self.epoch
        )
        if self.epoch == 0 or self._whole:
            request.rebalance_timeout_ms = REBALANCE_MS
            request.subscribed_topic_names = [self._topic]
        if self.epoch == 0 or self._whole or not self._said:
            part = messages.ConsumerGroupHeartbeatRequest.TopicPartitions
            request.topic_partitions = [part(topic_id=self._id, partitions=sorted(self.owned))] if self.owned else []
        answer = await self.ask(request, CONSUMER_BEAT, messages.ConsumerGroupHeartbeatResponse)
        if answer.error_code in {FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID}:
            self.epoch, self.owned, self._said = 0, set(), True
        elif answer.error_code in COORDINATOR_TROUBLE:
            await asyncio.sleep(PAUSE_S)
        elif answer.error_code:
            raise RuntimeError(f"ConsumerGroupHeartbeat answered {answer.error_code} {answer.error_message}")
        else:
            self._whole = False
            self._said = answer.assignment is None
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = {index for one in answer.assignment.topic_partitions for index in one.partitions}
                self._id = next((bytes(one.topic_id) for one in answer.assignment.topic_partitions), self._id)
        return answer.error_code

    async def stay(self, every_s: float) -> None:
        while True:
            await self.beat()
            await asyncio.sleep(every_s if self._said and self.epoch else 0)

    async def commit(self, topic: str, partition: int, offset: int) -> int:
        return await self.commit_as(self.member_id, self.epoch, topic, partition, offset)

    async def leave(self) -> None:
        request = messages.ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=self.member_id, member_epoch=-1)
        await self.ask(request, CONSUMER_BEAT, messages.ConsumerGroupHeartbeatResponse)
        self.epoch, self.owned = 0, set()


async def find_coordinator(port: int, group: str) -> None:
    """Returns once the group has a coordinator: the first lookup makes the topic."""
    asker = Wired(port, group)
    await asker.connect()
    try:
        await asker.find()
    finally:
        await asker.close()
