"""Which partition of an internal topic is responsible for a group or a transactional id, as Java counts it."""

from __future__ import annotations

from functools import lru_cache

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
_INT_MIN = -(1 << 31)
KEPT_MAX = 4_096  # hashes that are remembered: a group is asked for over and over
KEPT_CHARS_MAX = 256


def java_hash(text: str) -> int:
    """String.hashCode: over UTF-16 units, in 32 bits with a sign."""
    value = 0
    if text.isascii():
        for unit in text.encode():
            value = (31 * value + unit) & 0xFFFFFFFF
        return value - (1 << 32) if value >= 1 << 31 else value
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


@lru_cache(KEPT_MAX)
def _kept_hash(text: str) -> int:
    return java_hash(text)


def partition_for(key: str, partitions: int) -> int:
    """abs(hash) modulo the partitions; the one number without an absolute value counts as 0."""
    hashed = _kept_hash(key) if len(key) <= KEPT_CHARS_MAX else java_hash(key)
    return 0 if hashed == _INT_MIN else abs(hashed) % partitions
