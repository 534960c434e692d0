"""How assignments and the records of consumer groups stand in transcripts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kbroker.coordinator.group import embedded
from kbroker.coordinator.group.member import State
from kbroker.coordinator.step import Record
from kbroker.protocol.codec import DecodeError

KINDS = {
    "ConsumerGroupMetadataKey": "epoch",
    "ConsumerGroupPartitionMetadataKey": "partitions",
    "ConsumerGroupMemberMetadataKey": "member",
    "ConsumerGroupTargetAssignmentMetadataKey": "target-epoch",
    "ConsumerGroupTargetAssignmentMemberKey": "target",
    "ConsumerGroupCurrentMemberAssignmentKey": "current",
    "ConsumerGroupRegularExpressionKey": "expression",
}


def shown(places: Mapping[bytes, Iterable[int]]) -> str:
    """Topic ids of a stage begin with the name."""
    parts = [f"{one[:1].decode()}:{','.join(map(str, sorted(held)))}" for one, held in sorted(places.items())]
    return " ".join(parts) or "nothing"


def shown_assignment(data: bytes) -> str:
    if not data.startswith(b"\x00"):
        return repr(data.decode())
    try:
        parts = embedded.assignment_of(data).assigned_partitions
    except DecodeError:
        return repr(data)
    return " ".join(f"{one.topic}:{','.join(map(str, one.partitions))}" for one in parts) or "nothing"


def consumer_record(record: Record) -> str:
    key: Any = record.key
    kind = KINDS[type(key).__name__]
    who = getattr(key, "member_id", "")
    return " ".join(word for word in ("record", kind, who, _value(kind, record.value)) if word)


def _value(kind: str, value: Any) -> str:
    if value is None:
        return "gone"
    if kind == "epoch":
        return str(value.epoch)
    if kind == "target-epoch":
        return str(value.assignment_epoch)
    if kind == "member":
        return "classic" if value.classic_member_metadata is not None else "consumer"
    if kind == "target":
        return shown({one.topic_id: one.partitions for one in value.topic_partitions})
    assigned = {one.topic_id: one.partitions for one in value.assigned_partitions}
    revoking = {one.topic_id: one.partitions for one in value.partitions_pending_revocation}
    words = [f"epoch={value.member_epoch}", State(value.state).name, shown(assigned)]
    return " ".join([*words, *(["gives up", shown(revoking)] if revoking else [])])
