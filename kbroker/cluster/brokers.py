"""Brokers come, go, are fenced and unfenced, and the partitions they lead follow (KIP-631, KIP-966).

A registration is fenced at first. A new incarnation of a broker has lost its leaderships: they are taken from it before
it registers and given back when it is unfenced, so every restart is a new leader epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from kbroker.cluster.image import NO_LEADER, BrokerImage, ClusterImage, Endpoint, PartitionImage
from kbroker.errors import DuplicateBrokerRegistrationError, InconsistentClusterIdError
from kbroker.protocol.message import Message
from kbroker.protocol.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)


class Registration(NamedTuple):
    """What a node says of itself when it starts."""

    node_id: int
    incarnation_id: bytes
    endpoints: Sequence[Endpoint]
    features: dict[str, tuple[int, int]]
    rack: str | None
    log_dirs: Sequence[bytes]
    cluster_id: str
    previous_broker_epoch: int = -1  # from the clean-shutdown marker; -1: the last stop was not clean


def register_controller(registration: Registration, endpoints: Sequence[Endpoint]) -> RegisterControllerRecord:
    record = RegisterControllerRecord(controller_id=registration.node_id, incarnation_id=registration.incarnation_id)
    record.end_points = [
        RegisterControllerRecord.ControllerEndpoint(
            name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol
        )
        for one in endpoints
    ]
    record.features = [
        RegisterControllerRecord.ControllerFeature(
            name=name, min_supported_version=lowest, max_supported_version=highest
        )
        for name, (lowest, highest) in registration.features.items()
    ]
    return record


def register_broker(
    image: ClusterImage, registration: Registration, next_offset: int, cluster_id: str, *, alive: bool = False
) -> tuple[list[Message], int]:
    """The records of a registration, and the broker epoch it gets: the offset of its own record.

    `alive` says that an earlier incarnation still heartbeats: two brokers must not share an id.
    """
    if registration.cluster_id != cluster_id:
        raise InconsistentClusterIdError(
            f"Expected cluster ID {cluster_id}, but got cluster ID {registration.cluster_id}"
        )
    records: list[Message] = []
    known = image.brokers.get(registration.node_id)
    if known is not None and known.incarnation_id != registration.incarnation_id:
        if alive:
            raise DuplicateBrokerRegistrationError(
                f"Another broker is registered with that broker id, and is alive: {registration.node_id}."
            )
        clean = registration.previous_broker_epoch == known.broker_epoch
        records += leave(image, known.broker_id, clean=clean)
    broker_epoch = next_offset + len(records)
    record = RegisterBrokerRecord(
        broker_id=registration.node_id,
        incarnation_id=registration.incarnation_id,
        broker_epoch=broker_epoch,
        rack=registration.rack,
        fenced=True,
        log_dirs=list(registration.log_dirs),
    )
    record.end_points = [
        RegisterBrokerRecord.BrokerEndpoint(
            name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol
        )
        for one in registration.endpoints
    ]
    record.features = [
        RegisterBrokerRecord.BrokerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
        for name, (lowest, highest) in registration.features.items()
    ]
    return [*records, record], broker_epoch


def unfence(image: ClusterImage, broker_id: int, broker_epoch: int) -> list[Message]:
    """The broker is up to date: it may lead, and leads what has waited for it."""
    records: list[Message] = [BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_epoch, fenced=-1)]
    for topic_id, index, partition in _of_broker(image, broker_id):
        if partition.leader == NO_LEADER and _may_lead(partition, broker_id) and _holds(image, partition, broker_id):
            records.append(_elected(topic_id, index, partition, broker_id))
    return records


def begin_controlled_shutdown(image: ClusterImage, broker_id: int, broker_epoch: int) -> list[Message]:
    """The broker wants to stop: it leads nothing more. What only it can lead waits without a leader."""
    change = BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_epoch, in_controlled_shutdown=1)
    return [change, *leave(image, broker_id, clean=True)]


def fence(broker_id: int, broker_epoch: int) -> list[Message]:
    return [BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_epoch, fenced=1)]


def leave(image: ClusterImage, broker_id: int, *, clean: bool) -> list[Message]:
    """Takes a broker out of leadership and, where others remain, out of the in-sync replicas.

    The last in-sync replica stays one, for without it the partition could never have a leader again. With eligible
    leader replicas (KIP-966) it moves there instead; after an unclean stop it may have lost records, so it is kept only
    as the last known leader.
    """
    changes = (
        _without(image, broker_id, PartitionChangeRecord(partition_id=index, topic_id=topic_id), one, clean=clean)
        for topic_id, index, one in _of_broker(image, broker_id)
    )
    return [change for change in changes if _says_something(change)]


def _without(
    image: ClusterImage, broker_id: int, change: PartitionChangeRecord, partition: PartitionImage, *, clean: bool
) -> PartitionChangeRecord:
    """Fills in what becomes of one partition when a broker's replica is not there any more."""
    remaining = tuple(one for one in partition.isr if one != broker_id)
    heirs = [
        one
        for one in partition.replicas
        if one in remaining and _is_active(image, one) and _holds(image, partition, one)
    ]
    if partition.leader == broker_id:
        change.leader = heirs[0] if heirs else NO_LEADER
    if remaining == partition.isr:
        pass
    elif remaining:
        change.isr = list(remaining)
    elif image.elr_enabled:
        change.isr = []
        change.eligible_leader_replicas = [*partition.elr, broker_id] if clean else list(partition.elr)
        change.last_known_elr = [broker_id]
    return change


