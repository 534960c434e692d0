"""Batches of the metadata log: records of the cluster image, and the quorum's own control records between them.

control record key     int16 version 0, int16 type
type 2  LeaderChange   3  SnapshotHeader   4  SnapshotFooter   5  KRaftVersion   6  KRaftVoters
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kbroker._core.record.records import BatchHeader, BrokenRecords, Record, batches, build_batch, iterate
from kbroker.protocol.codec import DecodeError, decode, decode_metadata_record, encode, encode_metadata_record
from kbroker.protocol.message import ZERO_UUID, Message
from kbroker.protocol.records import (
    BrokerRegistrationChangeRecord,
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from kbroker.quorum.core import LeaderChange

LEADER_CHANGE, SNAPSHOT_HEADER, SNAPSHOT_FOOTER, KRAFT_VERSION, KRAFT_VOTERS = 2, 3, 4, 5, 6


class BrokenMetadataError(ValueError):
    """A metadata log or snapshot that cannot be understood: going on would lose or invent state."""


class Batch(NamedTuple):
    header: BatchHeader
    records: list[Message]  # of the cluster image; empty for a control batch
    control: tuple[tuple[int, bytes], ...] = ()  # (type, value)

    @property
    def control_types(self) -> list[int]:
        return [kind for kind, _ in self.control]


class Membership:
    """What control records say of the voters: nothing when they are static, else who they are (KIP-853)."""

    __slots__ = ("kraft_version", "voters")

    def __init__(self, kraft_version: int = 0, voters: VotersRecord | None = None) -> None:
        self.kraft_version = kraft_version
        self.voters = voters

    def take(self, batch: Batch) -> None:
        try:
            for kind, value in batch.control:
                if kind == KRAFT_VERSION:
                    self.kraft_version = decode(KRaftVersionRecord, 0, value)[0].kraft_version
                elif kind == KRAFT_VOTERS:
                    self.voters = decode(VotersRecord, 0, value)[0]
        except DecodeError as problem:
            raise BrokenMetadataError(str(problem)) from None

    @property
    def is_dynamic(self) -> bool:
        return self.kraft_version > 0

    @property
    def voter_ids(self) -> list[int]:
        return [] if self.voters is None else [voter.voter_id for voter in self.voters.voters]

    def directory_of(self, voter_id: int) -> bytes:
        known = [] if self.voters is None else self.voters.voters
        return next((voter.voter_directory_id for voter in known if voter.voter_id == voter_id), ZERO_UUID)


def metadata_batch(records: Sequence[Message], now_ms: int) -> bytes:
    """One batch, so that a crash keeps all of a decision or nothing of it. Offsets are stamped by the log."""
    return build_batch(
        Record(timestamp=now_ms, value=encode_metadata_record(one, record_version(one))) for one in records
    )


def record_version(record: Message) -> int:
    """The lowest version that says everything, where Kafka chooses so; else the newest of metadata.version 30."""
    if isinstance(record, BrokerRegistrationChangeRecord):
        if record.cordoned_log_dirs is not None:
            return 3
        if record.log_dirs:
            return 2
        return 1 if record.in_controlled_shutdown else 0
    return record.VERSIONS[1]


def leader_change_batch(change: LeaderChange, now_ms: int) -> bytes:
    """Version 0 even where voters are dynamic: Kafka 4.3 writes no other, and reads version 1 as if it were 0."""
    message = LeaderChangeMessage(version=0, leader_id=change.leader_id)
    message.voters = [LeaderChangeMessage.Voter(voter_id=voter) for voter in change.voters]
    message.granting_voters = [LeaderChangeMessage.Voter(voter_id=voter) for voter in change.granting_voters]
    return control_batch([(LEADER_CHANGE, encode(message, 0))], now_ms)


def snapshot_header_batch(last_contained_timestamp: int, membership: Membership, now_ms: int) -> bytes:
    """Dynamic voters stand behind the header: whoever starts from the snapshot must know them."""
    header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_contained_timestamp)
    control = [(SNAPSHOT_HEADER, encode(header, 0))]
    if membership.is_dynamic and membership.voters is not None:
        control.append((KRAFT_VERSION, encode(KRaftVersionRecord(kraft_version=membership.kraft_version), 0)))
        control.append((KRAFT_VOTERS, encode(membership.voters, 0)))
    return control_batch(control, now_ms)


def snapshot_footer_batch(now_ms: int, base_offset: int) -> bytes:
    return control_batch([(SNAPSHOT_FOOTER, encode(SnapshotFooterRecord(version=0), 0))], now_ms, base_offset)


def control_batch(control: Sequence[tuple[int, bytes]], now_ms: int, base_offset: int = 0) -> bytes:
    records = [
        Record(timestamp=now_ms, key=b"\x00\x00" + kind.to_bytes(2, "big"), value=value) for kind, value in control
    ]
    return build_batch(records, base_offset=base_offset, control=True, leader_epoch=0)


def read_batches(data: bytes) -> Iterator[Batch]:
    """Each batch with its records decoded. BrokenMetadataError says where it stopped making sense."""
    try:
        for header in batches(data):
            raw = iterate(data[header.position : header.position + header.size])
            if header.control:
                yield Batch(header, [], tuple((_control_type(record.key), record.value or b"") for record in raw))
            else:
                yield Batch(header, [decode_metadata_record(record.value or b"")[0] for record in raw])
    except (BrokenRecords, DecodeError) as problem:
        raise BrokenMetadataError(str(problem)) from None


def _control_type(key: bytes | None) -> int:
    if key is None or len(key) < 4:
        raise BrokenMetadataError("a control record has no type")
    return int.from_bytes(key[2:4], "big")
