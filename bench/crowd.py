"""Members of classic groups by the hundred that cost little: frames from templates, answers read where they lie.

A client of coroutines and messages takes longer than either broker, and would be what is measured.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Sequence

from bench import frames
from bench.members import (
    BEAT,
    COORDINATOR_TROUBLE,
    ILLEGAL_GENERATION,
    JOIN,
    MEMBER_ID_REQUIRED,
    REBALANCE_IN_PROGRESS,
    REBALANCE_MS,
    SESSION_MS,
    SYNC,
    UNKNOWN_MEMBER_ID,
)
from kbroker.protocol import messages

MEMBER, GENERATION = "@member@", 0x5A5A5A5A  # what stands in a template for them
METADATA = b"\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff"
JOINING, SYNCING, BEATING, ASKING, IDLE = range(5)
AGAIN = {REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION, *COORDINATOR_TROUBLE}
PATIENCE_S = 60
QUIET_S = 0.05
NO_SHARES = b"\x01\x00"  # no assignments, no tags: how a SyncGroup ends unless it is the leader's


class Template:
    """A frame in which the member's id and its generation are still open."""

    def __init__(
        self, request: messages.JoinGroupRequest | messages.SyncGroupRequest | messages.HeartbeatRequest, version: int
    ):
        self._before, self._behind = frames.frame(request, version)[4:].split(_compact(MEMBER.encode()))

    def frame(self, member_id: bytes, generation: int, end: bytes = b"", other_end: bytes = b"") -> bytes:
        """Whoever gives the end it has may put another one in its place."""
        before = self._before.replace(GENERATION.to_bytes(4, "big"), generation.to_bytes(4, "big", signed=True))
        body = before + _compact(member_id) + self._behind.removesuffix(end) + other_end
        return len(body).to_bytes(4, "big") + body


def _compact(text: bytes) -> bytes:
    assert len(text) < 127, text
    return bytes((len(text) + 1,)) + text


def _uvarint(value: int) -> bytes:
    assert value < 1 << 14, value
    return bytes((value,)) if value < 128 else bytes((value & 127 | 128, value >> 7))


def _take_uvarint(answer: bytes, at: int) -> tuple[int, int]:
    if answer[at] < 128:
        return answer[at], at + 1
    assert answer[at + 1] < 128, "more members than are ever here"
    return answer[at] & 127 | answer[at + 1] << 7, at + 2


def _texts(answer: bytes, at: int, count: int) -> tuple[list[bytes], int]:
    """Compact strings in a row, each shorter than 127 bytes; null is empty."""
    found = []
    for _ in range(count):
        end = at + max(answer[at], 1)
        found.append(answer[at + 1 : end])
        at = end
    return found, at


def _members(answer: bytes, at: int) -> list[bytes]:
    """The ids in a JoinGroup's answer to the leader."""
    count, at = _take_uvarint(answer, at)
    found = []
    for _ in range(count - 1):
        (member_id, _, _), at = _texts(answer, at, 3)  # group instance id, metadata
        at += 1  # no tags
        found.append(member_id)
    return found


class Templates:
    """Of one group."""

    def __init__(self, group: str) -> None:
        self.group = group
        protocol = messages.JoinGroupRequest.Protocol(name="range", metadata=METADATA)
        self.join = Template(
            messages.JoinGroupRequest(
                group_id=group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=MEMBER,
                protocol_type="consumer",
                protocols=[protocol],
            ),
            JOIN,
        )
        self.sync = Template(
            messages.SyncGroupRequest(
                group_id=group,
                generation_id=GENERATION,
                member_id=MEMBER,
                protocol_type="consumer",
                protocol_name="range",
            ),
            SYNC,
        )
        self.beat = Template(
            messages.HeartbeatRequest(group_id=group, generation_id=GENERATION, member_id=MEMBER), BEAT
        )

    def assign(self, member_id: bytes, generation: int, members: Sequence[bytes]) -> bytes:
        """The leader's SyncGroup: everyone's assignment is its own name."""
        shares = b"".join(_compact(one) * 2 + b"\0" for one in members)
        return self.sync.frame(member_id, generation, NO_SHARES, _uvarint(len(members) + 1) + shares + b"\0")


