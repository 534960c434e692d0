"""What a shard is told of the world around it: who asks, and which topics there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol


class Caller(NamedTuple):
    api_version: int
    client_id: str = ""
    client_host: str = ""


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
