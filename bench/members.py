"""Members of classic groups by the hundred in one process: they speak our own codec, so that no client is measured."""

from __future__ import annotations

import asyncio
import struct
from typing import TypeVar

from bench import frames
from kbroker.protocol import codec, messages
from kbroker.protocol.message import Message

JOIN, SYNC, BEAT, LEAVE, FIND = 9, 5, 4, 5, 4
SESSION_MS, REBALANCE_MS = 30_000, 60_000
MEMBER_ID_REQUIRED, REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID = 79, 27, 22, 25
COORDINATOR_TROUBLE = {14, 15, 16}  # loading, not available, not the coordinator: ask again
BUDGET = 1 << 26
PAUSE_S = 0.02

R = TypeVar("R", bound=Message)


class Member:
    """One connection, one member id. The assignment is its own name: what counts here is the protocol."""

    def __init__(self, port: int, group: str) -> None:
        self._port = port
        self._group = group
        self.member_id = ""
        self.generation = -1
        self.leads = False

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def ask(self, request: Message, version: int, answer: type[R]) -> R:
        self._writer.write(frames.frame(request, version))
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return codec.decode_response(answer, version, await self._reader.readexactly(size), BUDGET)[1]

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
                group_id=self._group,
                session_timeout_ms=SESSION_MS,
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
                group_id=self._group,
                generation_id=self._joined,
                member_id=self.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[share(member_id=one, assignment=one.encode()) for one in self._others]
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
        if answer.assignment != self.member_id.encode():
            raise RuntimeError("a member was given another one's assignment")
        return self._joined

    async def beat(self) -> int:
        request = messages.HeartbeatRequest(
            group_id=self._group, generation_id=self.generation, member_id=self.member_id
        )
        return (await self.ask(request, BEAT, messages.HeartbeatResponse)).error_code

    async def stay(self, every_s: float) -> None:
        """Heartbeats, and joins again whenever the group asks for it."""
        while True:
            await asyncio.sleep(every_s)
            if await self.beat():
                await self.join()

    async def leave(self) -> None:
        one = messages.LeaveGroupRequest.MemberIdentity(member_id=self.member_id)
        request = messages.LeaveGroupRequest(group_id=self._group, members=[one])
        await self.ask(request, LEAVE, messages.LeaveGroupResponse)
        self.member_id, self.generation = "", -1


async def find_coordinator(port: int, group: str) -> None:
    """Returns once the group has a coordinator: the first lookup makes the topic."""
    member = Member(port, group)
    await member.connect()
    try:
        while True:
            request = messages.FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
            answer = await member.ask(request, FIND, messages.FindCoordinatorResponse)
            if answer.coordinators[0].error_code == 0:
                return
            await asyncio.sleep(PAUSE_S)
    finally:
        await member.close()
