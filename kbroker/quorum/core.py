"""The quorum's state machine, pure: who leads in which epoch, and how far the log is committed.

The edge hands in events with the time and carries the returned Step out in this order: persist the election state (and
fsync it) before anything else leaves the process, then append, then send. Offsets named `end_offset` are the
first one not held.

    state        answers votes       may become                          because
    UNATTACHED   yes, once an epoch  PROSPECTIVE, FOLLOWER               nobody led in time; a leader spoke
    FOLLOWER     no (pre-vote: only  PROSPECTIVE, UNATTACHED             the leader fell silent; a higher epoch
                 after silence)
    PROSPECTIVE  yes                 CANDIDATE, FOLLOWER, UNATTACHED     pre-votes won; a leader spoke; lost
    CANDIDATE    no                  LEADER, PROSPECTIVE, FOLLOWER       votes won; time ran out; a leader spoke
    LEADER       no                  RESIGNED, UNATTACHED                it stops; a higher epoch
    RESIGNED     no                  UNATTACHED, FOLLOWER                a higher epoch; time ran out
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from kbroker.quorum.votes import Tally, held_by_majority

NOBODY = -1


class Role(Enum):
    UNATTACHED = "unattached"
    FOLLOWER = "follower"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    RESIGNED = "resigned"


_MOVES = {
    Role.UNATTACHED: {Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE, Role.FOLLOWER},
    Role.FOLLOWER: {Role.FOLLOWER, Role.PROSPECTIVE, Role.UNATTACHED},
    Role.PROSPECTIVE: {Role.CANDIDATE, Role.FOLLOWER, Role.UNATTACHED, Role.PROSPECTIVE},
    Role.CANDIDATE: {Role.LEADER, Role.PROSPECTIVE, Role.FOLLOWER, Role.UNATTACHED},
    Role.LEADER: {Role.RESIGNED, Role.UNATTACHED, Role.FOLLOWER},
    Role.RESIGNED: {Role.UNATTACHED, Role.FOLLOWER, Role.PROSPECTIVE},
}


class Election(NamedTuple):
    """What must survive a restart (the file quorum-state): a vote given in an epoch is never given again."""

    epoch: int = 0
    leader_id: int = NOBODY
    voted_id: int = NOBODY


class LogEnd(NamedTuple):
    """Orders logs by how much they know: the epoch of the last record first, then the end offset."""

    epoch: int
    end_offset: int


class VoteRequest(NamedTuple):
    to: int
    candidate_id: int
    epoch: int
    log_end: LogEnd
    pre_vote: bool


class VoteReply(NamedTuple):
    voter_id: int
    epoch: int
    leader_id: int
    granted: bool
    pre_vote: bool


class BeginEpoch(NamedTuple):
    """A new leader makes itself known; repeated until acknowledged."""

    to: int
    leader_id: int
    epoch: int


class LeaderChange(NamedTuple):
    """The control record with which an epoch's log begins."""

    leader_id: int
    epoch: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]


class Step:
    __slots__ = ("append", "deadline_ms", "high_watermark", "messages", "persist", "reply")

    def __init__(
        self,
        *,
        persist: Election | None = None,
        messages: Sequence[VoteRequest | BeginEpoch] = (),
        high_watermark: int | None = None,
        deadline_ms: int | None = None,
    ) -> None:
        self.persist = persist
        self.append: LeaderChange | None = None
        self.messages = messages
        self.reply: VoteReply | None = None
        self.high_watermark = high_watermark  # it has risen to this
        self.deadline_ms = deadline_ms  # call on_timeout then, unless a later step says otherwise


class Timeouts(NamedTuple):
    election_ms: int = 1000
    fetch_ms: int = 2000


