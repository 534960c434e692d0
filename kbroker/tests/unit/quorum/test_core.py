"""The quorum as a state machine: one voter alone, and three that talk through a list of messages."""

from kbroker.quorum.core import BeginEpoch, Election, LeaderChange, LogEnd, Quorum, Role, Step, Timeouts, VoteRequest
from kbroker.quorum.votes import Tally, held_by_majority


def alone(epoch: int = 0, end_offset: int = 0) -> Quorum:
    return Quorum(1, [1], Election(epoch), LogEnd(epoch, end_offset), Timeouts())


def test_a_single_voter_elects_itself_at_once_in_a_new_epoch() -> None:
    step = alone(epoch=4, end_offset=20).start(now_ms=0)
    assert step.persist == Election(5, leader_id=1)
    assert step.append == LeaderChange(1, 5, (1,), (1,))
    assert not step.messages
    assert step.deadline_ms is None


def test_nothing_is_committed_before_it_is_flushed() -> None:
    quorum = alone(epoch=1, end_offset=7)
    quorum.start(now_ms=0)
    assert quorum.high_watermark == 0
    assert quorum.on_flushed(LogEnd(2, 8)).high_watermark == 8
    assert quorum.on_flushed(LogEnd(2, 8)).high_watermark is None


def test_a_tally_counts_each_voter_once_and_strangers_never() -> None:
    tally = Tally(frozenset({1, 2, 3}))
    for voter, granted in [(1, True), (1, True), (9, True), (2, False), (2, True)]:
        tally.count(voter, granted)
    assert not tally.is_won
    assert not tally.is_lost
    tally.count(3, False)
    assert tally.is_lost


def test_what_a_majority_holds_is_the_middle_offset() -> None:
    assert held_by_majority([1], {1: 9}) == 9
    assert held_by_majority([1, 2, 3], {1: 9, 2: 5}) == 5
    assert held_by_majority([1, 2, 3], {1: 9}) == 0
    assert held_by_majority([1, 2, 3, 4, 5], {1: 9, 2: 8, 3: 7, 4: 6}) == 7


class Three:
    """Three voters; messages are delivered in order, to those that are up."""

    def __init__(self, ends: dict[int, LogEnd] | None = None) -> None:
        self.nodes = {
            number: Quorum(number, [1, 2, 3], Election(), (ends or {}).get(number, LogEnd(0, 0)), Timeouts())
            for number in (1, 2, 3)
        }
        self.persisted: dict[int, list[Election]] = {1: [], 2: [], 3: []}
        self.down: set[int] = set()
        for node in self.nodes.values():
            node.start(0)

    def run(self, node_id: int, step: Step, now_ms: int = 0) -> None:
        if step.persist is not None:
            self.persisted[node_id].append(step.persist)
        for message in step.messages:
            if message.to in self.down:
                continue
            other = self.nodes[message.to]
            if isinstance(message, VoteRequest):
                answered = other.on_vote_request(message, now_ms)
                self.run(message.to, answered, now_ms)
                assert answered.reply is not None
                self.run(node_id, self.nodes[node_id].on_vote_reply(answered.reply, now_ms), now_ms)
            elif isinstance(message, BeginEpoch):
                self.run(message.to, other.on_begin_epoch(message.leader_id, message.epoch, now_ms), now_ms)

    def time_out(self, node_id: int, now_ms: int) -> None:
        self.run(node_id, self.nodes[node_id].on_timeout(now_ms), now_ms)

    @property
    def leaders(self) -> list[tuple[int, int]]:
        return [(node.node_id, node.epoch) for node in self.nodes.values() if node.is_leader]


def test_three_voters_elect_the_one_that_asks_first_and_the_others_follow() -> None:
    three = Three()
    three.time_out(2, now_ms=1000)
    assert three.leaders == [(2, 1)]
    assert [three.nodes[n].role for n in (1, 3)] == [Role.FOLLOWER, Role.FOLLOWER]
    assert three.persisted[2][-1] == Election(1, leader_id=2)


def test_a_minority_elects_nobody_and_raises_no_epoch() -> None:
    three = Three()
    three.down = {1, 3}
    three.time_out(2, now_ms=1000)
    three.time_out(2, now_ms=2000)
    assert three.leaders == []
    assert three.nodes[2].epoch == 0
    assert three.nodes[2].role is Role.PROSPECTIVE


def test_a_voter_whose_log_is_behind_cannot_be_elected() -> None:
    three = Three({1: LogEnd(1, 10), 2: LogEnd(1, 9), 3: LogEnd(1, 10)})
    three.time_out(2, now_ms=1000)
    assert three.leaders == []
    three.time_out(3, now_ms=2000)
    assert three.leaders == [(3, 1)]


def test_a_vote_is_given_once_an_epoch() -> None:
    node = Quorum(1, [1, 2, 3], Election(), LogEnd(0, 0), Timeouts())
    node.start(0)
    first = node.on_vote_request(VoteRequest(1, 2, 1, LogEnd(0, 0), pre_vote=False), 0)
    second = node.on_vote_request(VoteRequest(1, 3, 1, LogEnd(0, 5), pre_vote=False), 0)
    again = node.on_vote_request(VoteRequest(1, 2, 1, LogEnd(0, 0), pre_vote=False), 0)
    assert [step.reply.granted for step in (first, second, again) if step.reply] == [True, False, True]
    assert first.persist == Election(1, voted_id=2)


def test_a_follower_of_a_live_leader_grants_no_pre_vote() -> None:
    three = Three()
    three.time_out(2, now_ms=1000)
    reply = three.nodes[1].on_vote_request(VoteRequest(1, 3, 1, LogEnd(0, 0), pre_vote=True), 1500).reply
    assert reply is not None
    assert not reply.granted


def test_the_high_watermark_needs_a_majority_and_an_entry_of_the_leaders_own_epoch() -> None:
    three = Three({1: LogEnd(1, 5), 2: LogEnd(1, 5), 3: LogEnd(1, 3)})
    three.time_out(2, now_ms=1000)
    leader = three.nodes[2]
    assert leader.on_fetch(1, 5).high_watermark is None  # five old entries on two of three: not by count alone
    assert leader.on_flushed(LogEnd(leader.epoch, 6)).high_watermark is None
    assert leader.on_fetch(1, 6).high_watermark == 6
    assert leader.on_fetch(3, 4).high_watermark is None


def test_a_leader_that_hears_of_a_higher_epoch_stops_leading() -> None:
    three = Three()
    three.time_out(2, now_ms=1000)
    step = three.nodes[2].on_vote_request(VoteRequest(2, 3, 9, LogEnd(9, 99), pre_vote=False), 2000)
    assert not three.nodes[2].is_leader
    assert step.reply is not None
    assert step.reply.granted
    assert step.persist == Election(9, voted_id=3)


def test_an_unacknowledged_leader_announces_itself_again() -> None:
    three = Three()
    three.down = {3}
    three.time_out(2, now_ms=1000)
    assert three.leaders == [(2, 1)]
    three.nodes[2].on_acknowledged(1, 1)
    assert [message.to for message in three.nodes[2].on_timeout(3000).messages] == [3]


def test_a_resigned_leader_leads_no_more() -> None:
    quorum = alone()
    quorum.start(0)
    quorum.resign()
    assert not quorum.is_leader
