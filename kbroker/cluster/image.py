"""The cluster as its metadata log tells it: features, brokers, topics, settings, producer ids.

`apply(record)` alone changes an image, live and on reload, so a restart, a snapshot and a new leader all arrive at the
same state. Two images exist in a controller: the one readers see holds what is committed, the other also what has been
appended, so that the next decision takes the last one into account (see quorum/driver.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from kbroker.cluster.delta import Delta
from kbroker.protocol.message import ZERO_UUID, Message
from kbroker.protocol.records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)

TOPIC_RESOURCE = 2  # ConfigResource types, as ConfigRecord carries them
BROKER_RESOURCE = 4
GROUP_RESOURCE = 32

NO_LEADER = -1
NO_LEADER_CHANGE = -2


def is_assigned(directory_id: bytes) -> bool:
    """Whether it names a directory. Those below 100 say something else: not told yet, lost, migrating (KIP-858)."""
    return int.from_bytes(directory_id, "big") >= 100


class PartitionImage(NamedTuple):
    """One partition. `leader_epoch` rises with each change of leader, `partition_epoch` with each change."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[bytes, ...] = ()  # one per replica, in the same order
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    elr: tuple[int, ...] = ()  # eligible leader replicas (KIP-966)
    last_known_elr: tuple[int, ...] = ()

    def directory_of(self, broker_id: int) -> bytes:
        """The id of the directory that holds a broker's replica; zeros when nobody has told."""
        at = self.replicas.index(broker_id)
        return self.directories[at] if at < len(self.directories) else ZERO_UUID


class TopicImage(NamedTuple):
    name: str
    topic_id: bytes
    partitions: dict[int, PartitionImage]


class Endpoint(NamedTuple):
    name: str
    host: str
    port: int
    security_protocol: int


class BrokerImage(NamedTuple):
    """A registered broker. Its epoch is the offset of its registration; a fenced one leads nothing."""

    broker_id: int
    broker_epoch: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: dict[str, tuple[int, int]]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[bytes, ...]
    cordoned_log_dirs: tuple[bytes, ...] | None = None

    @property
    def active(self) -> bool:
        return not self.fenced and not self.in_controlled_shutdown

    def has_directory(self, directory_id: bytes) -> bool:
        """Whether a replica assigned there can be served; one that is assigned nowhere yet can (KIP-858)."""
        return directory_id in self.log_dirs or not is_assigned(directory_id)

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((one for one in self.endpoints if one.name == listener), None)


