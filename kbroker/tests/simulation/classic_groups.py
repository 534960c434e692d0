"""Classic groups under clients that crash, stall, rejoin, ask twice and lie, from one seed.

    python -m kbroker.tests.simulation.classic_groups --seeds 10000      many, the first failure is told with its seed
    python -m kbroker.tests.simulation.classic_groups --seed 42          one again

What must hold: in a generation a partition is assigned to one member; a commit is accepted only from a member of the
newest generation that was heard of within its session and was not replaced; when the clients come to rest they all own
something of the same generation, nobody waits for an answer, and a shard made from the log is the live one. The broker
may be elected anew at any moment: then whoever waits is sent away and the shard is read from its log.
"""

from __future__ import annotations

import heapq
import random
import sys
from collections.abc import Callable
from typing import Any

from kbroker.coordinator.group.classic import EMPTY, STABLE, ClassicGroup
from kbroker.coordinator.group.settings import GroupSettings
from kbroker.coordinator.group.shard import EXPIRY
from kbroker.errors import (
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    IllegalGenerationError,
    KafkaError,
    MemberIdRequiredError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from kbroker.protocol.codec import encode
from kbroker.protocol.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)
from kbroker.protocol.records import ConsumerProtocolSubscription
from kbroker.tests.simulation.seeds import main
from kbroker.tests.unit.coordinator.stage import Stage

GROUP = "g"
PARTITIONS = 6
SESSION_MS = 10_000
REBALANCE_MS = 20_000
BEAT_MS = 3_000
REST_MS = 900_000  # in which everyone must have come to rest
AWAY = (NotCoordinatorError.code, CoordinatorNotAvailableError.code)
METADATA = b"\x00\x01" + encode(ConsumerProtocolSubscription(topics=["t"]), 1)

OUT, JOINING, SYNCING, IN, GONE = "out", "joining", "syncing", "in", "gone"


class Token:
    """A request on its way: whose, which kind, and what it claimed."""

    __slots__ = ("claim", "client", "kind")

    def __init__(self, client: Client, kind: str, claim: tuple[str, int]) -> None:
        self.client, self.kind, self.claim = client, kind, claim


