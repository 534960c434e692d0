"""The timers of a consumer group's members.

session     it has not been heard of
rebalance   it was told to give partitions up and did not
join, sync  of the classic protocol: it was told to join again, or has joined, and did not go on
"""

from __future__ import annotations

from kbroker.coordinator.group.consumer import ConsumerGroup
from kbroker.coordinator.step import Step, Timer

SESSION, REBALANCE = "consumer-session", "consumer-rebalance"
JOIN, SYNC = "consumer-join", "consumer-sync"
KINDS = (SESSION, REBALANCE, JOIN, SYNC)


def timer(kind: str, group: ConsumerGroup, member_id: str) -> Timer:
    return Timer(kind, group.group_id, member_id)


def disarm(step: Step, group: ConsumerGroup, member_id: str) -> None:
    """The member is gone, or goes on as another."""
    group.awaited.discard(member_id)
    for kind in KINDS:
        step.disarm(timer(kind, group, member_id))
