"""Voters that lose, repeat and reorder every message never elect two leaders in one epoch, nor vote twice in one."""

from random import Random

from hypothesis import example, given
from hypothesis import strategies as st

from kbroker.quorum.core import BeginEpoch, Election, LogEnd, Quorum, Step, Timeouts, VoteReply, VoteRequest


class Cluster:
    """A scheduler with one seed: who times out, what arrives, what is lost, who restarts from what it persisted."""

    def __init__(self, voters: int, seed: int) -> None:
        self.chance = Random(seed)
        self.ids = list(range(1, voters + 1))
        self.disks = {node_id: Election() for node_id in self.ids}
        self.ends = {node_id: LogEnd(0, self.chance.randrange(3)) for node_id in self.ids}
        self.nodes = {node_id: self.boot(node_id) for node_id in self.ids}
        self.mail: list[tuple[int, int, object]] = []  # (from, to, message)
        self.leaders: dict[int, int] = {}  # epoch -> leader
        self.votes: dict[tuple[int, int], int] = {}  # (voter, epoch) -> candidate
        self.now_ms = 0
        for node_id in self.ids:
            self.carry_out(node_id, self.nodes[node_id].start(0))

    def boot(self, node_id: int) -> Quorum:
        return Quorum(node_id, self.ids, self.disks[node_id], self.ends[node_id], Timeouts())

    def carry_out(self, node_id: int, step: Step, asker: int = 0) -> None:
        node = self.nodes[node_id]
        if step.persist is not None:
            assert step.persist.epoch >= self.disks[node_id].epoch
            self.disks[node_id] = step.persist
            if step.persist.voted_id != -1:
                self.note_vote(node_id, step.persist.epoch, step.persist.voted_id)
        if node.is_leader:
            assert self.leaders.setdefault(node.epoch, node_id) == node_id
        if step.append is not None:
            self.ends[node_id] = LogEnd(node.epoch, self.ends[node_id].end_offset + 1)
            before = node.high_watermark
            node.on_flushed(self.ends[node_id])
            assert node.high_watermark >= before
        if step.reply is not None:
            self.mail.append((node_id, asker, step.reply))
        self.mail += [(node_id, message.to, message) for message in step.messages]

    def note_vote(self, voter: int, epoch: int, candidate: int) -> None:
        assert self.votes.setdefault((voter, epoch), candidate) == candidate

    def turn(self) -> None:
        self.now_ms += self.chance.randrange(500)
        event = self.chance.random()
        if event < 0.1:
            node_id = self.chance.choice(self.ids)
            self.carry_out(node_id, self.nodes[node_id].on_timeout(self.now_ms, self.chance.randrange(1000)))
        elif event < 0.15:
            node_id = self.chance.choice(self.ids)
            self.nodes[node_id] = self.boot(node_id)
            self.carry_out(node_id, self.nodes[node_id].start(self.now_ms))
        elif self.mail:
            self.deliver(*self.mail.pop(self.chance.randrange(len(self.mail))))

    def deliver(self, sender: int, to: int, message: object) -> None:
        fate = self.chance.random()
        if fate < 0.1:
            return
        if fate < 0.2 and len(self.mail) < 200:
            self.mail.append((sender, to, message))
        node = self.nodes[to]
        if isinstance(message, VoteRequest):
            self.carry_out(to, node.on_vote_request(message, self.now_ms), asker=sender)
        elif isinstance(message, VoteReply):
            self.carry_out(to, node.on_vote_reply(message, self.now_ms, self.chance.randrange(1000)))
        else:
            assert isinstance(message, BeginEpoch)
            self.carry_out(to, node.on_begin_epoch(message.leader_id, message.epoch, self.now_ms))


@given(st.sampled_from([1, 2, 3, 5]), st.integers(0, 2**32))
@example(3, 8957)  # a vote of an earlier epoch arrives late
def test_no_epoch_has_two_leaders_and_no_voter_votes_twice(voters: int, seed: int) -> None:
    cluster = Cluster(voters, seed)
    for _ in range(300):
        cluster.turn()


def test_leaders_are_elected_in_spite_of_all_that() -> None:
    elected = 0
    for seed in range(20):
        cluster = Cluster(3, seed)
        for _ in range(400):
            cluster.turn()
        elected += bool(cluster.leaders)
    assert elected == 20