class Crowd:
    """One member a connection, all served by one thread."""

    def __init__(self, port: int, groups: Sequence[str]) -> None:
        self._poll = select.epoll()
        self._port = port
        self.members: dict[int, Standing] = {}
        made: dict[str, Templates] = {}
        for group in groups:
            self.add(made.setdefault(group, Templates(group)))

    def add(self, templates: Templates) -> Standing:
        member = Standing(socket.create_connection(("127.0.0.1", self._port)), templates)
        self.members[member.socket.fileno()] = member
        self._poll.register(member.socket.fileno(), select.EPOLLIN)
        return member

    def settle(self) -> None:
        """Until all are in one generation of their group, or each in one of its own, and have their assignments."""
        deadline = time.monotonic() + PATIENCE_S
        busy = {fd for fd, member in self.members.items() if member.state != IDLE}
        while busy or not self._agree():
            assert time.monotonic() < deadline, f"{len(busy)} members have not settled"
            heard = self._poll.poll(QUIET_S)
            if not heard:  # those who wait to join may wait for some who do not know of it
                busy.update(self._ask_idle())
            for fd, _ in heard:
                member = self.members[fd]
                member.hear()
                if member.state == IDLE:
                    busy.discard(fd)
                else:
                    busy.add(fd)

    def _ask_idle(self) -> list[int]:
        idle = [fd for fd, one in self.members.items() if one.state == IDLE]
        for fd in idle:
            self.members[fd].ask()
        return idle

    def _agree(self) -> bool:
        newest: dict[str, int] = {}
        for one in self.members.values():
            newest[one.group] = max(one.generation, newest.get(one.group, -1))
        behind = [one for one in self.members.values() if one.generation != newest[one.group]]
        for one in behind:
            one.beat()
        return not behind

    def close(self) -> None:
        for member in self.members.values():
            member.socket.close()
        self._poll.close()


class Standing:
    """Where one member stands."""

    def __init__(self, connected: socket.socket, templates: Templates) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connected
        self.group = templates.group
        self.state = IDLE
        self.generation = -1
        self.member_id = b""
        self._templates = templates
        self._heard = b""

    def join(self) -> None:
        self.state = JOINING
        self.socket.sendall(self._templates.join.frame(self.member_id, 0))

    def beat(self) -> None:
        """Until the group asks to join again."""
        self.state = BEATING
        self._send_beat()

    def ask(self) -> None:
        """Once, whether to join again."""
        self.state = ASKING
        self._send_beat()

    def _send_beat(self) -> None:
        self.socket.sendall(self._templates.beat.frame(self.member_id, self.generation))

    def hear(self) -> None:
        heard = self._heard + self.socket.recv(1 << 18)
        if len(heard) < 4 or len(heard) < 4 + int.from_bytes(heard[:4], "big"):
            self._heard = heard
            return
        self._heard = b""
        answer = heard[4:]
        error = int.from_bytes(answer[9:11], "big")  # correlation id, no tags, throttle time
        if self.state == JOINING:
            self._joined(answer, error)
        elif self.state == SYNCING:
            self._synced(answer, error)
        elif error == 0 and self.state == BEATING:
            self._send_beat()
        elif error == 0:
            self.state = IDLE
        else:
            assert error in AGAIN, error
            self.join()

    def _joined(self, answer: bytes, error: int) -> None:
        (_, _, leader), at = _texts(answer, 15, 3)
        (member_id,), at = _texts(answer, at + 1, 1)  # behind skip_assignment
        if error == 0:
            self.generation = int.from_bytes(answer[11:15], "big")
            self.state = SYNCING
            if leader == member_id:
                self.socket.sendall(self._templates.assign(member_id, self.generation, _members(answer, at)))
            else:
                self.socket.sendall(self._templates.sync.frame(member_id, self.generation))
            return
        if error == MEMBER_ID_REQUIRED:
            self.member_id = member_id
        elif error == UNKNOWN_MEMBER_ID:
            self.member_id = b""
        else:
            assert error in AGAIN, error
        self.join()

    def _synced(self, answer: bytes, error: int) -> None:
        if error == 0:
            _, at = _texts(answer, 11, 2)
            assert answer[at + 1 : at + answer[at]] == self.member_id, "a member was given another one's assignment"
            self.state = IDLE
        else:
            assert error in AGAIN, error
            self.join()
