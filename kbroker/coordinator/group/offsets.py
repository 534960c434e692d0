"""Committed offsets: what was committed for which group and partition, and what open transactions would commit.

`apply` and `apply_end` alone write; everything else reads and decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from kbroker.coordinator.step import NO_PRODUCER, Record
from kbroker.protocol.message import ZERO_UUID
from kbroker.protocol.records import OffsetCommitKey, OffsetCommitValue

NEVER = -1  # no expiry of its own
Place = tuple[str, int]  # topic, partition
NOTHING: Mapping[Place, Committed]


class Committed(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = NEVER
    topic_id: bytes = ZERO_UUID


NOTHING = {}


class Offsets:
    def __init__(self) -> None:
        self._by_group: dict[str, dict[Place, Committed]] = {}
        # By producer id, then group. None: committed outside of the transaction since, which counts.
        self._pending: dict[int, dict[str, dict[Place, Committed | None]]] = {}
        self._of_topic: dict[str, int] = {}  # how many offsets are committed in it, by all groups

    def of_group(self, group_id: str) -> Mapping[Place, Committed]:
        return self._by_group.get(group_id, NOTHING)

    def groups(self) -> Iterator[str]:
        yield from self._by_group

    def all_places(self, group_id: str) -> list[Place]:
        """Where the group has committed, or is about to."""
        pending = (groups.get(group_id, NOTHING) for groups in self._pending.values())
        return list(dict.fromkeys([*self.of_group(group_id), *(place for places in pending for place in places)]))

    def of_topics(self, names: Iterable[str]) -> Iterator[tuple[str, Place]]:
        """Who has committed in these topics, or is about to, and where. Nothing is looked through for other topics."""
        wanted = set(names)
        if self._pending or not wanted.isdisjoint(self._of_topic):
            for group_id in dict.fromkeys([*self._by_group, *(one for held in self._pending.values() for one in held)]):
                for place in self.all_places(group_id):
                    if place[0] in wanted:
                        yield group_id, place

    def is_pending(self, group_id: str, place: Place | None = None) -> bool:
        """Whether an open transaction would commit for this group (and partition)."""
        if not self._pending:
            return False
        found = (groups[group_id] for groups in self._pending.values() if group_id in groups)
        return any(place is None or place in places for places in found)

    def apply(self, key: OffsetCommitKey, value: OffsetCommitValue | None, producer_id: int = NO_PRODUCER) -> None:
        place = (key.topic, key.partition)
        if value is None:
            self._forget(key.group, place)
            return
        committed = Committed(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
        )
        if producer_id == NO_PRODUCER:
            self.hold(key.group, ((place, committed),))
        else:
            self._pending.setdefault(producer_id, {}).setdefault(key.group, {})[place] = committed

    def hold(self, group_id: str, commits: Iterable[tuple[Place, Committed]]) -> None:
        """What apply() does for records without a producer, of one group that is there."""
        held = self._by_group.setdefault(group_id, {})
        for place, committed in commits:
            self._hold(held, place, committed)
            for groups in self._pending.values():
                if place in groups.get(group_id, NOTHING):
                    groups[group_id][place] = None

    def apply_end(self, producer_id: int, *, commit: bool) -> list[str]:
        """A transaction's marker; the groups it was about."""
        groups = self._pending.pop(producer_id, {})
        if commit:
            for group_id, places in groups.items():
                held = self._by_group.setdefault(group_id, {})
                for place, committed in places.items():
                    if committed is not None:
                        self._hold(held, place, committed)
        return list(groups)

    def _hold(self, held: dict[Place, Committed], place: Place, committed: Committed) -> None:
        if place not in held:
            self._of_topic[place[0]] = self._of_topic.get(place[0], 0) + 1
        held[place] = committed

    def _forget(self, group_id: str, place: Place) -> None:
        """A tombstone ends what was committed and what was about to be."""
        places = self._by_group.get(group_id)
        if places is not None:
            if places.pop(place, None) is not None:
                self._release(place[0])
            if not places:
                del self._by_group[group_id]
        for groups in self._pending.values():
            pending = groups.get(group_id)
            if pending is not None:
                pending.pop(place, None)
                if not pending:
                    del groups[group_id]
        self._pending = {producer: groups for producer, groups in self._pending.items() if groups}

    def _release(self, topic: str) -> None:
        self._of_topic[topic] -= 1
        if not self._of_topic[topic]:
            del self._of_topic[topic]


def tombstone(group_id: str, place: Place) -> Record:
    return Record(OffsetCommitKey(group=group_id, topic=place[0], partition=place[1]), None)
