"""Transaction markers: the control batches that end a producer's transaction in one partition.

    write_marker -> appended now, in the order of the calls -> the high watermark passes it -> the error code is known

Whether the marker is a late or a stranger's one, the log decides under its lock: an epoch below the producer's is
INVALID_PRODUCER_EPOCH, a coordinator's below that of the last marker TRANSACTION_COORDINATOR_FENCED. A marker for a
transaction that wrote nothing here is appended all the same: it carries the producer's epoch.

A coordinator that keeps its state in the partition is told, before and after: what it has decided and not yet appended
must come before the marker, and what the marker ends has to be settled in its memory, too.

Everything here runs on the control loop.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from kbroker._core.clock import BrokerClock
from kbroker._core.errors import Err
from kbroker._core.partitions import PartitionHandle
from kbroker._core.record.records import Record, build_batch

ABORT, COMMIT = 0, 1
REPLICATION_POLL_S = 0.001  # only while a marker waits for its high watermark
TIMEOUT_MS = 30_000  # Kafka's request.timeout.ms, by default


class Keeper(Protocol):
    """A coordinator whose state lies in partitions of one topic."""

    def before_marker(self, partition: int) -> int:
        """Appends what is still to be appended there; an error code if no marker may come now."""

    def after_marker(self, partition: int, producer_id: int, *, commit: bool) -> None:
        """The marker stands in the log; whether it is replicated is not known yet."""


class _Waiting(NamedTuple):
    handle: PartitionHandle
    required_offset: int
    deadline_ms: int
    told: asyncio.Future[int]


def marker_batch(
    producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int, timestamp: int
) -> bytes:
    """Key: int16 version, int16 type. Value: int16 version, int32 coordinator epoch."""
    record = Record(
        timestamp=timestamp,
        key=struct.pack(">hh", 0, COMMIT if commit else ABORT),
        value=struct.pack(">hi", 0, coordinator_epoch),
    )
    return build_batch(
        [record], control=True, transactional=True, producer_id=producer_id, producer_epoch=producer_epoch
    )


class Markers:
    """Writes markers into the partitions that this node leads."""

    def __init__(self, find: Callable[[str, int], PartitionHandle | None], clock: BrokerClock) -> None:
        self._find = find
        self._clock = clock
        self._keepers: dict[str, Keeper] = {}
        self._waiting: deque[_Waiting] = deque()
        self._polling = False

    def tell(self, topic: str, keeper: Keeper) -> None:
        """Markers in this topic are told to the coordinator that keeps its state there."""
        self._keepers[topic] = keeper

    def write_marker(
        self,
        topic: str,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> asyncio.Future[int]:
        """Appends the marker at once. The future's error code comes when the in-sync replicas have it."""
        told: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        handle = self._find(topic, partition)
        if handle is None or handle.log is None:
            told.set_result(Err.UNKNOWN_TOPIC_OR_PARTITION)
            return told
        keeper = self._keepers.get(topic)
        error = keeper.before_marker(partition) if keeper is not None else Err.NONE
        if error != Err.NONE:
            told.set_result(error)
            return told
        batch = marker_batch(
            producer_id,
            producer_epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            timestamp=self._clock.now_ms(),
        )
        produced = handle.append(batch, transaction_version=transaction_version)
        if produced.error != Err.NONE:
            told.set_result(produced.error)
            return told
        if keeper is not None:
            keeper.after_marker(partition, producer_id, commit=commit)
        waiting = _Waiting(handle, produced.base_offset + 1, self._clock.monotonic_ms() + TIMEOUT_MS, told)
        if not self._settle(waiting):
            self._waiting.append(waiting)
            self._poll()
        return told

    def _settle(self, one: _Waiting) -> bool:
        error = one.handle.acknowledged(-1, one.required_offset)
        if error == Err.REQUEST_TIMED_OUT and self._clock.monotonic_ms() < one.deadline_ms:
            return False
        if not one.told.done():  # whoever asked may have gone
            one.told.set_result(error)
        return True

    def _poll(self) -> None:
        if not self._polling:
            self._polling = True
            asyncio.get_running_loop().call_later(REPLICATION_POLL_S, self._look)

    def _look(self) -> None:
        self._polling = False
        self._waiting = deque(one for one in self._waiting if not self._settle(one))
        if self._waiting:
            self._poll()
