"""What an assignor is told and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kbroker.coordinator.group.member import NOTHING, Assignment


class Wish(NamedTuple):
    """One member: what it subscribes to and what its last target was."""

    topics: frozenset[bytes]
    held: Assignment = NOTHING
    instance_id: str | None = None


Partitions = Mapping[bytes, int]  # topic id -> how many; only topics that exist
Assignor = Callable[[Mapping[str, Wish], Partitions], dict[str, Assignment]]
"""Members by id -> what each shall have. Every partition of a topic with subscribers gets exactly one of them."""
