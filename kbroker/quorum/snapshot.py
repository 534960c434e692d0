"""Snapshots of the metadata log: the cluster image at an offset as a file of batches, in Apache's format.

    <end offset, 20 digits>-<epoch, 10 digits>.checkpoint      control header, records, control footer
    bootstrap.checkpoint                                       the same; the records a new cluster starts with

A file under another name is being written and is ignored; one without its footer was cut short and is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from kbroker._core.record.records import Record, build_batch
from kbroker.cluster.features import FINALISED
from kbroker.cluster.image import ClusterImage, TopicImage
from kbroker.protocol.codec import encode_metadata_record
from kbroker.protocol.message import Message
from kbroker.protocol.records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from kbroker.quorum.frames import (
    SNAPSHOT_FOOTER,
    SNAPSHOT_HEADER,
    BrokenMetadataError,
    Membership,
    read_batches,
    record_version,
    snapshot_footer_batch,
    snapshot_header_batch,
)
from kbroker.storage.checkpoints import read_small, write_whole
from kbroker.storage.log_dir import BOOTSTRAP

_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_RECORDS_PER_BATCH = 1000
_SNAPSHOT_MAX_BYTES = 1 << 30


class SnapshotId(NamedTuple):
    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"


def find_snapshots(directory: Path) -> list[SnapshotId]:
    """Oldest first."""
    names = (_NAME.fullmatch(path.name) for path in directory.glob("*.checkpoint"))
    return sorted(SnapshotId(int(name[1]), int(name[2])) for name in names if name is not None)


def read_snapshot(path: Path, membership: Membership | None = None) -> list[Message]:
    """Its records; what it says of the voters goes into `membership`."""
    records: list[Message] = []
    kinds: list[int] = []
    expected = 0
    try:
        for batch in read_batches(read_small(path, _SNAPSHOT_MAX_BYTES)):
            if batch.header.base_offset != expected:
                raise BrokenMetadataError(f"its record {expected} is missing")
            expected = batch.header.last_offset + 1
            kinds += batch.control_types
            records += batch.records
            if membership is not None:
                membership.take(batch)
    except BrokenMetadataError as problem:
        raise BrokenMetadataError(f"the snapshot {path} is damaged: {problem}; restore it from a backup") from None
    except OSError as problem:
        raise BrokenMetadataError(f"the snapshot {path} cannot be read: {problem.strerror}") from None
    if kinds[:1] != [SNAPSHOT_HEADER] or kinds[-1:] != [SNAPSHOT_FOOTER]:
        raise BrokenMetadataError(f"the snapshot {path} was cut short; restore it from a backup")
    return records


def write_snapshot(
    path: Path,
    records: Iterable[Message],
    membership: Membership,
    *,
    epoch: int,
    last_timestamp: int,
    now_ms: int,
) -> None:
    """Durable, and under its own name only when whole."""
    parts = [snapshot_header_batch(last_timestamp, membership, now_ms)]
    offset = 3 if membership.is_dynamic else 1
    values = [encode_metadata_record(record, record_version(record)) for record in records]
    for start in range(0, len(values), _RECORDS_PER_BATCH):
        chunk = [Record(timestamp=now_ms, value=value) for value in values[start : start + _RECORDS_PER_BATCH]]
        parts.append(build_batch(chunk, base_offset=offset, leader_epoch=epoch))
        offset += len(chunk)
    parts.append(snapshot_footer_batch(now_ms, offset))
    write_whole(path, b"".join(parts))


def write_bootstrap(directory: Path, now_ms: int) -> None:
    """What `kafka-storage format` leaves for the first leader of a new cluster: the levels it starts with."""
    records = [FeatureLevelRecord(name=name, feature_level=level) for name, level in FINALISED.items()]
    write_snapshot(directory / BOOTSTRAP, records, Membership(), epoch=0, last_timestamp=0, now_ms=now_ms)


def image_records(image: ClusterImage) -> Iterable[Message]:
    """The shortest run of records that makes this image: features first, for they say how the rest is read."""
    for name, level in sorted(image.features.items(), key=lambda item: (item[0] != "metadata.version", item[0])):
        yield FeatureLevelRecord(name=name, feature_level=level)
    for broker in image.brokers.values():
        record = RegisterBrokerRecord(
            broker_id=broker.broker_id,
            incarnation_id=broker.incarnation_id,
            broker_epoch=broker.broker_epoch,
            rack=broker.rack,
            fenced=broker.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown,
            log_dirs=list(broker.log_dirs),
            cordoned_log_dirs=None if broker.cordoned_log_dirs is None else list(broker.cordoned_log_dirs),
        )
        record.end_points = [
            RegisterBrokerRecord.BrokerEndpoint(
                name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol
            )
            for one in broker.endpoints
        ]
        record.features = [
            RegisterBrokerRecord.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in broker.features.items()
        ]
        yield record
    yield from image.controllers.values()
    for topic in image.topics.values():
        yield from _topic_records(topic)
    for (resource_type, resource_name), values in image.configs.items():
        for name, value in values.items():
            yield ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
    if image.producer_ids is not None:
        yield image.producer_ids
    yield from image.others.values()


def _topic_records(topic: TopicImage) -> Iterable[Message]:
    yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
    for index, partition in sorted(topic.partitions.items()):
        yield PartitionRecord(
            partition_id=index,
            topic_id=topic.topic_id,
            replicas=list(partition.replicas),
            isr=list(partition.isr),
            removing_replicas=list(partition.removing_replicas),
            adding_replicas=list(partition.adding_replicas),
            leader=partition.leader,
            leader_recovery_state=partition.leader_recovery_state,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            directories=list(partition.directories),
            eligible_leader_replicas=list(partition.elr) or None,
            last_known_elr=list(partition.last_known_elr) or None,
        )
