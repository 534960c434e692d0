"""Transactional producers on the wire, many in one thread: each begins, fills and commits at once or at a pace.

The newer flow is that of transaction version 2 (KIP-890): a batch adds its partition and each end bumps the epoch. In
the older one partitions are added by a request of their own. A producer whose transaction before has not ended yet asks
again after as long as Java's producer waits.
"""

from __future__ import annotations

import selectors
import struct
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from bench import frames
from bench.client import BUDGET, Client
from kbroker._core.errors import Err
from kbroker._core.record.records import Record, build_batch
from kbroker.protocol import codec, messages
from kbroker.protocol.message import Message

AGAIN_S = 0.02
AGAIN = {
    Err.CONCURRENT_TRANSACTIONS,
    Err.COORDINATOR_LOAD_IN_PROGRESS,  # whoever comes first makes the coordinator's topic
    Err.COORDINATOR_NOT_AVAILABLE,
    Err.NOT_COORDINATOR,
}
RECEIVE_BYTES = 1 << 16
Life = Generator[bytes | float, bytes, None]


@dataclass(frozen=True)
class Shape:
    """What is in a transaction: so many records for each of so many partitions, and a group's offsets if it has one."""

    records: int
    record_bytes: int
    partitions: int
    group: str | None = None
    older: bool = False
    every_s: float = 0.0  # from one transaction's begin to the next one's; 0: at once


class Transactor:
    """One producer on a connection of its own."""

    def __init__(self, port: int, transactional_id: str, topic: str, shape: Shape, after_s: float = 0.0) -> None:
        """`after_s`: when the first transaction begins, so that those of several producers do not all begin at once."""
        self.commits_us: list[float] = []  # from the request that ends a transaction to its answer
        self._client = Client(port)
        self._id, self._topic, self._shape, self._after_s = transactional_id, topic, shape, after_s
        self._sequence = 0
        now = int(time.time() * 1000)
        self._records = [Record(timestamp=now, value=b"x" * shape.record_bytes)] * shape.records
        self._init()
        self.socket = self._client.socket
        self.socket.setblocking(True)
        self._received = bytearray()
        self._life = self._live()
        self.due: float | None = None

    def _init(self) -> None:
        found: Any
        asked: list[tuple[Message, int]] = [
            (messages.FindCoordinatorRequest(key=self._id, key_type=1), 3),
            (messages.InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=60_000), 5),
        ]
        if self._shape.group is not None:
            asked.insert(0, (messages.FindCoordinatorRequest(key=self._shape.group, key_type=0), 3))
        for request, version in asked:
            found = self._client.ask(request, version)
            while found.error_code:
                assert found.error_code in AGAIN, Err(found.error_code)
                found = self._client.ask(request, version)
        self._producer_id, self._epoch = found.producer_id, found.producer_epoch

    # ---- what happens ----

    def begin(self) -> None:
        self._go(next(self._life))

    def hear(self) -> None:
        """Something has arrived."""
        self._received += self.socket.recv(RECEIVE_BYTES)
        if len(self._received) >= 4:
            size = 4 + struct.unpack_from(">i", self._received)[0]
            if len(self._received) >= size:  # one request is unanswered at most
                answer, self._received = bytes(self._received[4:size]), bytearray()
                self._go(self._life.send(answer))

    def go_on(self) -> None:
        """What was put off is due."""
        self.due = None
        self._go(self._life.send(b""))

    def _go(self, what: bytes | float) -> None:
        if isinstance(what, bytes):
            self.socket.sendall(what)
        else:
            self.due = time.monotonic() + what

    def close(self) -> None:
        self._client.close()

    # ---- a producer's life ----

    def _live(self) -> Life:
        places = list(range(self._shape.partitions))
        next_s = time.monotonic() + self._after_s
        while True:
            if self._shape.every_s:
                yield max(0.0, next_s - time.monotonic())
                next_s = max(next_s + self._shape.every_s, time.monotonic())  # what is late is not made up for
            if self._shape.older:
                topic = messages.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=self._topic, partitions=places)
                yield from self._ask(
                    messages.AddPartitionsToTxnRequest(
                        v3_and_below_transactional_id=self._id,
                        v3_and_below_producer_id=self._producer_id,
                        v3_and_below_producer_epoch=self._epoch,
                        v3_and_below_topics=[topic],
                    ),
                    3,
                    lambda told: told.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
                )
            yield from self._ask(
                self._produce(places),
                11 if self._shape.older else 12,
                lambda told: max(one.error_code for one in told.responses[0].partition_responses),
            )
            if self._shape.group is not None:
                yield from self._ask(
                    self._offsets(self._shape.group), 5, lambda told: told.topics[0].partitions[0].error_code
                )
            began = time.perf_counter()
            ended = yield from self._ask(
                messages.EndTxnRequest(
                    transactional_id=self._id,
                    producer_id=self._producer_id,
                    producer_epoch=self._epoch,
                    committed=True,
                ),
                3 if self._shape.older else 5,
                lambda told: told.error_code,
            )
            self.commits_us.append((time.perf_counter() - began) * 1e6)
            if self._shape.older:
                self._sequence += self._shape.records
            else:
                self._producer_id, self._epoch = ended.producer_id, ended.producer_epoch

    def _produce(self, places: Sequence[int]) -> messages.ProduceRequest:
        batch = build_batch(
            self._records,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequence,
            transactional=True,
        )
        part = messages.ProduceRequest.PartitionProduceData
        data = messages.ProduceRequest.TopicProduceData(
            name=self._topic, partition_data=[part(index=place, records=batch) for place in places]
        )
        return messages.ProduceRequest(transactional_id=self._id, acks=-1, timeout_ms=30_000, topic_data=[data])

    def _offsets(self, group: str) -> messages.TxnOffsetCommitRequest:
        part = messages.TxnOffsetCommitRequest.Partition(
            partition_index=0, committed_offset=len(self.commits_us), committed_metadata=""
        )
        return messages.TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            member_id="",
            topics=[messages.TxnOffsetCommitRequest.Topic(name=self._topic, partitions=[part])],
        )

    def _ask(self, request: Message, version: int, error_of: Any) -> Generator[bytes | float, bytes, Any]:
        """Asks until the transaction before has ended."""
        frame = frames.frame(request, version)
        cls: type[Message] = getattr(messages, type(request).__name__.replace("Request", "Response"))
        while True:
            _, told = codec.decode_response(cls, version, (yield frame), BUDGET)
            code = error_of(told)
            if not code:
                return told
            if code not in AGAIN:
                raise RuntimeError(f"{cls.__name__} has {Err(code).name}")
            yield AGAIN_S


def run(transactors: Sequence[Transactor], seconds: float) -> None:
    """All of them for so long. What is open then is left open."""
    chooser = selectors.DefaultSelector()
    for one in transactors:
        chooser.register(one.socket, selectors.EVENT_READ, one)
        one.begin()
    until = time.monotonic() + seconds
    while (now := time.monotonic()) < until:
        next_due = until
        for one in transactors:
            if one.due is not None and one.due <= now:
                one.go_on()
            if one.due is not None:
                next_due = min(next_due, one.due)
        for key, _ in chooser.select(max(0.0, next_due - now)):
            key.data.hear()
    chooser.close()
