"""A transactional producer in the protocol's own words, for campaigns that must know what was answered, and when.

Both flows of Kafka: the older one names partitions and groups before they are written to, and keeps its epoch; that of
transaction version 2 has the broker add them at the first batch, and gets a new epoch at each end (KIP-890).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kbroker._core.record.records import Record, build_batch
from kbroker.protocol import messages
from kbroker.protocol.message import Message

Ask = Callable[[Message, int], Any]
Place = tuple[str, int]
TRANSACTION = 1  # a FindCoordinator's kind of key
GROUP = 0
# Asked again: COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS,
# UNSTABLE_OFFSET_COMMIT, and NOT_ENOUGH_REPLICAS, which Produce says for the first four.
LATER = {15, 14, 16, 51, 88, 19}
PATIENCE_S = 60.0
_AGAIN_S = 0.01
_TIMEOUT_MS = 30_000


class RefusedError(Exception):
    """An answer that no waiting changes."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what} was answered with error {code}")
        self.code = code


def insist(what: str, ask: Callable[[], tuple[int, Any]]) -> Any:
    """Asks again, as clients do, until the coordinator is there and the transaction before has ended."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        code, answer = ask()
        if not code:
            return answer
        if code not in LATER or time.monotonic() > deadline:
            raise RefusedError(what, code)
        time.sleep(_AGAIN_S)


def find_coordinator(ask: Ask, key: str, kind: int) -> None:
    def once() -> tuple[int, None]:
        (found,) = ask(messages.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4).coordinators
        return found.error_code, None

    insist(f"FindCoordinator of {key}", once)


class TransactionalProducer:
    def __init__(self, ask: Ask, transactional_id: str, timeout_ms: int, *, implicit: bool) -> None:
        """`implicit`: the flow of transaction version 2."""
        self.transactional_id = transactional_id
        self._ask, self._timeout_ms, self._implicit = ask, timeout_ms, implicit
        self.id, self.epoch = -1, -1
        self._sequences: dict[Place, int] = {}
        self._added: set[Place | str] = set()

    def init(self) -> None:
        """What an earlier session left open is ended when this returns."""
        find_coordinator(self._ask, self.transactional_id, TRANSACTION)
        request = messages.InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=self._timeout_ms
        )

        def once() -> tuple[int, Any]:
            answer = self._ask(request, 4)
            return answer.error_code, answer

        answer = insist(f"InitProducerId of {self.transactional_id}", once)
        self._added.clear()
        self._adopt(answer.producer_id, answer.producer_epoch)

    def _adopt(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.id, self.epoch):
            self._sequences.clear()
        self.id, self.epoch = producer_id, epoch

    def send(self, place: Place, records: Sequence[Record], codec: int = 0) -> int:
        """The offset of the first one."""
        if not self._implicit and place not in self._added:
            self._add_partition(place)
        sequence = self._sequences.get(place, 0)
        batch = build_batch(
            records,
            codec=codec,
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        part = messages.ProduceRequest.PartitionProduceData(index=place[1], records=batch)
        data = messages.ProduceRequest.TopicProduceData(name=place[0], partition_data=[part])
        request = messages.ProduceRequest(
            transactional_id=self.transactional_id, acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=[data]
        )

        def once() -> tuple[int, int]:
            answer = self._ask(request, 12 if self._implicit else 9)
            (found,) = answer.responses[0].partition_responses
            return found.error_code, found.base_offset

        offset = insist(f"Produce to {place} by {self.transactional_id}", once)
        self._sequences[place] = sequence + len(records)
        return int(offset)

    def _add_partition(self, place: Place) -> None:
        topic = messages.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=place[0], partitions=[place[1]])
        request = messages.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[topic],
        )

        def once() -> tuple[int, None]:
            (found,) = self._ask(request, 3).results_by_topic_v3_and_below[0].results_by_partition
            return found.partition_error_code, None

        insist(f"AddPartitionsToTxn by {self.transactional_id}", once)
        self._added.add(place)

    def commit_offset(self, group: str, place: Place, offset: int) -> None:
        """As part of the transaction."""
        find_coordinator(self._ask, group, GROUP)
        if not self._implicit and group not in self._added:
            self._add_group(group)
        partition = messages.TxnOffsetCommitRequest.Partition(
            partition_index=place[1], committed_offset=offset, committed_metadata=""
        )
        request = messages.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.id,
            producer_epoch=self.epoch,
            topics=[messages.TxnOffsetCommitRequest.Topic(name=place[0], partitions=[partition])],
        )

        def once() -> tuple[int, None]:
            (found,) = self._ask(request, 5 if self._implicit else 3).topics[0].partitions
            return found.error_code, None

        insist(f"TxnOffsetCommit of {group} by {self.transactional_id}", once)

    def _add_group(self, group: str) -> None:
        request = messages.AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id, producer_id=self.id, producer_epoch=self.epoch, group_id=group
        )
        insist(f"AddOffsetsToTxn by {self.transactional_id}", lambda: (self._ask(request, 3).error_code, None))
        self._added.add(group)

    def end(self, *, commit: bool) -> None:
        """The decision stands when this returns; the markers follow."""
        request = messages.EndTxnRequest(
            transactional_id=self.transactional_id, producer_id=self.id, producer_epoch=self.epoch, committed=commit
        )

        def once() -> tuple[int, Any]:
            answer = self._ask(request, 5 if self._implicit else 3)
            return answer.error_code, answer

        answer = insist(f"EndTxn by {self.transactional_id}", once)
        self._added.clear()
        if self._implicit:
            self._adopt(answer.producer_id, answer.producer_epoch)


def committed_offset(ask: Ask, group: str, place: Place) -> int:
    """What OffsetFetch tells when no transaction can change it any more; -1: nothing."""
    find_coordinator(ask, group, GROUP)
    fetch = messages.OffsetFetchRequest
    topic = fetch.Topics(name=place[0], partition_indexes=[place[1]])
    request = fetch(groups=[fetch.Group(group_id=group, topics=[topic])], require_stable=True)

    def once() -> tuple[int, int]:
        (found,) = ask(request, 8).groups
        if found.error_code:
            return found.error_code, -1
        (partition,) = found.topics[0].partitions
        return partition.error_code, partition.committed_offset

    return int(insist(f"OffsetFetch of {group}", once))


def visible(batches_read: Iterable[tuple[Any, Sequence[Record]]], aborted: Iterable[tuple[int, int]]) -> list[Record]:
    """What a reader of committed records makes of a fetch: its batches' headers and records, and (producer, first
    offset) of the aborted transactions among them.
    """
    starts = sorted(aborted, key=lambda one: one[1])
    open_now: set[int] = set()
    seen: list[Record] = []
    for head, records in batches_read:
        while starts and starts[0][1] <= head.last_offset:
            open_now.add(starts.pop(0)[0])
        if head.control:
            open_now.discard(head.producer_id)
        elif not (head.transactional and head.producer_id in open_now):
            seen += records
    return seen