class ClusterImage:
    def __init__(self) -> None:
        self.features: dict[str, int] = {}
        self.brokers: dict[int, BrokerImage] = {}
        self.controllers: dict[int, RegisterControllerRecord] = {}
        self.topics: dict[str, TopicImage] = {}
        self.topics_by_id: dict[bytes, TopicImage] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.next_producer_id = 0
        self.producer_ids: ProducerIdsRecord | None = None
        # Kept whole for the rooms that will read them, and so that a snapshot loses nothing: by what identifies them.
        self.others: dict[tuple[object, ...], Message] = {}
        self._transaction: list[Message] | None = None

    def copy(self) -> ClusterImage:
        """An image that changes on its own. What never changes in place is shared."""
        twin = ClusterImage()
        twin.features = dict(self.features)
        twin.brokers = dict(self.brokers)
        twin.controllers = dict(self.controllers)
        for name, topic in self.topics.items():
            twin.topics[name] = TopicImage(name, topic.topic_id, dict(topic.partitions))
            twin.topics_by_id[topic.topic_id] = twin.topics[name]
        twin.configs = {resource: dict(values) for resource, values in self.configs.items()}
        twin.next_producer_id = self.next_producer_id
        twin.producer_ids = self.producer_ids
        twin.others = dict(self.others)
        twin._transaction = None if self._transaction is None else list(self._transaction)
        return twin

    @property
    def metadata_version(self) -> int:
        return self.features.get("metadata.version", 0)

    @property
    def elr_enabled(self) -> bool:
        return self.features.get("eligible.leader.replicas.version", 0) > 0

    @property
    def in_transaction(self) -> bool:
        """Whether records of an open metadata transaction wait for their end (KIP-868)."""
        return self._transaction is not None

    def topic_configs(self, topic: str) -> dict[str, str]:
        return self.configs.get((TOPIC_RESOURCE, topic), {})

    def broker_configs(self, broker_id: int | None) -> dict[str, str]:
        """Settings changed at run time: of one broker, or with None of all."""
        return self.configs.get((BROKER_RESOURCE, "" if broker_id is None else str(broker_id)), {})

    def partitions(self) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
        for topic in self.topics.values():
            for index, partition in topic.partitions.items():
                yield topic, index, partition

    def apply(self, record: Message, delta: Delta | None = None) -> None:
        """Takes one record in. A record no code here knows is a broken log: the metadata version promises them all."""
        if isinstance(record, BeginTransactionRecord):
            assert self._transaction is None, "a metadata transaction began inside another"
            self._transaction = []
        elif isinstance(record, EndTransactionRecord | AbortTransactionRecord):
            assert self._transaction is not None, "a metadata transaction ended that never began"
            held, self._transaction = self._transaction, None
            if isinstance(record, EndTransactionRecord):
                for each in held:
                    self._take(each, delta if delta is not None else Delta())
        elif self._transaction is not None:
            self._transaction.append(record)
        else:
            self._take(record, delta if delta is not None else Delta())

    def _take(self, record: Message, delta: Delta) -> None:
        take = _TAKERS.get(type(record))
        assert take is not None, f"no room for {type(record).__name__} in the cluster image"
        take(self, record, delta)

    def _take_topic(self, record: TopicRecord, delta: Delta) -> None:
        assert record.name not in self.topics, record.name
        topic = TopicImage(record.name, record.topic_id, {})
        self.topics[record.name] = self.topics_by_id[record.topic_id] = topic
        delta.topics.add(record.topic_id)

    def _take_partition(self, record: PartitionRecord, delta: Delta) -> None:
        self.topics_by_id[record.topic_id].partitions[record.partition_id] = PartitionImage(
            replicas=tuple(record.replicas),
            isr=tuple(record.isr),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            directories=tuple(record.directories),
            adding_replicas=tuple(record.adding_replicas),
            removing_replicas=tuple(record.removing_replicas),
            leader_recovery_state=record.leader_recovery_state,
            elr=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
        )
        delta.topics.add(record.topic_id)

    def _take_partition_change(self, record: PartitionChangeRecord, delta: Delta) -> None:
        topic = self.topics_by_id[record.topic_id]
        topic.partitions[record.partition_id] = changed_partition(topic.partitions[record.partition_id], record)
        delta.topics.add(record.topic_id)

    def _take_remove_topic(self, record: RemoveTopicRecord, delta: Delta) -> None:
        topic = self.topics_by_id.pop(record.topic_id)
        del self.topics[topic.name]
        self.configs.pop((TOPIC_RESOURCE, topic.name), None)
        delta.topics.discard(record.topic_id)
        delta.deleted_topics[record.topic_id] = topic.name

    def _take_config(self, record: ConfigRecord, delta: Delta) -> None:
        resource = (record.resource_type, record.resource_name)
        values = self.configs.setdefault(resource, {})
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if not values:
            del self.configs[resource]
        delta.configs.setdefault(resource, set()).add(record.name)

    def _take_feature(self, record: FeatureLevelRecord, delta: Delta) -> None:
        if record.feature_level:
            self.features[record.name] = record.feature_level
        else:
            self.features.pop(record.name, None)
        delta.features = True

    def _take_register_broker(self, record: RegisterBrokerRecord, delta: Delta) -> None:
        self.brokers[record.broker_id] = BrokerImage(
            broker_id=record.broker_id,
            broker_epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
            features={f.name: (f.min_supported_version, f.max_supported_version) for f in record.features},
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            log_dirs=tuple(record.log_dirs),
            cordoned_log_dirs=None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
        )
        delta.brokers = True

    def _take_unregister_broker(self, record: UnregisterBrokerRecord, delta: Delta) -> None:
        self.brokers.pop(record.broker_id, None)
        delta.brokers = True

    def _take_registration_change(self, record: BrokerRegistrationChangeRecord, delta: Delta) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch)
        if record.fenced:  # -1 unfences, 1 fences, 0 leaves it
            broker = broker._replace(fenced=record.fenced > 0)
        if record.in_controlled_shutdown:
            broker = broker._replace(in_controlled_shutdown=record.in_controlled_shutdown > 0)
        if record.log_dirs:
            broker = broker._replace(log_dirs=tuple(record.log_dirs))
        if record.cordoned_log_dirs is not None:
            broker = broker._replace(cordoned_log_dirs=tuple(record.cordoned_log_dirs))
        self.brokers[record.broker_id] = broker
        delta.brokers = True

    def _take_fence(self, record: FenceBrokerRecord, delta: Delta) -> None:
        self.brokers[record.id] = self._broker(record.id, record.epoch)._replace(fenced=True)
        delta.brokers = True

    def _take_unfence(self, record: UnfenceBrokerRecord, delta: Delta) -> None:
        self.brokers[record.id] = self._broker(record.id, record.epoch)._replace(fenced=False)
        delta.brokers = True

    def _broker(self, broker_id: int, broker_epoch: int) -> BrokerImage:
        broker = self.brokers[broker_id]
        assert broker.broker_epoch == broker_epoch, (broker_id, broker.broker_epoch, broker_epoch)
        return broker

    def _take_register_controller(self, record: RegisterControllerRecord, delta: Delta) -> None:
        self.controllers[record.controller_id] = record

    def _take_producer_ids(self, record: ProducerIdsRecord, delta: Delta) -> None:
        assert record.next_producer_id >= self.next_producer_id, (record.next_producer_id, self.next_producer_id)
        self.next_producer_id = record.next_producer_id
        self.producer_ids = record
        delta.producer_ids = True

    def _take_clear_elr(self, record: ClearElrRecord, delta: Delta) -> None:
        named = [self.topics[record.topic_name]] if record.topic_name else list(self.topics.values())
        for topic in named:
            for index, partition in topic.partitions.items():
                topic.partitions[index] = partition._replace(elr=(), last_known_elr=())
            delta.topics.add(topic.topic_id)

    def _keep(self, record: Message, delta: Delta) -> None:
        self.others[_identity(record)] = record

    def _drop(self, record: Message, delta: Delta) -> None:
        self.others.pop(_identity(record), None)

    def _take_quota(self, record: ClientQuotaRecord, delta: Delta) -> None:
        if record.remove:
            self._drop(record, delta)
        else:
            self._keep(record, delta)

    def _ignore(self, record: Message, delta: Delta) -> None:
        """NoOp, and the ZooKeeper migration that no 4.x cluster has any more."""


