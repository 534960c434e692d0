"""What every kind of group is asked, whatever its protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kbroker.coordinator.step import Record
from kbroker.errors import KafkaError

PartitionCheck = Callable[[bytes, int], KafkaError | None]
"""(topic id, partition) -> why this member may not commit it."""


class Group(Protocol):
    group_id: str

    @property
    def kind(self) -> str:
        """`classic` or `consumer`, as ListGroups tells it."""
        ...

    @property
    def state_name(self) -> str: ...
    @property
    def is_empty(self) -> bool:
        """It has no members."""
        ...

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, api_version: int, *, transactional: bool = False
    ) -> PartitionCheck | None:
        """KafkaError unless this member may commit in its generation or member epoch. -1 and no id: no member.

        In a transaction, older clients do not say who they are, and are believed (KIP-447).

        None: it may commit what it likes. A check: each partition has to pass it.
        """
        ...

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """KafkaError unless this member may read committed offsets."""
        ...

    def check_delete(self) -> None:
        """KafkaError unless the group may be deleted."""
        ...

    def is_subscribed(self, topic: str) -> bool:
        """A member consumes the topic: its offsets neither expire nor may be deleted."""
        ...

    def idle_since_ms(self, committed_ms: int) -> int | None:
        """From when on an offset committed at `committed_ms` counts as unused; None: it does not expire now."""
        ...

    def tombstones(self) -> list[Record]:
        """The records that end the group itself; its offsets have their own."""
        ...