def _says_something(change: PartitionChangeRecord) -> bool:
    return change != PartitionChangeRecord(partition_id=change.partition_id, topic_id=change.topic_id)


def lose_directory(
    image: ClusterImage, broker_id: int, broker_epoch: int, directory_id: bytes, lost: Collection[tuple[str, int]]
) -> list[Message]:
    """A broker's directory is offline: it leads nothing there until it registers it again (KIP-858).

    `lost` names partitions that lie there, (topic, partition): of some the assignment may not have been told yet.
    """
    broker = image.brokers[broker_id]
    records: list[Message] = []
    if directory_id in broker.log_dirs:
        left = [one for one in broker.log_dirs if one != directory_id]
        records.append(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_epoch, log_dirs=left))
    for topic, index, partition in image.partitions():
        if broker_id not in partition.replicas:
            continue
        assigned = partition.directory_of(broker_id)
        if assigned != directory_id and (topic.name, index) not in lost:
            continue
        change = PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id)
        if assigned != directory_id:
            at = partition.replicas.index(broker_id)
            change.directories = [*partition.directories[:at], directory_id, *partition.directories[at + 1 :]]
        change = _without(image, broker_id, change, partition, clean=True)
        if _says_something(change):
            records.append(change)
    return records


def assign_directories(
    image: ClusterImage, broker_id: int, assigned: Mapping[tuple[bytes, int], bytes]
) -> list[Message]:
    """Where a broker of several directories has put partitions, (topic id, partition) -> directory id (KIP-858)."""
    records: list[Message] = []
    for (topic_id, index), directory_id in assigned.items():
        topic = image.topics_by_id.get(topic_id)
        partition = topic.partitions.get(index) if topic is not None else None
        if partition is None or broker_id not in partition.replicas:
            continue  # deleted meanwhile
        directories = list(partition.directories)
        at = partition.replicas.index(broker_id)
        if directories[at] != directory_id:
            directories[at] = directory_id
            records.append(PartitionChangeRecord(partition_id=index, topic_id=topic_id, directories=directories))
    return records


def _may_lead(partition: PartitionImage, broker_id: int) -> bool:
    """In sync, eligible, or, when nobody is either, the last one known to have led (KIP-966)."""
    if broker_id in (*partition.isr, *partition.elr):
        return True
    return not partition.isr and not partition.elr and partition.last_known_elr == (broker_id,)


def _elected(topic_id: bytes, index: int, partition: PartitionImage, broker_id: int) -> PartitionChangeRecord:
    change = PartitionChangeRecord(partition_id=index, topic_id=topic_id, leader=broker_id)
    if broker_id not in partition.isr:
        change.isr = [broker_id]
        change.eligible_leader_replicas = [one for one in partition.elr if one != broker_id]
        change.last_known_elr = []
    return change


def _of_broker(image: ClusterImage, broker_id: int) -> Iterator[tuple[bytes, int, PartitionImage]]:
    for topic, index, partition in image.partitions():
        if broker_id in partition.replicas:
            yield topic.topic_id, index, partition


def _holds(image: ClusterImage, partition: PartitionImage, broker_id: int) -> bool:
    """Whether the directory of a broker's replica is there, as far as it has told."""
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.has_directory(partition.directory_of(broker_id))


def _is_active(image: ClusterImage, broker_id: int) -> bool:
    broker: BrokerImage | None = image.brokers.get(broker_id)
    return broker is not None and broker.active