class Client:
    """A consumer as clients are: eager, with one request at a time, unless chaos makes it misbehave."""

    def __init__(self, world: World, name: str, instance_id: str | None) -> None:
        self.world, self.name, self.instance_id = world, name, instance_id
        self.phase = OUT
        self.member_id = ""
        self.generation = -1
        self.owned: set[int] = set()
        self.waits_for: Token | None = None
        self.stalled_until_ms = 0
        self.protocols = world.rng.choice([("range", "sticky"), ("sticky", "range")])
        world.at(world.rng.randrange(5_000), self.turn)

    # ---- what it does ----

    def turn(self) -> None:
        if self.phase == GONE:
            return
        world = self.world
        if world.stage.now_ms < self.stalled_until_ms:
            world.at(self.stalled_until_ms - world.stage.now_ms, self.turn)
            return
        if self.phase == OUT:
            self.join()
        elif self.phase == IN and self.waits_for is None:
            if world.rng.random() < 0.4:
                self.commit()
            else:
                self.beat()
        world.at(BEAT_MS // 2 + world.rng.randrange(BEAT_MS // 2), self.turn)

    def join(self) -> None:
        self.phase, self.owned = JOINING, set()
        if not self.member_id:
            stage = self.world.stage
            stage.carry_out(stage.shard.on_sought(GROUP, self.name, stage.now_ms))
        for _ in range(2 if self.world.chaos(0.05) else 1):
            token = self.sends("join", self.member_id, self.generation)
            request = JoinGroupRequest(
                group_id=GROUP,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequest.Protocol(name=name, metadata=METADATA) for name in self.protocols],
            )
            self.world.stage.join(token, request, version=self.world.rng.choice([2, 9, 9]), client_id=self.name)

    def beat(self) -> None:
        token = self.sends("beat", self.member_id, self.generation)
        self.world.stage.heartbeat(token, HeartbeatRequest(**self.identity()))

    def commit(self) -> None:
        token = self.sends("commit", self.member_id, self.generation)
        self.world.commit(token, self.member_id, self.instance_id, sorted(self.owned) or [0])

    def identity(self) -> dict[str, Any]:
        return {
            "group_id": GROUP,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
        }

    def sends(self, kind: str, member_id: str, generation: int) -> Token:
        token = self.waits_for = Token(self, kind, (member_id, generation))
        wait_ms = REBALANCE_MS * 3 if kind == "join" else 15_000
        self.world.at(wait_ms, lambda: self.gives_up(token))
        return token

    def gives_up(self, token: Token) -> None:
        """No answer came: the connection is lost."""
        if self.waits_for is token and self.phase != GONE:
            self.waits_for = None
            if self.phase in (JOINING, SYNCING):
                self.phase = OUT

    def leave(self) -> None:
        self.phase, self.owned = GONE, set()
        one = LeaveGroupRequest.MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        token = Token(self, "leave", (self.member_id, self.generation))
        self.world.stage.leave(token, LeaveGroupRequest(group_id=GROUP, members=[one]))

    # ---- what it hears ----

    def hears(self, token: Token, answer: Any) -> None:
        if self.phase == GONE or self.waits_for is not token:
            return
        if self.world.stage.now_ms < self.stalled_until_ms:
            self.world.at(self.stalled_until_ms - self.world.stage.now_ms, lambda: self.hears(token, answer))
            return
        self.waits_for = None
        code = code_of(answer)
        if code == MemberIdRequiredError.code:
            self.member_id, self.phase = answer.member_id, OUT
            self.join()
        elif code in AWAY:
            self.phase = OUT if self.phase in (JOINING, SYNCING) else self.phase
        elif code == FencedInstanceIdError.code:
            self.phase, self.owned = GONE, set()  # another process has its name
        elif code in (UnknownMemberIdError.code, IllegalGenerationError.code):
            self.phase, self.member_id, self.generation, self.owned = OUT, "", -1, set()
        elif code == RebalanceInProgressError.code:
            self.phase, self.owned = OUT, set()
        else:
            assert code == 0, (token.kind, answer)
            self.succeeds(token, answer)

    def succeeds(self, token: Token, answer: Any) -> None:
        if token.kind == "join":
            self.member_id, self.generation, self.phase = answer.member_id, answer.generation_id, SYNCING
            assignments = []
            if answer.members and not answer.skip_assignment:
                assert answer.leader == self.member_id
                ids = sorted(one.member_id for one in answer.members)
                for index, member_id in enumerate(ids):
                    mine = bytes(range(index, PARTITIONS, len(ids)))
                    assignments.append(SyncGroupRequest.Assignment(member_id=member_id, assignment=mine))
            sync = SyncGroupRequest(
                **self.identity(),
                protocol_type=answer.protocol_type,
                protocol_name=answer.protocol_name,
                assignments=assignments,
            )
            if self.world.chaos(0.02):
                self.phase = GONE  # it dies in between
            else:
                self.world.stage.sync(self.sends("sync", self.member_id, self.generation), sync)
        elif token.kind == "sync":
            self.phase, self.owned = IN, set(answer.assignment)


