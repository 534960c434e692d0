"""Records of the coordinators' topics as bytes, in the versions that Kafka 4.3 writes."""

from __future__ import annotations

from kbroker.coordinator.step import Record
from kbroker.protocol.codec import (
    decode_coordinator_key,
    decode_coordinator_value,
    encode_coordinator_key,
    encode_coordinator_value,
)
from kbroker.protocol.message import Message
from kbroker.protocol.records import GroupMetadataValue, OffsetCommitValue, TransactionLogValue

GROUP, TRANSACTION = "group", "transaction"


def encode_record(record: Record) -> tuple[bytes, bytes | None]:
    value = record.value
    return (
        encode_coordinator_key(record.key),
        None if value is None else encode_coordinator_value(value, value_version(value)),
    )


def value_version(value: Message) -> int:
    if isinstance(value, OffsetCommitValue):
        return 4 if value.expire_timestamp < 0 else 1  # version 1 alone can say when an offset shall expire
    if isinstance(value, GroupMetadataValue):
        return 3
    if isinstance(value, TransactionLogValue):
        return 0 if value.previous_producer_id < 0 else 1  # below transaction.version 1 nobody is told of it
    return value.VERSIONS[1]


def decode_record(coordinator: str, key: bytes, value: bytes | None) -> Record | None:
    """None: a kind from the future, which an older broker passes over."""
    decoded = decode_coordinator_key(coordinator, key)
    if decoded is None:
        return None
    return Record(decoded, decode_coordinator_value(coordinator, decoded, value))
