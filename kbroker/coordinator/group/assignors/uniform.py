"""`uniform`: every member gets as many partitions as any other, give or take one, and keeps what it had where it can.

Where all subscribe to the same, that is a matter of quotas. Where subscriptions differ, partitions go to whoever of the
topic's subscribers has least, and then from whoever has most to whoever has least, until no move helps.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from kbroker.coordinator.group.assignors.spec import Partitions, Wish
from kbroker.coordinator.group.java_order import member_order, topic_order
from kbroker.coordinator.group.member import Assignment

MAX_ROUNDS = 16  # each about halves what is uneven; only overlapping subscriptions need more than two

Shared = dict[str, dict[bytes, set[int]]]


def assign_uniform(members: Mapping[str, Wish], partitions: Partitions) -> dict[str, Assignment]:
    wishes = {wish.topics.intersection(partitions) for wish in members.values()}
    shared: Shared
    if not any(wishes):
        shared = {member_id: {} for member_id in members}
    elif len(wishes) == 1:
        shared = _alike(members, partitions, next(iter(wishes)))
    else:
        shared = _Uneven(members, partitions).shared_out()
    return {
        member_id: {topic_id: frozenset(ones) for topic_id, ones in topics.items() if ones}
        for member_id, topics in shared.items()
    }


def _alike(members: Mapping[str, Wish], partitions: Partitions, topics: frozenset[bytes]) -> Shared:
    order = member_order(members)
    quota, extra = divmod(sum(partitions[one] for one in topics), len(order))
    taken: set[tuple[bytes, int]] = set()
    shared: Shared = {}
    room: list[tuple[str, int]] = []
    returned: list[tuple[bytes, int]] = []
    for index, member_id in enumerate(order):
        left = quota + (extra > 0)
        keeps = shared[member_id] = {}
        held = members[member_id].held
        for topic_id in topic_order(held):
            if topic_id not in topics:
                continue
            there = [
                one for one in sorted(held[topic_id]) if one < partitions[topic_id] and (topic_id, one) not in taken
            ]
            kept = keeps[topic_id] = set(there[:left])
            left -= len(kept)
            taken.update((topic_id, one) for one in kept)
            returned += [(topic_id, one) for one in there[len(kept) :]]
        with_extra = extra > 0
        if left > 0 and with_extra and len(order) - index > extra:
            left -= 1  # whoever comes later may hold its extra one already
            with_extra = False
        if left > 0:
            room.append((member_id, left))
        extra -= with_extra
    waiting = set(returned)
    free = [
        (topic_id, one)
        for topic_id in topic_order(topics)
        for one in range(partitions[topic_id])
        if (topic_id, one) not in taken and (topic_id, one) not in waiting
    ]
    rest = iter(free + returned)
    for member_id, left in room:
        for topic_id, one in _take(rest, left):
            shared[member_id].setdefault(topic_id, set()).add(one)
    assert next(rest, None) is None, "a partition was left over"
    return shared


def _take(rest: Iterable[tuple[bytes, int]], count: int) -> Iterable[tuple[bytes, int]]:
    for _, one in zip(range(count), rest, strict=False):
        yield one


class _Uneven:
    """Members subscribe to different topics."""

    def __init__(self, members: Mapping[str, Wish], partitions: Partitions) -> None:
        self._partitions = partitions
        self._order = member_order(members)
        self._place = {member_id: index for index, member_id in enumerate(self._order)}
        self._subscribers: dict[bytes, list[str]] = {}
        self._shared: Shared = {member_id: {} for member_id in self._order}
        self._size = dict.fromkeys(self._order, 0)
        self._owner: dict[tuple[bytes, int], str] = {}
        for member_id in self._order:
            wish = members[member_id]
            for topic_id in wish.topics.intersection(partitions):
                self._subscribers.setdefault(topic_id, []).append(member_id)
            for topic_id in topic_order(wish.held):
                if topic_id in wish.topics and topic_id in partitions:
                    for one in sorted(wish.held[topic_id]):
                        if one < partitions[topic_id] and (topic_id, one) not in self._owner:
                            self._give(topic_id, one, member_id)
        self._topics = sorted(self._subscribers, key=self._rank)

    def _rank(self, topic_id: bytes) -> tuple[float, int, bytes]:
        subscribers = len(self._subscribers[topic_id])
        return -self._partitions[topic_id] / subscribers, subscribers, topic_id

    def shared_out(self) -> Shared:
        for topic_id in self._topics:
            self._fill(topic_id)
        for _ in range(MAX_ROUNDS):
            moves = [self._balance(topic_id) for topic_id in self._topics if len(self._subscribers[topic_id]) > 1]
            if not any(moves):
                break
        return self._shared

    def _give(self, topic_id: bytes, partition: int, member_id: str) -> None:
        before = self._owner.get((topic_id, partition))
        if before is not None:
            self._shared[before][topic_id].discard(partition)
            self._size[before] -= 1
        self._owner[topic_id, partition] = member_id
        self._shared[member_id].setdefault(topic_id, set()).add(partition)
        self._size[member_id] += 1

    def _least_first(self, topic_id: bytes) -> list[tuple[int, int, str]]:
        heap = [(self._size[one], self._place[one], one) for one in self._subscribers[topic_id]]
        heapq.heapify(heap)
        return heap

    def _fill(self, topic_id: bytes) -> None:
        heap = self._least_first(topic_id)
        for partition in range(self._partitions[topic_id]):
            if (topic_id, partition) not in self._owner:
                size, place, member_id = heap[0]
                self._give(topic_id, partition, member_id)
                heapq.heapreplace(heap, (size + 1, place, member_id))

    def _balance(self, topic_id: bytes) -> int:
        """Moves partitions of one topic from those of its subscribers with most to those with least."""
        least = self._least_first(topic_id)
        most = [(-size, -place, one) for size, place, one in least if self._shared[one].get(topic_id)]
        heapq.heapify(most)
        moves = 0
        while most:
            size, place, giver = most[0]
            if -size != self._size[giver]:  # it was given to meanwhile
                heapq.heapreplace(most, (-self._size[giver], place, giver))
                continue
            while least[0][0] != self._size[least[0][2]]:
                stale = least[0]
                heapq.heapreplace(least, (self._size[stale[2]], stale[1], stale[2]))
            taker = least[0][2]
            if self._size[giver] - self._size[taker] <= 1:
                break
            self._give(topic_id, max(self._shared[giver][topic_id]), taker)
            moves += 1
            heapq.heapreplace(least, (self._size[taker], least[0][1], taker))
            if self._shared[giver][topic_id]:
                heapq.heapreplace(most, (-self._size[giver], place, giver))
            else:
                heapq.heappop(most)
        return moves
