"""What a run of applied records changed, by name: the edge looks the new state up in the image."""

from __future__ import annotations


class Delta:
    __slots__ = ("brokers", "configs", "deleted_topics", "features", "producer_ids", "topics")

    def __init__(self) -> None:
        self.topics: set[bytes] = set()  # ids: created, or a partition of it changed
        self.deleted_topics: dict[bytes, str] = {}  # id -> name
        self.configs: dict[tuple[int, str], set[str]] = {}  # (resource type, resource name) -> settings
        self.brokers = False
        self.features = False
        self.producer_ids = False

    def __bool__(self) -> bool:
        named = self.topics or self.deleted_topics or self.configs
        return bool(named or self.brokers or self.features or self.producer_ids)
