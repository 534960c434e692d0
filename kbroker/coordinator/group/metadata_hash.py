"""What a group knows of its topics, as one number: it changes when one is made, deleted, grown or moved to other racks.

The number is Kafka's (KIP-1101), so that a group does not rebalance because another broker has opened its log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kbroker.coordinator.group.facts import TopicFacts, Topics
from kbroker.coordinator.group.xxh3 import xxh3_64

_VERSION = b"\0"


def _int32(value: int) -> bytes:
    return value.to_bytes(4, "little")


def _text(value: str) -> bytes:
    units = value.encode("utf-16-le", "surrogatepass")
    return units + _int32(len(units) // 2)


def topic_hash(topic: TopicFacts, racks: Sequence[Iterable[str]]) -> int:
    """Of a topic and the racks that each partition's replicas are in."""
    parts = [_VERSION, topic.topic_id[7::-1], topic.topic_id[:7:-1], _text(topic.name), _int32(topic.partitions)]
    for partition in range(topic.partitions):
        parts.append(_int32(partition))
        for rack in sorted(racks[partition]):
            text = _text(rack)
            parts += [text[-4:], text]
    return xxh3_64(b"".join(parts))


class MetadataHashes:
    """A topic's hash is kept until the topic changes."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._kept: dict[str, int] = {}

    def of(self, names: Iterable[str]) -> int:
        """Of those among them that exist; 0: none does. Signed, as records carry it."""
        hashes = [found for name in sorted(names) if (found := self._of_topic(name)) is not None]
        if not hashes:
            return 0
        value = xxh3_64(b"".join(one.to_bytes(8, "little") for one in hashes))
        return value - (1 << 64) if value >> 63 else value

    def forget(self, name: str) -> None:
        self._kept.pop(name, None)

    def _of_topic(self, name: str) -> int | None:
        kept = self._kept.get(name)
        if kept is None:
            topic = self._topics.find(name)
            if topic is None:
                return None
            kept = self._kept[name] = topic_hash(topic, self._topics.racks(name))
        return kept