def changed_partition(old: PartitionImage, change: PartitionChangeRecord) -> PartitionImage:
    """What a PartitionChangeRecord makes of a partition: absent fields keep their value."""

    def kept(new: list[int] | None, current: tuple[int, ...]) -> tuple[int, ...]:
        return current if new is None else tuple(new)

    moved = change.leader != NO_LEADER_CHANGE
    return PartitionImage(
        replicas=kept(change.replicas, old.replicas),
        isr=kept(change.isr, old.isr),
        leader=change.leader if moved else old.leader,
        leader_epoch=old.leader_epoch + (1 if moved else 0),
        partition_epoch=old.partition_epoch + 1,
        directories=old.directories if change.directories is None else tuple(change.directories),
        adding_replicas=kept(change.adding_replicas, old.adding_replicas),
        removing_replicas=kept(change.removing_replicas, old.removing_replicas),
        leader_recovery_state=(
            old.leader_recovery_state if change.leader_recovery_state < 0 else change.leader_recovery_state
        ),
        elr=kept(change.eligible_leader_replicas, old.elr),
        last_known_elr=kept(change.last_known_elr, old.last_known_elr),
    )


def _identity(record: Message) -> tuple[object, ...]:
    """What a later record must share with an earlier one to replace or remove it."""
    if isinstance(record, AccessControlEntryRecord | RemoveAccessControlEntryRecord):
        return ("acl", record.id)
    if isinstance(record, UserScramCredentialRecord | RemoveUserScramCredentialRecord):
        return ("scram", record.name, record.mechanism)
    if isinstance(record, DelegationTokenRecord | RemoveDelegationTokenRecord):
        return ("token", record.token_id)
    assert isinstance(record, ClientQuotaRecord), record
    return ("quota", tuple((one.entity_type, one.entity_name) for one in record.entity), record.key)


_TAKERS: dict[type[Message], Callable[[ClusterImage, Any, Delta], None]] = {
    TopicRecord: ClusterImage._take_topic,
    PartitionRecord: ClusterImage._take_partition,
    PartitionChangeRecord: ClusterImage._take_partition_change,
    RemoveTopicRecord: ClusterImage._take_remove_topic,
    ConfigRecord: ClusterImage._take_config,
    FeatureLevelRecord: ClusterImage._take_feature,
    RegisterBrokerRecord: ClusterImage._take_register_broker,
    UnregisterBrokerRecord: ClusterImage._take_unregister_broker,
    BrokerRegistrationChangeRecord: ClusterImage._take_registration_change,
    FenceBrokerRecord: ClusterImage._take_fence,
    UnfenceBrokerRecord: ClusterImage._take_unfence,
    RegisterControllerRecord: ClusterImage._take_register_controller,
    ProducerIdsRecord: ClusterImage._take_producer_ids,
    ClearElrRecord: ClusterImage._take_clear_elr,
    AccessControlEntryRecord: ClusterImage._keep,
    RemoveAccessControlEntryRecord: ClusterImage._drop,
    UserScramCredentialRecord: ClusterImage._keep,
    RemoveUserScramCredentialRecord: ClusterImage._drop,
    DelegationTokenRecord: ClusterImage._keep,
    RemoveDelegationTokenRecord: ClusterImage._drop,
    ClientQuotaRecord: ClusterImage._take_quota,
    NoOpRecord: ClusterImage._ignore,
    ZkMigrationStateRecord: ClusterImage._ignore,
}