class Quorum:
    def __init__(
        self, node_id: int, voters: Iterable[int], election: Election, log_end: LogEnd, timeouts: Timeouts
    ) -> None:
        self.node_id = node_id
        self.voters = frozenset(voters)
        self.election = election
        self.log_end = log_end
        self.timeouts = timeouts
        self.role = Role.UNATTACHED
        self.high_watermark = 0
        self.epoch_start_offset = -1  # of the epoch this node leads: where its leader change record stands
        self._tally = Tally(self.voters)
        self._end_offsets: dict[int, int] = {}
        self._unacknowledged: set[int] = set()
        self._heard_leader_ms: int | None = None

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def epoch(self) -> int:
        return self.election.epoch

    def start(self, now_ms: int, jitter_ms: int = 0) -> Step:
        """Comes up with what the files said. A node that is its own majority has nobody to wait for."""
        if self.voters == {self.node_id}:
            return self._become_candidate(now_ms, jitter_ms)
        if self.election.leader_id not in (NOBODY, self.node_id):
            self._move(Role.FOLLOWER)
            return Step(deadline_ms=now_ms + self.timeouts.fetch_ms)
        return Step(deadline_ms=now_ms + self.timeouts.election_ms + jitter_ms)

    def on_timeout(self, now_ms: int, jitter_ms: int = 0) -> Step:
        """The armed deadline passed: the leader was silent, a round failed, or acknowledgements are missing."""
        if self.role is Role.LEADER:
            return self._announce(now_ms)
        if self.node_id not in self.voters:
            return Step(deadline_ms=now_ms + self.timeouts.fetch_ms)
        return self._become_prospective(now_ms, jitter_ms)

    def on_vote_request(self, request: VoteRequest, now_ms: int) -> Step:
        step = Step()
        if request.epoch > self.epoch and not request.pre_vote:
            step = self._unattach(request.epoch, now_ms)
        granted = request.epoch >= self.epoch and self._would_grant(request, now_ms)
        if granted and not request.pre_vote:
            self.election = Election(self.epoch, NOBODY, request.candidate_id)
            step.persist = self.election
            step.deadline_ms = now_ms + self.timeouts.election_ms
        step.reply = VoteReply(self.node_id, self.epoch, self.election.leader_id, granted, request.pre_vote)
        return step

    def on_vote_reply(self, reply: VoteReply, now_ms: int, jitter_ms: int = 0) -> Step:
        if reply.epoch > self.epoch:
            return self._unattach(reply.epoch, now_ms)
        if reply.leader_id != NOBODY and reply.epoch == self.epoch and not self.is_leader:
            return self.on_begin_epoch(reply.leader_id, reply.epoch, now_ms)
        asking = Role.PROSPECTIVE if reply.pre_vote else Role.CANDIDATE
        late = reply.epoch < self.epoch and not reply.pre_vote  # a vote counts in its own epoch only
        if self.role is not asking or late:
            return Step()
        self._tally.count(reply.voter_id, reply.granted)
        if self._tally.is_won:
            if asking is Role.PROSPECTIVE:
                return self._become_candidate(now_ms, jitter_ms)
            return self._become_leader(now_ms)
        if self._tally.is_lost and asking is Role.PROSPECTIVE:
            self._move(Role.UNATTACHED)
            return Step(deadline_ms=now_ms + self.timeouts.election_ms + jitter_ms)
        return Step()

    def on_begin_epoch(self, leader_id: int, epoch: int, now_ms: int) -> Step:
        """Someone leads `epoch`: follow, unless the news is old."""
        if epoch < self.epoch or (epoch == self.epoch and self.is_leader) or leader_id == self.node_id:
            return Step()
        assert epoch > self.epoch or self.election.leader_id in (NOBODY, leader_id), (self.election, leader_id)
        step = Step(deadline_ms=now_ms + self.timeouts.fetch_ms)
        if (epoch, leader_id) != (self.epoch, self.election.leader_id):
            self.election = step.persist = Election(epoch, leader_id, NOBODY)
        self._heard_leader_ms = now_ms
        self._move(Role.FOLLOWER)
        return step

    def on_leader_fetched(self, high_watermark: int, now_ms: int) -> Step:
        """The leader answered a fetch of ours: it lives, and has told how far the log is committed."""
        if self.role is not Role.FOLLOWER:
            return Step()
        self._heard_leader_ms = now_ms
        step = self._raise_high_watermark(min(high_watermark, self.log_end.end_offset))
        step.deadline_ms = now_ms + self.timeouts.fetch_ms
        return step

    def on_acknowledged(self, voter_id: int, epoch: int) -> None:
        if epoch == self.epoch:
            self._unacknowledged.discard(voter_id)

    def on_flushed(self, log_end: LogEnd) -> Step:
        """Our own log is durable up to here."""
        assert log_end >= self.log_end, (log_end, self.log_end)
        self.log_end = log_end
        return self._on_position(self.node_id, log_end.end_offset)

    def on_fetch(self, voter_id: int, fetch_offset: int) -> Step:
        """A voter asks for what follows `fetch_offset`: it holds, durably, everything before."""
        if not self.is_leader:
            return Step()
        self._unacknowledged.discard(voter_id)
        return self._on_position(voter_id, fetch_offset)

    def resign(self) -> Step:
        """Stops leading, on the way to a stop; the epoch is not led again by this node."""
        if not self.is_leader:
            return Step()
        self._move(Role.RESIGNED)
        return Step()

    def _would_grant(self, request: VoteRequest, now_ms: int) -> bool:
        if request.log_end < self.log_end:
            return False
        if request.pre_vote:
            if self.role is Role.LEADER:
                return False
            heard = self._heard_leader_ms
            return self.role is not Role.FOLLOWER or heard is None or now_ms - heard >= self.timeouts.fetch_ms
        if self.role in (Role.LEADER, Role.CANDIDATE, Role.RESIGNED) or self.election.leader_id != NOBODY:
            return False
        return self.election.voted_id in (NOBODY, request.candidate_id)

    def _become_prospective(self, now_ms: int, jitter_ms: int) -> Step:
        self._move(Role.PROSPECTIVE)
        self._tally = Tally(self.voters)
        self._tally.count(self.node_id, True)
        if self._tally.is_won:
            return self._become_candidate(now_ms, jitter_ms)
        return Step(
            messages=self._ask(self.epoch, pre_vote=True),
            deadline_ms=now_ms + self.timeouts.election_ms + jitter_ms,
        )

    def _become_candidate(self, now_ms: int, jitter_ms: int) -> Step:
        assert self.node_id in self.voters, (self.node_id, self.voters)
        self._move(Role.CANDIDATE)
        self.election = Election(self.epoch + 1, NOBODY, self.node_id)
        self._tally = Tally(self.voters)
        self._tally.count(self.node_id, True)
        if self._tally.is_won:
            return self._become_leader(now_ms)
        return Step(
            persist=self.election,
            messages=self._ask(self.epoch, pre_vote=False),
            deadline_ms=now_ms + self.timeouts.election_ms + jitter_ms,
        )

    def _become_leader(self, now_ms: int) -> Step:
        self._move(Role.LEADER)
        self.election = Election(self.epoch, self.node_id, NOBODY)
        self.epoch_start_offset = self.log_end.end_offset
        self._end_offsets = {self.node_id: self.log_end.end_offset}
        self._unacknowledged = set(self.voters - {self.node_id})
        step = self._announce(now_ms)
        step.persist = self.election
        step.append = LeaderChange(
            self.node_id, self.epoch, tuple(sorted(self.voters)), tuple(sorted(self._tally.granted))
        )
        return step

    def _announce(self, now_ms: int) -> Step:
        if not self._unacknowledged:
            return Step()
        return Step(
            messages=[BeginEpoch(voter, self.node_id, self.epoch) for voter in sorted(self._unacknowledged)],
            deadline_ms=now_ms + self.timeouts.fetch_ms // 2,
        )

    def _unattach(self, epoch: int, now_ms: int) -> Step:
        assert epoch > self.epoch, (epoch, self.epoch)
        self.election = Election(epoch)
        self._move(Role.UNATTACHED)
        return Step(persist=self.election, deadline_ms=now_ms + self.timeouts.election_ms)

    def _on_position(self, voter_id: int, end_offset: int) -> Step:
        """Only entries of the leader's own epoch commit by count; older ones commit beneath them (Raft, 5.4.2)."""
        if not self.is_leader:
            return Step()
        self._end_offsets[voter_id] = max(end_offset, self._end_offsets.get(voter_id, 0))
        held = held_by_majority(self.voters, self._end_offsets)
        return self._raise_high_watermark(held) if held > self.epoch_start_offset else Step()

    def _raise_high_watermark(self, offset: int) -> Step:
        if offset <= self.high_watermark:
            return Step()
        self.high_watermark = offset
        return Step(high_watermark=offset)

    def _ask(self, epoch: int, pre_vote: bool) -> list[VoteRequest | BeginEpoch]:
        others = sorted(self.voters - {self.node_id})
        return [VoteRequest(voter, self.node_id, epoch, self.log_end, pre_vote) for voter in others]

    def _move(self, role: Role) -> None:
        assert role in _MOVES[self.role], (self.role, role)
        self.role = role
