"""What a run of applied records changed, by name: the edge looks the new state up in the image."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Delta:
    topics: set[bytes] = field(default_factory=set)  # ids: created, or a partition of it changed
    deleted_topics: dict[bytes, str] = field(default_factory=dict)  # id -> name
    configs: set[tuple[int, str]] = field(default_factory=set)  # (resource type, resource name)
    brokers: bool = False
    features: bool = False
    producer_ids: bool = False

    def __bool__(self) -> bool:
        named = self.topics or self.deleted_topics or self.configs
        return bool(named or self.brokers or self.features or self.producer_ids)
