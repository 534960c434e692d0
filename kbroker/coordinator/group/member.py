"""A member of a consumer group: what it asked for, and what it has. A value: whoever changes it makes another."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from kbroker.protocol.records import ConsumerGroupMemberMetadataValue

ClassicMetadata = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata
ClassicProtocol = ConsumerGroupMemberMetadataValue.ClassicProtocol

Assignment = Mapping[bytes, frozenset[int]]  # topic id -> partitions
Owned = Mapping[bytes, Mapping[int, int]]  # topic id -> partition -> the epoch in which it was assigned
NOTHING: Assignment = {}
NOTHING_OWNED: Owned = {}

JOINING = 0
LEAVING = -1
LEAVING_FOR_A_WHILE = -2  # a static member that means to come back


class State(IntEnum):
    """Where a member is on its way to its target.

    STABLE                 it has what its epoch gives it
    UNREVOKED_PARTITIONS   it must give some up and has not yet said that it did
    UNRELEASED_PARTITIONS  it waits for what others have not given up
    UNKNOWN                written by a later Kafka: the member must start anew
    """

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class Member(NamedTuple):
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    expression: str = ""  # of topic names, in RE2's syntax; "": none
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMetadata | None = None  # it speaks the classic protocol
    epoch: int = 0
    previous_epoch: int = -1
    state: State = State.STABLE
    assigned: Owned = NOTHING_OWNED
    revoking: Owned = NOTHING_OWNED

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state == State.STABLE and self.epoch == target_epoch

    def assigned_epoch(self, topic_id: bytes, partition: int) -> int | None:
        """Since when the partition is this member's; None: it is not."""
        for owned in (self.assigned, self.revoking):
            epoch = owned.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None

    def moved(self, epoch: int, state: State, assigned: Owned, revoking: Owned = NOTHING_OWNED) -> Member:
        return self._replace(epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned, revoking=revoking)


class Expression(NamedTuple):
    """A regular expression that members are subscribed to, and the topics it matched when it was last tried."""

    topics: frozenset[str]
    version: int = 0  # of the cluster's metadata
    timestamp: int = 0
