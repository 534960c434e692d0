"""What a shard is told of the world around it: who asks, and which topics there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol


class Caller(NamedTuple):
    api_version: int
    client_id: str = ""
    client_host: str = ""


class Beating(Protocol):
    """What the coordinator looks at in a Heartbeat, however it was read."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None


class Committing(Protocol):
    """And in an OffsetCommit, besides its offsets."""

    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None


class TopicFacts(NamedTuple):
    name: str
    topic_id: bytes
    partitions: int


class Topics(Protocol):
    """The topics of the committed cluster image."""

    def find(self, name: str) -> TopicFacts | None: ...
    def find_id(self, topic_id: bytes) -> TopicFacts | None: ...
    def names(self) -> Iterable[str]: ...
    def racks(self, name: str) -> Sequence[Sequence[str]]:
        """Of each partition of a topic that exists: the racks its replicas are in, as far as they are known."""
        ...

    def version(self) -> int:
        """Of the image: it rises with every change."""
        ...
