"""A group whose members come and go in either protocol, all from one seed: it goes over and back as they do.

    python -m kbroker.tests.simulation.mixed_groups --seeds 10000        a campaign
    python -m kbroker.tests.simulation.mixed_groups --first 42 --seeds 1  one again

On top of what must hold in a consumer group: nobody reads what another one reads, whichever protocol the two speak; a
commit is accepted from members of the group's generation only; and in the end all partitions are read.
"""

from __future__ import annotations

from typing import Any

from kbroker.coordinator.group import embedded
from kbroker.coordinator.group.classic import STABLE, ClassicGroup
from kbroker.coordinator.group.consumer import ConsumerGroup
from kbroker.coordinator.group.consumer_settings import ConsumerSettings
from kbroker.coordinator.group.facts import Caller
from kbroker.errors import (
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    KafkaError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from kbroker.protocol.codec import encode
from kbroker.protocol.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kbroker.protocol.records import ConsumerProtocolSubscription
from kbroker.tests.simulation.consumer_groups import COMMIT, GROUP, NAMES, Client, Place, Simulation, campaign
from kbroker.tests.unit.coordinator.world import Response

SESSION_MS, REBALANCE_MS = 10_000, 20_000
LATEST = Caller(9, "client", "/host")
LOST = (UnknownMemberIdError.code, FencedInstanceIdError.code)


class Token:
    def __init__(self, client: Classic, kind: str) -> None:
        self.client = client
        self.kind = kind


class Classic:
    """A consumer of the classic protocol. An eager one lets go of everything before it joins."""

    def __init__(self, instance_id: str | None, topics: list[str], *, cooperative: bool) -> None:
        self.instance_id = instance_id
        self.topics = topics
        self.cooperative = cooperative
        self.member_id, self.generation = "", -1
        self.reads: set[Place] = set()
        self.alive = True
        self.is_in = False
        self.to_sync = False
        self.was_out = False  # the group had put it out before it joined, which it hears when it has synced
        self.awaits: Token | None = None
        self.shares: list[JoinGroupResponse.Member] = []

    @property
    def protocol(self) -> str:
        return "cooperative-sticky" if self.cooperative else "range"

    def lose(self, *, identity: bool) -> None:
        self.reads, self.is_in, self.to_sync, self.was_out = set(), False, False, False
        self.generation = -1
        if identity:
            self.member_id = ""


class MixedSimulation(Simulation):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        policy = self.random.choice(["bidirectional"] * 5 + ["upgrade", "downgrade", "disabled"])
        self.world.settings = ConsumerSettings(
            assignment_interval_ms=self.world.settings.assignment_interval_ms, max_size=12, migration_policy=policy
        )
        self.world.told = self._hear
        self.cooperative = self.random.random() < 0.5
        self.classics: list[Classic] = []

    def moves(self) -> list[tuple[Any, int]]:
        return [
            *super().moves(),
            (self._come, 5),
            (self._go_on, 26),
            (self._fall, 1),
            (self._depart, 2),
            (self._change_protocol, 3),
            (self._claim, 3),
            (self._ask_again, 1),
        ]

    # ---- what classic members do ----

    def _one(self) -> Classic | None:
        living = [one for one in self.classics if one.alive]
        return self.random.choice(living) if living else None

    def _come(self) -> None:
        if len([one for one in self.classics if one.alive]) >= 4:
            return
        self.made += 1
        instance = f"i{self.made}" if self.random.random() < 0.3 else None
        self._enter(instance)

    def _enter(self, instance: str | None) -> Classic:
        topics = self.random.sample(NAMES, self.random.randint(1, 3))
        client = Classic(instance, topics, cooperative=self.cooperative)
        self.classics.append(client)
        self.go_on(client)
        return client

    def _go_on(self) -> None:
        client = self._one()
        if client is not None:
            self.go_on(client)

    def go_on(self, client: Classic) -> None:
        """The next request that the protocol asks for; none while one waits."""
        if client.awaits is not None:
            return
        if client.to_sync:
            self._sync(client)
        elif client.is_in:
            request = HeartbeatRequest(**self._identity(client))
            self._send(client, "beat", lambda shard, token, now: shard.on_heartbeat(token, request, LATEST, now))
        else:
            self._join_group(client)

    def _identity(self, client: Classic) -> dict[str, Any]:
        return {
            "group_id": GROUP,
            "generation_id": client.generation,
            "member_id": client.member_id,
            "group_instance_id": client.instance_id,
        }

    def _send(self, client: Classic, kind: str, event: Any) -> None:
        token = client.awaits = Token(client, kind)
        try:
            step = event(self.world.shard, token, self.world.now_ms)
        except KafkaError as error:
            self._hear(token, error)
        else:
            self.world.do(step)

    def _join_group(self, client: Classic) -> None:
        group: Any = self.world.shard.groups.get(GROUP)
        client.was_out = client.was_out or group is None or client.member_id not in group.members
        if not client.cooperative:
            client.reads = set()
        owned = [
            ConsumerProtocolSubscription.TopicPartition(topic=topic.name, partitions=[place[1]])
            for place in sorted(client.reads)
            if (topic := self.world.topics.find_id(place[0])) is not None
        ]
        subscription = ConsumerProtocolSubscription(topics=client.topics, owned_partitions=owned)
        metadata = encode(subscription, 1, b"\x00\x01")
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.Protocol(name=client.protocol, metadata=metadata)],
        )
        self.made += 1
        unique = f"u{self.made}"
        self._send(client, "join", lambda shard, token, now: shard.on_join_group(token, request, LATEST, unique, now))

    def _sync(self, client: Classic) -> None:
        request = SyncGroupRequest(**self._identity(client), protocol_type="consumer", protocol_name=client.protocol)
        request.assignments = self._share_out(client)
        self._send(client, "sync", lambda shard, token, now: shard.on_sync_group(token, request, LATEST, now))

    def _share_out(self, leader: Classic) -> list[SyncGroupRequest.Assignment]:
        """Evenly. What somebody else still reads is left out: its reader gives it up and asks for another round."""
        wishes = {one.member_id: embedded.subscription_of(one.metadata) for one in leader.shares}
        held = {
            (part.topic, index): member_id
            for member_id, wish in wishes.items()
            for part in wish.owned_partitions
            for index in part.partitions
        }
        shares: dict[str, dict[bytes, list[int]]] = {member_id: {} for member_id in wishes}
        for name, topic in sorted(self.world.topics.held.items()):
            takers = sorted(member_id for member_id, wish in wishes.items() if name in wish.topics)
            for index in range(topic.partitions if takers else 0):
                taker = takers[index % len(takers)]
                if held.get((name, index), taker) == taker:
                    shares[taker].setdefault(topic.topic_id, []).append(index)
        return [
            SyncGroupRequest.Assignment(
                member_id=member_id, assignment=embedded.assignment_bytes(share, self.world.topics, 1)
            )
            for member_id, share in shares.items()
        ]

    # ---- what they hear ----

    def _hear(self, token: object, answer: Any) -> None:
        assert isinstance(token, Token), token
        client = token.client
        if client.awaits is not token or not client.alive:
            return
        client.awaits = None
        code = answer.code if isinstance(answer, KafkaError) else answer.error_code
        if code in LOST:
            client.lose(identity=True)
            client.alive = client.alive and code == UnknownMemberIdError.code
        elif code == IllegalGenerationError.code:
            client.lose(identity=False)
        elif code == RebalanceInProgressError.code:
            client.is_in, client.to_sync = False, False
        elif code == MemberIdRequiredError.code:
            client.member_id = answer.member_id
        elif code == GroupMaxSizeReachedError.code:
            client.lose(identity=True)
            client.alive = False
        elif code == 0 and isinstance(answer, JoinGroupResponse):
            client.member_id, client.generation = answer.member_id, answer.generation_id
            client.shares, client.to_sync = answer.members, True
        elif code == 0 and isinstance(answer, SyncGroupResponse):
            self._take(client, answer.assignment)
        elif code:
            client.lose(identity=True)
            client.alive = False  # another kind of group, or another protocol: it cannot get in

    def _take(self, client: Classic, data: bytes) -> None:
        parts = embedded.assignment_of(data).assigned_partitions if data else []
        found = embedded.by_id(parts, self.world.topics)
        assigned = {(topic_id, index) for topic_id, partitions in found.items() for index in partitions}
        gives_up = client.reads - assigned
        client.reads = assigned
        client.to_sync, client.was_out = False, False
        client.is_in = not (client.cooperative and gives_up)  # whoever gave something up joins again to say so

    def _fall(self) -> None:
        client = self._one()
        if client is not None:
            client.alive, client.reads = False, set()

    def _depart(self) -> None:
        client = self._one()
        if client is None or not client.member_id or client.awaits is not None:
            return
        client.alive, client.reads = False, set()
        identity = LeaveGroupRequest.MemberIdentity(member_id=client.member_id, group_instance_id=client.instance_id)
        request = LeaveGroupRequest(group_id=GROUP, members=[identity])
        token = Token(client, "leave")
        self.world.do(self.world.shard.on_leave_group(token, request, LATEST, self.world.now_ms))

    def _change_protocol(self) -> None:
        """A process with an instance id is restarted with the other protocol."""
        static = [one for one in self.clients if one.alive and one.instance_id and one.epoch > 0]
        classic = [one for one in self.classics if one.alive and one.instance_id and one.awaits is None]
        if static and self.random.random() < 0.5:
            before = self.random.choice(static)
            before.alive, before.reads = False, set()
            self._enter(before.instance_id)
        elif classic:
            gone = self.random.choice(classic)
            gone.alive, gone.reads = False, set()
            self.made += 1
            heir = Client(f"m{self.made}", gone.instance_id, self._wishes())
            answer = self.world.beat(heir.request())
            if isinstance(answer, Response):
                heir.hear(answer)
                self.clients.append(heir)

    def _ask_again(self) -> None:
        """An answer is lost, or the client was impatient: it asks the same again."""
        client = self._one()
        if client is not None:
            client.awaits = None
            self.go_on(client)

    def _claim(self) -> None:
        """Commits with a generation that is right or nearly so."""
        client = self.random.choice(self.classics) if self.classics else None
        if client is None:
            return
        epoch = client.generation + self.random.choice([0, 0, 0, -1, 1])
        topic = self.random.choice(list(self.world.topics.held.values()))
        index = self.random.randrange(topic.partitions)
        place = OffsetCommitRequest.Partition(partition_index=index, committed_offset=1)
        request = OffsetCommitRequest(group_id=GROUP, generation_id_or_member_epoch=epoch, member_id=client.member_id)
        request.topics = [OffsetCommitRequest.Topic(name=topic.name, partitions=[place])]
        group = self.world.shard.groups.get(GROUP)
        step = self.world.shard.on_offset_commit("token", request, COMMIT, self.world.now_ms)
        before = None
        if isinstance(group, ConsumerGroup):
            before = group.members.get(client.member_id)
        self.world.do(step)
        if not step.records or group is None or epoch < 0:
            return
        if isinstance(group, ClassicGroup):
            assert client.member_id in group.members, "one who is not in the group has committed"
            assert epoch == group.generation_id, "one of another generation has committed"
        else:
            assert before is not None, "one who is not in the group has committed"
            since = before.assigned_epoch(topic.topic_id, index)
            assert epoch == before.epoch or (since is not None and since <= epoch < before.epoch), "a fenced one did"

    def _reload(self) -> None:
        for client in self.classics:
            client.awaits = None  # its connection was closed, and it asks again
        super()._reload()

    # ---- what must hold ----

    def check(self) -> None:
        super().check()
        readers: dict[Place, str] = {}
        group = self.world.shard.groups.get(GROUP)
        for client in self.classics:
            if client.alive and not client.was_out and self._counts(group, client.member_id, client.generation):
                for place in client.reads:
                    other = readers.setdefault(place, client.member_id)
                    assert other == client.member_id, f"{place} is read by {other} and by {client.member_id}"
        if isinstance(group, ConsumerGroup):
            for one in self.clients:
                held = group.members.get(one.member_id)
                if one.alive and held is not None and one.epoch and one.epoch in (held.epoch, held.previous_epoch):
                    for place in one.reads:
                        assert place not in readers, f"{place} is read by {readers[place]} and by {one.member_id}"

    def _counts(self, group: Any, member_id: str, generation: int) -> bool:
        """The group takes it for a member, and what it says for valid."""
        if isinstance(group, ConsumerGroup):
            held = group.members.get(member_id)
            return held is not None and held.classic is not None and held.epoch == generation
        known = isinstance(group, ClassicGroup) and member_id in group.members
        return known and group.state == STABLE and generation == group.generation_id

    def rest(self) -> None:
        for client in self.classics:
            if client.alive:
                self.go_on(client)
                self.check()

    def settled(self) -> None:
        """Whichever protocol it ended in: those who live are in it, and everything is read once."""
        group = self.world.shard.groups.get(GROUP)
        kept_out = isinstance(group, ClassicGroup) and not self.world.settings.may_upgrade
        consumers = [one for one in self.clients if one.alive and not (kept_out and one.epoch == 0)]
        living = [*consumers, *(one for one in self.classics if one.alive)]
        if group is None or not living:
            assert not living
            return
        assert isinstance(group, ConsumerGroup | ClassicGroup)
        assert group.members.keys() == {one.member_id for one in living}, group.members.keys()
        assert group.state_name == "Stable", group.state_name
        read = [place for one in living for place in one.reads]
        assert len(read) == len(set(read)), "a partition is read twice"
        wanted = group.topic_names() if isinstance(group, ConsumerGroup) else set(group.subscribed or ())
        there = {
            (one.topic_id, index)
            for one in self.world.topics.held.values()
            if one.name in wanted
            for index in range(one.partitions)
        }
        missing = there - set(read)
        assert not missing or isinstance(group, ClassicGroup), f"nobody reads {missing}"


if __name__ == "__main__":
    campaign(MixedSimulation)