class World:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        delay_ms = self.rng.choice([0, 0, 3_000])
        self.stage = Stage(GroupSettings(initial_rebalance_delay_ms=delay_ms), t=PARTITIONS)
        self.stage.told = self.answered
        self.calm = False
        self.clients: list[Client] = []
        self.past: list[tuple[str, int]] = []  # what liars may claim
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        # What a judge knows from answers alone.
        self.newest = 0
        self.owners: dict[tuple[int, int], str] = {}  # (generation, partition) -> who
        self.joined: dict[str, int] = {}
        self.heard_ms: dict[str, int] = {}
        self.away: set[str] = set()  # left, or replaced
        self.names: dict[str, str] = {}  # member id -> group instance id, or itself

    def at(self, in_ms: int, what: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (self.stage.now_ms + in_ms, self._count, what))

    def chaos(self, share: float) -> bool:
        return not self.calm and self.rng.random() < share

    def run_until(self, until_ms: int, done: Callable[[], bool] = lambda: False) -> bool:
        while self._queue and self._queue[0][0] <= until_ms:
            at_ms, _, what = heapq.heappop(self._queue)
            if at_ms > self.stage.now_ms:
                self.stage.advance(at_ms - self.stage.now_ms)
            what()
            if done():
                return True
        self.stage.advance(max(0, until_ms - self.stage.now_ms))
        return done()

    # ---- the judge ----

    def answered(self, token: object, answer: Any) -> None:
        assert isinstance(token, Token)
        member_id, generation = token.claim
        ok = code_of(answer) == 0
        if ok and token.kind == "join":
            self.note_join(token, answer)
        elif ok and token.kind == "sync":
            self.heard_ms[member_id] = self.stage.now_ms
            for partition in answer.assignment:
                owner = self.owners.setdefault((generation, partition), self.names[member_id])
                assert owner == self.names[member_id], f"{partition} in generation {generation} has two owners"
        elif token.kind in ("beat", "sync") and code_of(answer) in (0, RebalanceInProgressError.code):
            self.heard_ms[member_id] = self.stage.now_ms
        elif token.kind == "commit" and ok:
            self.judge_commit(member_id, generation)
            self.heard_ms[member_id] = self.stage.now_ms
        elif token.kind == "leave" and ok and not answer.members[0].error_code:
            self.away.add(member_id)
        if not self.chaos(0.03):  # an answer can be lost
            self.at(self.rng.randrange(50), lambda: token.client.hears(token, answer))

    def note_join(self, token: Token, answer: Any) -> None:
        member_id = answer.member_id
        name = token.client.instance_id or member_id
        self.away.update(one for one, other in self.names.items() if other == name and one != member_id)
        self.names[member_id] = name
        if answer.generation_id > self.newest:  # with it the sessions of static members begin anew, too
            self.newest = answer.generation_id
            self.heard_ms.update({one: self.stage.now_ms for one, other in self.names.items() if one != other})
        self.joined[member_id] = answer.generation_id
        self.heard_ms[member_id] = self.stage.now_ms
        self.past.append((member_id, answer.generation_id))
        assert answer.generation_id == self.newest, "a member was let into an old generation"

    def judge_commit(self, member_id: str, generation: int) -> None:
        assert generation == self.newest, f"a commit of generation {generation} was taken in {self.newest}"
        assert member_id not in self.away, f"{member_id} left or was replaced, and its commit was taken"
        if self.names.get(member_id) == member_id:  # a static member is in each generation until its session ends
            assert self.joined[member_id] == generation
        silent_ms = self.stage.now_ms - self.heard_ms[member_id]
        member = self.group.members[member_id]
        assert silent_ms < SESSION_MS or member.join_token is not None or member.sync_token is not None, silent_ms

    @property
    def group(self) -> ClassicGroup:
        return self.stage.group(GROUP)

    # ---- what goes wrong ----

    def commit(self, token: Token, member_id: str, instance_id: str | None, partitions: list[int]) -> None:
        offsets = [
            OffsetCommitRequest.Partition(partition_index=one, committed_offset=self.rng.randrange(1000))
            for one in partitions
        ]
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=token.claim[1],
            member_id=member_id,
            group_instance_id=instance_id,
            topics=[OffsetCommitRequest.Topic(name="t", partitions=offsets)],
        )
        self.stage.commit(token, request)

    def trouble(self) -> None:
        if self.calm:
            return
        alive = [one for one in self.clients if one.phase != GONE]
        dice = self.rng.random()
        if len(alive) < 2 or (dice < 0.2 and len(alive) < 6):
            self.arrives()
        elif dice < 0.35:
            self.rng.choice(alive).leave()
        elif dice < 0.5:
            self.rng.choice(alive).phase = GONE  # crashed
        elif dice < 0.65:
            self.rng.choice(alive).stalled_until_ms = self.stage.now_ms + self.rng.randrange(4 * SESSION_MS)
        elif dice < 0.9:
            self.lies()
        elif dice < 0.95:
            self.stage.check_replay()
        else:
            self.elected()
        self.at(self.rng.randrange(4_000), self.trouble)

    def arrives(self) -> None:
        instance_id = self.rng.choice([None, None, "i1", "i2"])
        self.clients.append(Client(self, f"c{len(self.clients)}", instance_id))

    def lies(self) -> None:
        """Somebody claims to be another, or what it was once."""
        if not self.past:
            return
        member_id, generation = self.rng.choice(self.past)
        generation = self.rng.choice([generation, generation - 1, generation + 1, self.newest, 1 << 30])
        nobody = Client(self, "liar", None)
        nobody.phase = GONE
        kind = self.rng.choice(["commit", "beat", "sync", "leave"])
        if kind == "sync" and GROUP in self.stage.shard.groups and generation == self.group.generation_id:
            generation += 1  # a leader's own assignment cannot be told from a lie
        if kind == "leave":
            member_id = f"{member_id}x"
        token = Token(nobody, kind, (member_id, generation))
        if kind == "commit":
            self.commit(token, member_id, None, [0])
        elif kind == "beat":
            self.stage.heartbeat(token, HeartbeatRequest(group_id=GROUP, member_id=member_id, generation_id=generation))
        elif kind == "sync":
            request = SyncGroupRequest(group_id=GROUP, member_id=member_id, generation_id=generation)
            self.stage.sync(token, request)
        else:
            one = LeaveGroupRequest.MemberIdentity(member_id=member_id)
            self.stage.leave(token, LeaveGroupRequest(group_id=GROUP, members=[one]))

    def elected(self) -> None:
        self.stage.reload()
        if GROUP in self.stage.shard.groups:
            self.newest = self.group.generation_id
            self.heard_ms.update(dict.fromkeys(self.group.members, self.stage.now_ms))
            self.away.difference_update(self.group.members)  # a generation without them was not stored
            for member_id in self.group.members:  # what it joined and was not stored is forgotten
                self.joined[member_id] = self.newest

    # ---- the end ----

    def at_rest(self) -> bool:
        alive = [one for one in self.clients if one.phase != GONE]
        if any(one.phase != IN or one.waits_for is not None for one in alive) or not alive:
            return not alive
        group = self.group
        return (
            group.state == STABLE
            and len(group.members) == len(alive)
            and {one.generation for one in alive} == {group.generation_id}
            and sorted(partition for one in alive for partition in one.owned) == list(range(PARTITIONS))
        )


