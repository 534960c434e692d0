"""What consumers of the classic protocol tell each other through their group: a subscription when they join, and the
assignment that one of them makes. Each begins with its version; of a later one the part that is known here counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kbroker.coordinator.group.facts import Topics
from kbroker.coordinator.group.java_order import topic_order
from kbroker.protocol.codec import DecodeError, decode, encode
from kbroker.protocol.records import ConsumerProtocolAssignment, ConsumerProtocolSubscription

LATEST = 3
_AT = 2  # where the body begins


def version_of(data: bytes) -> int:
    """DecodeError if the bytes cannot be a consumer's."""
    version = int.from_bytes(data[:_AT], "big", signed=True)
    if len(data) < _AT or version < 0:
        raise DecodeError("there is none", "version", 0)
    return min(version, LATEST)


def subscription_of(data: bytes) -> ConsumerProtocolSubscription:
    return decode(ConsumerProtocolSubscription, version_of(data), data, _AT)[0]


def assignment_of(data: bytes) -> ConsumerProtocolAssignment:
    return decode(ConsumerProtocolAssignment, version_of(data), data, _AT)[0]


def assignment_bytes(assigned: Mapping[bytes, Iterable[int]], topics: Topics, version: int) -> bytes:
    """The partitions of topics that exist, by their names."""
    named = []
    for topic_id in topic_order(assigned.keys()):
        topic = topics.find_id(topic_id)
        if topic is not None:
            partitions = sorted(assigned[topic_id])
            named.append(ConsumerProtocolAssignment.TopicPartition(topic=topic.name, partitions=partitions))
    return encode(ConsumerProtocolAssignment(assigned_partitions=named), version, version.to_bytes(_AT, "big"))


def by_id(
    named: Iterable[ConsumerProtocolAssignment.TopicPartition | ConsumerProtocolSubscription.TopicPartition],
    topics: Topics,
) -> dict[bytes, list[int]]:
    """The same partitions, of topics that exist, by id."""
    found: dict[bytes, list[int]] = {}
    for one in named:
        topic = topics.find(one.topic)
        if topic is not None:
            found.setdefault(topic.topic_id, []).extend(one.partitions)
    return found
