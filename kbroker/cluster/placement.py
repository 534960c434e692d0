"""Where the replicas of new partitions go: striped over racks, then over the brokers of a rack, as Kafka places them.

Each partition begins one rack further than the last and each rack gives its brokers in turn, so leaders and followers
spread evenly; once every live broker has led once, the order is shuffled again. The first replica, which will lead, is
never a fenced broker; other replicas may be, when there are not enough others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from kbroker.errors import InvalidReplicationFactorError


class Candidate(NamedTuple):
    broker_id: int
    rack: str | None
    fenced: bool


class _Ring:
    """Brokers of one rack that are alike; each partition begins one further, and takes each broker once at most."""

    def __init__(self, brokers: list[int]) -> None:
        self.brokers = brokers
        self.start = -1
        self.taken = 0
        self.partition = -1

    def next(self, partition: int) -> int | None:
        if self.partition != partition:
            self.partition = partition
            self.taken = 0
            self.start = (self.start + 1) % max(len(self.brokers), 1)
        if self.taken >= len(self.brokers):
            return None
        self.taken += 1
        return self.brokers[(self.start + self.taken - 1) % len(self.brokers)]


class _Rack:
    def __init__(self, live: list[int], fenced: list[int]) -> None:
        self.live = _Ring(live)
        self.fenced = _Ring(fenced)

    def next(self, partition: int) -> int | None:
        found = self.live.next(partition)
        return found if found is not None else self.fenced.next(partition)


def place(
    brokers: Iterable[Candidate], partitions: int, replication_factor: int, shuffle: Callable[[list[int]], None]
) -> list[list[int]]:
    """The replicas of each partition, the preferred leader first. InvalidReplicationFactorError when it cannot be."""
    candidates = sorted(brokers, key=lambda one: one.broker_id)
    if replication_factor > len(candidates):
        raise InvalidReplicationFactorError(
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {len(candidates)} broker(s) are registered or some "
            "brokers have all their log directories cordoned."
        )
    live_count = sum(1 for one in candidates if not one.fenced)
    if not live_count:
        raise InvalidReplicationFactorError(
            f"Unable to replicate the partition {replication_factor} time(s): All brokers are currently fenced."
        )
    if len(candidates) == 1:
        return [[candidates[0].broker_id] for _ in range(partitions)]
    placed: list[list[int]] = []
    racks: list[_Rack] = []
    for partition in range(partitions):
        if partition % live_count == 0:
            racks = _racks(candidates, shuffle)
        placed.append(_place_one(racks, partition, replication_factor))
    return placed


def _racks(candidates: list[Candidate], shuffle: Callable[[list[int]], None]) -> list[_Rack]:
    names = sorted({one.rack or "" for one in candidates})
    order = list(range(len(names)))
    shuffle(order)
    racks = []
    for name in (names[i] for i in order):
        live = [one.broker_id for one in candidates if (one.rack or "") == name and not one.fenced]
        fenced = [one.broker_id for one in candidates if (one.rack or "") == name and one.fenced]
        shuffle(live)
        shuffle(fenced)
        racks.append(_Rack(live, fenced))
    return racks


def _place_one(racks: list[_Rack], partition: int, replication_factor: int) -> list[int]:
    start = partition % len(racks)
    leaders = ((i, racks[i].live.next(partition)) for i in _turn(start, len(racks)))
    first_rack, leader = next((i, found) for i, found in leaders if found is not None)
    replicas = [leader]
    skipped = False  # the leader's rack has given its share of the first round
    at = start
    while len(replicas) < replication_factor:
        if at == first_rack and not skipped:
            skipped = True
        else:
            found = racks[at].next(partition)
            if found is not None:
                replicas.append(found)
        at = (at + 1) % len(racks)
    return replicas


def _turn(start: int, count: int) -> Iterable[int]:
    return ((start + step) % count for step in range(count))