def code_of(answer: Any) -> int:
    if isinstance(answer, KafkaError):
        return answer.code
    if hasattr(answer, "topics"):
        code = answer.topics[0].partitions[0].error_code
        assert isinstance(code, int)
        return code
    return int(answer.error_code)


def run(seed: int) -> None:
    world = World(seed)
    for _ in range(world.rng.randrange(1, 5)):
        world.arrives()
    world.at(0, world.trouble)
    world.run_until(world.stage.now_ms + world.rng.randrange(60_000, 240_000))
    world.calm = True
    for one in world.clients:
        one.stalled_until_ms = 0
    if not any(one.phase != GONE for one in world.clients):
        world.arrives()
    began_ms = world.stage.now_ms
    assert world.run_until(began_ms + REST_MS, world.at_rest), "the group did not come to rest"
    world.stage.check_replay()
    for one in world.clients:
        if one.phase != GONE:
            one.leave()
    world.run_until(world.stage.now_ms + REST_MS)
    world.stage.check_replay()
    assert not world.stage.open, "somebody still waits"
    if GROUP in world.stage.shard.groups:
        assert world.group.state == EMPTY, world.group.state
        assert not world.group.pending
    assert world.stage.timers.due(1 << 62) == [EXPIRY], "a timer was left behind"


if __name__ == "__main__":
    sys.exit(main("classic groups", "troubled clients", run))
