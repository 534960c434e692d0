"""A group of the classic protocol: who is in it, what they speak, and the states it goes through.

The members take turns in rounds, and the group counts them as generations:

    Empty                   nobody is in it; its offsets may be committed by anyone
    PreparingRebalance      members (re)join: their JoinGroup waits until all are there or time is up
    CompletingRebalance     a generation has begun; SyncGroup waits for the assignment that the group leader makes
    Stable                  everyone has an assignment
    Dead                    deleted

What lasts is written by `adopt` alone, from a record: a generation with its assignments, or that nobody is left. Who
is on the way into the next generation is known here only: after a reload they join again.
"""

from __future__ import annotations

from kbroker.coordinator.placement import java_hash
from kbroker.coordinator.step import Record, Timer
from kbroker.errors import (
    FencedInstanceIdError,
    IllegalGenerationError,
    NonEmptyGroupError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from kbroker.protocol.codec import DecodeError, decode
from kbroker.protocol.records import ConsumerProtocolSubscription, GroupMetadataKey, GroupMetadataValue

EMPTY = "Empty"
PREPARING = "PreparingRebalance"
COMPLETING = "CompletingRebalance"
STABLE = "Stable"
DEAD = "Dead"

MOVES = {
    EMPTY: {PREPARING, DEAD},
    PREPARING: {EMPTY, COMPLETING, DEAD},
    COMPLETING: {STABLE, PREPARING, DEAD},
    STABLE: {PREPARING, DEAD},
    DEAD: set[str](),
}
SETTLED = (EMPTY, STABLE)

CONSUMER = "consumer"  # the protocol type whose metadata the coordinator may read
NO_TIMEOUT = -1
SESSION = "classic-session"

Protocols = tuple[tuple[str, bytes], ...]  # name and metadata, the member's favourite first


class Member:
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join_token",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "session_timer",
        "sync_token",
    )

    def __init__(
        self,
        group_id: str,
        member_id: str,
        *,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = False  # it waits in its first JoinGroup and cannot send heartbeats yet
        self.join_token: object | None = None  # its JoinGroup, parked
        self.sync_token: object | None = None  # its SyncGroup, parked
        self.session_timer = session_timer(group_id, member_id)

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def agrees_with(self, stored: GroupMetadataValue.MemberMetadata, protocol: str | None) -> bool:
        """The record tells nothing else of this member than an assignment."""
        return (
            self.instance_id == stored.group_instance_id
            and self.client_id == stored.client_id
            and self.client_host == stored.client_host
            and self.session_timeout_ms == stored.session_timeout
            and self.rebalance_timeout_ms == stored.rebalance_timeout
            and self.metadata(protocol) == stored.subscription
        )


def session_timer(group_id: str, member_id: str) -> Timer:
    return Timer(SESSION, group_id, member_id)


class ClassicGroup:
    kind = "classic"

    def __init__(self, group_id: str, since_ms: int = NO_TIMEOUT) -> None:
        self.group_id = group_id
        self.state = EMPTY
        self.since_ms = since_ms  # when it came into its state
        self.generation_id = 0
        self.protocol_type: str | None = None  # None: nobody ever joined
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_ids: dict[str, str] = {}  # group instance id -> member id
        self.pending: dict[str, None] = {}  # ids given out, not joined yet
        self.unsynced: set[str] = set()  # joined this generation, SyncGroup not seen yet
        self.awaiting_join = 0  # members whose JoinGroup is parked
        self.initial_left_ms: int | None = None  # first rebalance of an empty group: how much longer it may wait
        self.joined_meanwhile = False  # someone came in that time, so it is worth waiting for more
        self.expected = 0  # while a new group waits for company: so many members, or more, and
        self.expects_until_ms = 0  # how long at most
        self.subscribed: frozenset[str] | None = None  # None: not known
        self._support: dict[str, int] = {}  # protocol -> members that speak it

    # ---- what every group is asked ----

    @property
    def state_name(self) -> str:
        return self.state

    @property
    def is_empty(self) -> bool:
        return self.state == EMPTY

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, api_version: int, *, transactional: bool = False
    ) -> None:
        if epoch < 0 and self.state == EMPTY:
            return  # an admin, or a consumer that assigns itself
        if epoch < 0 and not member_id and instance_id is None:
            if transactional:
                return
            raise UnknownMemberIdError()
        self.check_member(member_id, instance_id)
        if epoch != self.generation_id:
            raise IllegalGenerationError()
        if self.state == COMPLETING and not transactional:
            raise RebalanceInProgressError()

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Whoever asks is told."""

    def check_delete(self) -> None:
        if self.state != EMPTY:
            raise NonEmptyGroupError()

    def check_offset_delete(self) -> None:
        """Only of consumers the coordinator knows which topics they read."""
        if self.state != EMPTY and self.protocol_type != CONSUMER:
            raise NonEmptyGroupError()

    def is_subscribed(self, topic: str) -> bool:
        return self.protocol_type == CONSUMER if self.subscribed is None else topic in self.subscribed

    def idle_since_ms(self, committed_ms: int) -> int | None:
        if self.protocol_type is None:
            return committed_ms
        if self.state == EMPTY:
            return committed_ms if self.since_ms == NO_TIMEOUT else self.since_ms
        if self.protocol_type == CONSUMER and self.subscribed is not None and self.state == STABLE:
            return committed_ms
        return None

    def tombstones(self) -> list[Record]:
        return [Record(GroupMetadataKey(group=self.group_id), None)]

    # ---- members ----

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        if instance_id is not None:
            holder = self.static_ids.get(instance_id)
            if holder is None:
                raise UnknownMemberIdError()
            if holder != member_id:
                raise FencedInstanceIdError()
        if member_id not in self.members:
            raise UnknownMemberIdError()

    def add(self, member: Member, protocol_type: str) -> None:
        assert member.member_id not in self.members, member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        assert self.protocol_type == protocol_type, (self.protocol_type, protocol_type)
        if member.instance_id is not None:
            assert member.instance_id not in self.static_ids, member.instance_id
            self.static_ids[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.pending.pop(member.member_id, None)
        self.members[member.member_id] = member
        self._count(member.protocols, +1)

    def remove(self, member_id: str) -> Member | None:
        """Whoever waits for an answer as this member must have got it before."""
        self.pending.pop(member_id, None)
        self.unsynced.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        assert member.join_token is None, member_id
        assert member.sync_token is None, member_id
        self._count(member.protocols, -1)
        if member.instance_id is not None:
            del self.static_ids[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def replace(self, member: Member, member_id: str) -> None:
        """A static member came back under a new id; it keeps what it was assigned."""
        assert member.instance_id is not None
        assert member.join_token is None, member.member_id
        assert member.sync_token is None, member.member_id
        old_id, member.member_id = member.member_id, member_id
        member.session_timer = session_timer(self.group_id, member_id)
        del self.members[old_id]
        self.members[member_id] = member
        self.static_ids[member.instance_id] = member_id
        self.unsynced.discard(old_id)
        if self.leader_id == old_id:
            self.leader_id = member_id

    def speak(self, member: Member, protocols: Protocols) -> None:
        """The member names its protocols anew."""
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, +1)

    def park_join(self, member: Member, token: object) -> None:
        self.awaiting_join += member.join_token is None
        member.join_token = token

    def take_join(self, member: Member) -> object | None:
        token, member.join_token = member.join_token, None
        self.awaiting_join -= token is not None
        return token

    @property
    def all_joined(self) -> bool:
        return self.awaiting_join == len(self.members) >= self.expected and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def elect(self) -> bool:
        """A group leader that has joined; the old one if it has. False: nobody has."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_token is None:
            joined = (one.member_id for one in self.members.values() if one.join_token is not None)
            leader_id = next(joined, None)
            if leader_id is None:
                return False
            self.leader_id = leader_id
        return True

    # ---- protocols ----

    def _count(self, protocols: Protocols, change: int) -> None:
        for name, _ in protocols:
            count = self._support.get(name, 0) + change
            if count:
                self._support[name] = count
            else:
                del self._support[name]

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether someone who speaks these may come in."""
        if self.state == EMPTY:
            return bool(protocol_type and protocols)
        if protocol_type != self.protocol_type:
            return False
        everyone = len(self.members)
        return any(self._support.get(name, 0) == everyone for name, _ in protocols)

    def choose_protocol(self) -> str:
        """What everyone speaks, by votes. Of those with equally many the one that Kafka would take: its map's first."""
        everyone = len(self.members)
        candidates = {name for name, count in self._support.items() if count == everyone}
        votes: dict[str, int] = {}
        for member in self.members.values():
            favourite = next(name for name, _ in member.protocols if name in candidates)
            votes[favourite] = votes.get(favourite, 0) + 1
        if len(votes) == 1:
            return next(iter(votes))
        return min(votes, key=lambda name: (-votes[name], _place_in_map(name)))

    def _subscribed_topics(self) -> frozenset[str] | None:
        """Of the chosen protocol's metadata, which every version begins with the topics. None: it cannot be told."""
        if self.protocol_type != CONSUMER:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            try:
                topics.update(decode(ConsumerProtocolSubscription, 0, member.metadata(self.protocol_name), 2)[0].topics)
            except DecodeError:
                return None
        return frozenset(topics)

    # ---- moves ----

    def move(self, state: str, now_ms: int) -> None:
        assert state in MOVES[self.state], (self.group_id, self.state, state)
        self.state, self.since_ms = state, now_ms

    def choose(self) -> None:
        """The protocol that this generation speaks."""
        self.protocol_name = self.choose_protocol()
        self.subscribed = self._subscribed_topics()

    def next_generation(self, now_ms: int) -> None:
        """Everyone who shall be in it has joined."""
        self.generation_id += 1
        self.initial_left_ms, self.joined_meanwhile, self.expected = None, False, 0
        self.choose()
        self.move(COMPLETING, now_ms)
        self.unsynced = set(self.members)

    # ---- records ----

    def founding(self) -> Record:
        """So that a group that nobody has joined yet is known after a reload."""
        return self._record(
            GroupMetadataValue(generation=0, protocol=None, leader=None, current_state_timestamp=self.since_ms)
        )

    def ending(self, now_ms: int) -> Record:
        """The generation in which nobody is left."""
        assert not self.members, self.group_id
        return self._record(
            GroupMetadataValue(
                protocol_type=self.protocol_type or "",
                generation=self.generation_id + 1,
                protocol=None,
                leader=None,
                current_state_timestamp=now_ms,
            )
        )

    def generation(self, assignments: dict[str, bytes] | None = None) -> Record:
        """This generation with these assignments, or with those it has."""
        return self._record(
            GroupMetadataValue(
                protocol_type=self.protocol_type or "",
                generation=self.generation_id,
                protocol=self.protocol_name,
                leader=self.leader_id,
                current_state_timestamp=self.since_ms,
                members=[
                    GroupMetadataValue.MemberMetadata(
                        member_id=one.member_id,
                        group_instance_id=one.instance_id,
                        client_id=one.client_id,
                        client_host=one.client_host,
                        rebalance_timeout=one.rebalance_timeout_ms,
                        session_timeout=one.session_timeout_ms,
                        subscription=one.metadata(self.protocol_name),
                        assignment=one.assignment if assignments is None else assignments.get(one.member_id, b""),
                    )
                    for one in self.members.values()
                ],
            )
        )

    def _record(self, value: GroupMetadataValue) -> Record:
        return Record(GroupMetadataKey(group=self.group_id), value)

    def adopt(self, value: GroupMetadataValue) -> None:
        """What a record tells becomes true. Between two settled states the log may tell of any move; a rebalance under
        way is ended by the legal ones only, and not by a record that is older than it."""
        if self.state == PREPARING and value.generation <= self.generation_id:
            return
        state = STABLE if value.members else EMPTY
        if self.state in SETTLED:
            self.state = state
        else:
            self.move(state, value.current_state_timestamp)
        self.since_ms = value.current_state_timestamp
        self.generation_id = value.generation
        self.initial_left_ms, self.joined_meanwhile, self.expected = None, False, 0
        self.protocol_type = value.protocol_type or None
        self.protocol_name = value.protocol
        self.leader_id = value.leader if value.members else None
        self._adopt_members(value)
        self.subscribed = self._subscribed_topics()

    def _adopt_members(self, value: GroupMetadataValue) -> None:
        """A member that is already as the record has it stays: it knows more, such as its other protocols."""
        before, self.members = self.members, {}
        self.static_ids, self._support = {}, {}
        for one in value.members:
            member = before.get(one.member_id)
            if member is None or not member.agrees_with(one, value.protocol):
                member = Member(
                    self.group_id,
                    one.member_id,
                    instance_id=one.group_instance_id,
                    client_id=one.client_id,
                    client_host=one.client_host,
                    session_timeout_ms=one.session_timeout,
                    rebalance_timeout_ms=one.session_timeout
                    if one.rebalance_timeout == NO_TIMEOUT
                    else one.rebalance_timeout,
                    protocols=((value.protocol or "", one.subscription),),
                )
            member.assignment = one.assignment
            self.members[member.member_id] = member
            if member.instance_id is not None:
                self.static_ids[member.instance_id] = member.member_id
            self._count(member.protocols, +1)
        self.unsynced.intersection_update(self.members)


def _place_in_map(name: str) -> int:
    """Where a Java HashMap of the smallest size keeps a string."""
    hashed = java_hash(name) & 0xFFFFFFFF
    return (hashed ^ hashed >> 16) & 15
