"""The order in which Java's hash tables name members and topics.

Kafka hands out partitions in that order. It is as good as any other, and it makes our assignments equal to Kafka's, so
that the two can be compared and a group that moves between them stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import lru_cache
from typing import TypeVar

from kbroker.coordinator.placement import java_hash

T = TypeVar("T", str, bytes)
_FIRST_BUCKETS = 16
_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio


@lru_cache(maxsize=65_536)
def _text_hash(text: str) -> int:
    return java_hash(text) & 0xFFFFFFFF


def _uuid_hash(topic_id: bytes) -> int:
    both = int.from_bytes(topic_id[:8], "big") ^ int.from_bytes(topic_id[8:], "big")
    return (both >> 32 ^ both) & 0xFFFFFFFF


def member_order(member_ids: Collection[str]) -> list[str]:
    return _ordered(member_ids, _text_hash)


def record_order(member_ids: Collection[str]) -> list[str]:
    """The order in which Kafka goes through a group to write all of it: another table of its, and another hash."""
    bits = 1
    while len(member_ids) * 3 > 4 << bits:
        bits += 1

    def place(member_id: str) -> int:
        return (java_hash(member_id) * _GOLDEN & 0xFFFFFFFFFFFFFFFF) >> (64 - bits)

    order = member_order(member_ids)
    order.reverse()  # within a bucket, the youngest first
    return sorted(order, key=place)


def topic_order(topic_ids: Collection[bytes]) -> list[bytes]:
    if len(topic_ids) < 2:
        return list(topic_ids)
    return _ordered(topic_ids, _uuid_hash)


def _ordered(keys: Collection[T], hash_of: Callable[[T], int]) -> list[T]:
    """By bucket. Within one Java goes by age; here the keys themselves decide, so that a reload changes nothing."""
    buckets = _FIRST_BUCKETS
    while len(keys) * 4 > buckets * 3:
        buckets *= 2
    mask = buckets - 1

    def place(key: T) -> tuple[int, T]:
        hashed = hash_of(key)
        return (hashed ^ hashed >> 16) & mask, key

    return sorted(keys, key=place)
