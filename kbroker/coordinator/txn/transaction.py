"""One transactional id: its producer, and how far its transaction has come, as its record tells it."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from kbroker.coordinator.step import Record
from kbroker.protocol.records import TransactionLogKey, TransactionLogValue

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME = -1
MAX_EPOCH = 32_767  # never told to a producer: it is what fences the last one that was
EPOCH_BUMPS_FROM = 2  # transaction version from which on every transaction ends with a new epoch (KIP-890)
END_BUMPS_FROM = 5  # EndTxn's version from which on clients follow that
TAGGED_FROM = 1  # transaction version from which on records tell more than the oldest form can

Place = tuple[str, int]  # topic, partition


class State(IntEnum):
    """As the log numbers them. PrepareEpochFence and Dead are passed through in one decision and never written."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """As clients are told."""
        return TITLES[self]


TITLES = {state: "".join(word.capitalize() for word in state.name.split("_")) for state in State}
STATES_BY_TITLE = {title: state for state, title in TITLES.items()}
PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)


class Transaction(NamedTuple):
    producer_id: int
    epoch: int
    timeout_ms: int
    state: State = State.EMPTY
    places: frozenset[Place] = frozenset()
    start_ms: int = NO_TIME
    update_ms: int = 0
    previous_producer_id: int = NO_PRODUCER_ID  # whose id it was before the last change
    next_producer_id: int = NO_PRODUCER_ID  # whose it is once the markers are written: this one's epochs are used up
    client_version: int = 0  # transaction version that the client followed

    @property
    def is_exhausted(self) -> bool:
        return is_exhausted(self.epoch)

    @property
    def bumps_epoch(self) -> bool:
        return self.client_version >= EPOCH_BUMPS_FROM

    def record(self, transactional_id: str, level: int) -> Record:
        """`level` is the cluster's transaction.version."""
        tagged = level >= TAGGED_FROM
        value = TransactionLogValue(
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id if tagged else NO_PRODUCER_ID,
            next_producer_id=self.next_producer_id if tagged else NO_PRODUCER_ID,
            producer_epoch=self.epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=int(self.state),
            transaction_partitions=None if self.state == State.EMPTY else _by_topic(self.places),
            transaction_last_update_timestamp_ms=self.update_ms,
            transaction_start_timestamp_ms=self.start_ms,
            client_transaction_version=self.client_version if tagged else 0,
        )
        return Record(TransactionLogKey(transactional_id=transactional_id), value)


def client_version_of(end_version: int) -> int:
    """The transaction version that a client follows who ends its transactions with this version of EndTxn."""
    return EPOCH_BUMPS_FROM if end_version >= END_BUMPS_FROM else 0


def is_exhausted(epoch: int) -> bool:
    """There is one more, and it is kept for fencing."""
    return epoch >= MAX_EPOCH - 1


def transaction_of(value: TransactionLogValue) -> Transaction:
    return Transaction(
        producer_id=value.producer_id,
        epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=State(value.transaction_status),
        places=frozenset(
            (topic.topic, partition)
            for topic in value.transaction_partitions or []
            for partition in topic.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        update_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )


def _by_topic(places: frozenset[Place]) -> list[TransactionLogValue.PartitionsSchema]:
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        found.setdefault(topic, []).append(partition)
    return [TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in found.items()]
