"""`range`: of each topic, each of its subscribers gets a run of partitions, the first ones one more where it must be.

Members stand in the order of their instance ids, then of their member ids: topics with as many partitions are thereby
shared out alike, which is what joins need.
"""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.coordinator.group.assignors.spec import Partitions, Wish
from kbroker.coordinator.group.member import Assignment


def assign_range(members: Mapping[str, Wish], partitions: Partitions) -> dict[str, Assignment]:
    def place(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return (True, member_id) if instance_id is None else (False, instance_id)

    subscribers: dict[bytes, list[str]] = {}
    for member_id in sorted(members, key=place):
        for topic_id in members[member_id].topics:
            if topic_id in partitions:
                subscribers.setdefault(topic_id, []).append(member_id)
    shared: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in members}
    for topic_id, takers in subscribers.items():
        each, more = divmod(partitions[topic_id], len(takers))
        start = 0
        for index, member_id in enumerate(takers):
            end = start + each + (index < more)
            if start < end:
                shared[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(shared)
