"""A consumer group under members that crash, stall, come back, join twice and lie, all from one seed.

    python -m kbroker.tests.simulation.consumer_groups --seeds 10000        a campaign
    python -m kbroker.tests.simulation.consumer_groups --first 42 --seeds 1  one again

What must hold after every event: a partition has one owner, in the group's books and among what members were told; a
member that was fenced commits nothing; reading the log again gives the same group. And when everyone is left in peace,
every member that lives reaches the target and all partitions are read.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from random import Random
from typing import Any

from kbroker.coordinator.group.consumer_settings import ConsumerSettings
from kbroker.coordinator.group.facts import Caller
from kbroker.errors import (
    FencedMemberEpochError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    KafkaError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
)
from kbroker.protocol.messages import OffsetCommitRequest
from kbroker.tests.unit.coordinator.world import Request, Response, World, lasting

GROUP = "g"
NAMES = ("apples", "pears", "plums")
REBALANCE_MS = 20_000
COMMIT = Caller(9, "client", "/host")
ROUNDS_TO_SETTLE = 40
READ_AGAIN_EVERY = 10  # events: the log grows long

Place = tuple[bytes, int]


class Client:
    """A consumer that does what the protocol asks of it, unless the simulation makes it do otherwise."""

    def __init__(self, member_id: str, instance_id: str | None, wishes: dict[str, Any]) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.wishes = wishes
        self.epoch = 0
        self.reads: set[Place] = set()  # what it believes to own
        self.alive = True
        self.missed = False  # an answer: then a client says everything again, and is told everything

    def request(self) -> Request:
        request = Request(group_id=GROUP, member_id=self.member_id, member_epoch=self.epoch)
        request.instance_id = self.instance_id
        request.topic_partitions = self.reported()
        if self.epoch == 0 or self.missed:
            request.rebalance_timeout_ms = REBALANCE_MS
            request.subscribed_topic_names = self.wishes.get("names")
            request.subscribed_topic_regex = self.wishes.get("regex")
            request.server_assignor = self.wishes.get("assignor")
        return request

    def reported(self) -> list[Request.TopicPartitions]:
        topics: dict[bytes, list[int]] = {}
        for topic_id, partition in sorted(self.reads):
            topics.setdefault(topic_id, []).append(partition)
        return [Request.TopicPartitions(topic_id=one, partitions=held) for one, held in topics.items()]

    def hear(self, answer: Response | KafkaError) -> None:
        self.missed = False
        if isinstance(answer, FencedMemberEpochError | UnknownMemberIdError | GroupIdNotFoundError):
            self.epoch, self.reads = 0, set()
        elif isinstance(answer, Response):
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                listed = answer.assignment.topic_partitions
                self.reads = {(one.topic_id, partition) for one in listed for partition in one.partitions}


class Simulation:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        interval = self.random.choice([0, 0, 1000])
        self.world = World(ConsumerSettings(assignment_interval_ms=interval, max_size=8))
        self.clients: list[Client] = []
        self.made = 0
        for name in NAMES[: self.random.randint(1, 3)]:
            self.world.change_topic(name, self.random.randint(1, 6))

    def moves(self) -> list[tuple[Callable[[], None], int]]:
        """What may happen, and how often beside the others."""
        return [
            (self._join, 4),
            (self._beat, 14),
            (self._lose_answer, 3),
            (self._crash, 1),
            (self._leave, 1),
            (self._return_as_static, 2),
            (self._join_again, 1),
            (self._lie, 2),
            (self._resubscribe, 2),
            (self._commit, 3),
            (self._wait, 3),
            (self._change_topics, 1),
            (self._reload, 1),
        ]

    def run(self, events: int = 60) -> None:
        moves = self.moves()
        for event in range(events):
            (move,) = self.random.choices([one for one, _ in moves], [weight for _, weight in moves])
            move()
            self.check()
            if event % READ_AGAIN_EVERY == 0:
                self.check_log()
        self.settle()
        self.check_log()

    # ---- what happens ----

    def _some(self) -> Client | None:
        living = [one for one in self.clients if one.alive]
        return self.random.choice(living) if living else None

    def _wishes(self) -> dict[str, Any]:
        wishes: dict[str, Any] = {"assignor": self.random.choice([None, None, "uniform", "range"])}
        if self.random.random() < 0.2:
            wishes["regex"] = self.random.choice(["p.*", ".*s", "apples|plums"])
        else:
            wishes["names"] = self.random.sample(NAMES, self.random.randint(1, 3))
        return wishes

    def _join(self) -> None:
        if len([one for one in self.clients if one.alive]) >= 6:
            return
        self.made += 1
        instance = f"i{self.made}" if self.random.random() < 0.3 else None
        client = Client(f"m{self.made}", instance, self._wishes())
        self.clients.append(client)
        self._exchange(client)

    def _exchange(self, client: Client) -> None:
        client.hear(self.world.beat(client.request()))

    def _beat(self) -> None:
        client = self._some()
        if client is not None:
            self._exchange(client)

    def _lose_answer(self) -> None:
        client = self._some()
        if client is not None:
            self.world.beat(client.request())
            client.missed = True

    def _crash(self) -> None:
        client = self._some()
        if client is not None:
            client.alive, client.reads = False, set()

    def _leave(self) -> None:
        client = self._some()
        if client is not None and client.epoch > 0:
            self._farewell(client, -1)

    def _farewell(self, client: Client, epoch: int) -> None:
        client.alive, client.reads = False, set()
        request = Request(group_id=GROUP, member_id=client.member_id, member_epoch=epoch)
        request.instance_id = client.instance_id
        self.world.beat(request)

    def _return_as_static(self) -> None:
        """An instance goes for a while, or dies without a word, and comes back under another member id."""
        client = self._some()
        if client is None or client.instance_id is None or client.epoch <= 0:
            return
        if self.random.random() < 0.7:
            self._farewell(client, -2)
        self.made += 1
        heir = Client(f"m{self.made}", client.instance_id, self.random.choice([client.wishes, self._wishes()]))
        answer = self.world.beat(heir.request())
        if isinstance(answer, Response):  # it had left, or its session had ended without its knowing
            client.alive, client.reads = False, set()
            heir.hear(answer)
            self.clients.append(heir)
        else:
            refused = (GroupMaxSizeReachedError, GroupIdNotFoundError)  # the second: by a classic group
            assert isinstance(answer, (UnreleasedInstanceIdError, *refused)), answer
            assert client.alive or isinstance(answer, refused), "the instance was given up"

    def _join_again(self) -> None:
        client = self._some()
        if client is not None:
            client.epoch, client.reads = 0, set()
            self._exchange(client)

    def _lie(self) -> None:
        """Epochs and partitions that were never given: nothing may come of it but an error or what is so anyway."""
        client = self._some()
        if client is None:
            return
        request = client.request()
        request.member_epoch = max(1, client.epoch + self.random.randint(-3, 3))
        if request.member_epoch == client.epoch:
            return
        self.world.beat(request)
        client.missed = True

    def _resubscribe(self) -> None:
        client = self._some()
        if client is None or client.epoch <= 0:
            return
        client.wishes = self._wishes()
        request = client.request()
        request.subscribed_topic_names = client.wishes.get("names", [])
        request.subscribed_topic_regex = client.wishes.get("regex", "")
        client.hear(self.world.beat(request))

    def _commit(self) -> None:
        """Whoever owns by its own belief commits; only those who own by the group's books may succeed."""
        client = self.random.choice(self.clients) if self.clients else None
        if client is None:
            return
        epoch = max(0, client.epoch + self.random.choice([0, 0, 0, -1, 1]))
        topic = self.random.choice(list(self.world.topics.held.values()))
        place = OffsetCommitRequest.Partition(
            partition_index=self.random.randrange(topic.partitions), committed_offset=1
        )
        request = OffsetCommitRequest(group_id=GROUP, generation_id_or_member_epoch=epoch, member_id=client.member_id)
        request.topics = [OffsetCommitRequest.Topic(name=topic.name, partitions=[place])]
        group = self.world.group()
        member = None if group is None else group.members.get(client.member_id)
        step = self.world.shard.on_offset_commit("token", request, COMMIT, self.world.now_ms)
        self.world.do(step)
        if not step.records:
            return
        assert member is not None, "one who is not in the group has committed"
        since = member.assigned_epoch(topic.topic_id, place.partition_index)
        assert epoch == member.epoch or (since is not None and since <= epoch < member.epoch), "a fenced one committed"

    def _wait(self) -> None:
        self.world.pass_time(self.random.choice([200, 1000, 5000, 21_000, 46_000]))

    def _change_topics(self) -> None:
        name = self.random.choice(NAMES)
        known = self.world.topics.held.get(name)
        if known is None:
            self.world.change_topic(name, self.random.randint(1, 6))
        elif self.random.random() < 0.3 and len(self.world.topics.held) > 1:
            self.world.change_topic(name, 0)
        else:
            self.world.change_topic(name, known.partitions + self.random.randint(1, 3))

    def _reload(self) -> None:
        self.world.reload()

    # ---- what must hold ----

    def check(self) -> None:
        group = self.world.group()
        if group is None:
            return
        owners: dict[Place, str] = {}
        for member in group.members.values():
            for owned in (member.assigned, member.revoking):
                for topic_id, partitions in owned.items():
                    for partition in partitions:
                        other = owners.setdefault((topic_id, partition), member.member_id)
                        assert other == member.member_id, f"{partition} is of {other} and of {member.member_id}"
        assert owners == group.owners
        readers: dict[Place, str] = {}
        for client in self.clients:
            held = group.members.get(client.member_id)
            if client.alive and held is not None and client.epoch in (held.epoch, held.previous_epoch) and client.epoch:
                for place in client.reads:
                    other = readers.setdefault(place, client.member_id)
                    assert other == client.member_id, f"{place} is read by {other} and by {client.member_id}"

    def check_log(self) -> None:
        known = lasting(self.world.shard)
        for again in (self.world.read_log(), self.world.loaded()):
            told = lasting(again)
            assert {group_id: told.get(group_id) for group_id in known} == known, "the log tells another story"
            assert again.groups.keys() == self.world.shard.groups.keys()

    def settle(self) -> None:
        """Nothing happens any more but heartbeats; those that died time out."""
        for _ in range(ROUNDS_TO_SETTLE):
            self.world.pass_time(3_000)
            for client in self.clients:
                if client.alive:
                    self._exchange(client)
                    self.check()
            self.rest()
        self.settled()

    def rest(self) -> None:
        """What members of another kind do meanwhile."""

    def settled(self) -> None:
        group = self.world.group()
        living = {one.member_id for one in self.clients if one.alive}
        if group is None:
            assert not living
            return
        assert group.members.keys() == living, (group.members.keys(), living)
        assert group.state_name == ("Stable" if living else "Empty"), group.state_name
        read = [place for one in self.clients if one.alive for place in one.reads]
        wanted = group.topic_names()
        there = {
            (one.topic_id, index)
            for one in self.world.topics.held.values()
            if one.name in wanted
            for index in range(one.partitions)
        }
        assert len(read) == len(set(read))
        assert set(read) == there, "a partition is read by nobody"


def campaign(kind: type[Simulation]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=10_000)
    chosen = parser.parse_args()
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        try:
            kind(seed).run()
        except BaseException:
            print(f"seed {seed} failed")
            raise
    print(f"{chosen.seeds} seeds, nothing broken")


if __name__ == "__main__":
    campaign(Simulation)
