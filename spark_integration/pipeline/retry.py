"""Retry with backoff, in Kafka alone: when a record is due stands in its headers, where it is in a committed offset.

A failed record goes to the partition of its attempt. All records of a partition wait equally long, so they fall due
in their order, and none waits behind another that is due later. When its time has come, a record goes back to the end
of the input and its offset is committed, in one transaction: after a crash nothing is lost, sent twice, or due anew.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from spark_integration.pipeline import kafka
from spark_integration.pipeline.fates import RETRY
from spark_integration.pipeline.ingest import ADMITTED, ATTEMPT, DUE, ERROR, FIRST_SEEN, ORIGIN
from spark_integration.pipeline.kafka import Record
from spark_integration.pipeline.settings import Settings
from spark_integration.pipeline.sink import Outgoing, send

WAITING_MOST = 1_000  # of a partition, in memory


def delay_ms(attempt: int, settings: Settings) -> int:
    """After this many failed tries."""
    return settings.backoff_ms << (attempt - 1)


def outgoing(failed: dict[str, object], now_ms: int, settings: Settings) -> Outgoing:
    """A failed record on its way to the retry topic or to the dead letters."""
    attempt = int(str(failed["attempt"]))
    again = failed["fate"] == RETRY
    headers = {
        ORIGIN: str(failed["origin"]),
        FIRST_SEEN: str(failed["first_seen_ms"]),
        ATTEMPT: str(attempt),
        ADMITTED: "1" if failed["admitted"] else "0",
        ERROR: str(failed["error"]),
    }
    if again:
        headers[DUE] = str(now_ms + delay_ms(attempt, settings))
    key, value = failed["key"], failed["value"]
    return Outgoing(
        settings.retry_topic if again else settings.dead_topic,
        bytes(key) if isinstance(key, (bytes, bytearray)) else None,
        bytes(value) if isinstance(value, (bytes, bytearray)) else None,
        attempt - 1 if again else 0,
        headers,
    )


class Pump:
    """Takes what is due from the retry topic to the input, in a thread of its own. One per pipeline: a second one
    fences the first off, which then ends."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._name = f"{settings.name}.retry"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="retry", daemon=True)

    def start(self) -> Pump:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def drained(self, consumer: Consumer) -> bool:
        """Whether nothing waits. `consumer` is one of `group_consumer`."""
        partitions = kafka.partitions_of(consumer, self._settings.retry_topic)
        done = kafka.committed(consumer, partitions)
        ends = kafka.end_offsets(consumer, self._settings.retry_topic)
        return all(done.get(number, 0) >= end for number, end in ends.items())

    def group_consumer(self) -> Consumer:
        return kafka.consumer(self._settings, self._name)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._pump()
            except KafkaException as failed:  # all is rebuilt from what Kafka knows, as after a crash
                if failed.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED):
                    return

    def _pump(self) -> None:
        consumer = self.group_consumer()
        try:
            producer = kafka.producer(self._settings, self._name)
            partitions = kafka.partitions_of(consumer, self._settings.retry_topic)
            done = kafka.committed(consumer, partitions)
            for at in partitions:
                at.offset = done.get(at.partition, kafka.bounds(consumer, at)[0])
            consumer.assign(partitions)
            waiting: dict[int, deque[Record]] = defaultdict(deque)
            ends: dict[int, int] = {}  # behind what waits: past the markers of the transactions that brought it
            while not self._stop.is_set():
                due = _take_due(waiting, kafka.now_ms())
                if due:
                    self._send(producer, consumer, due)
                _pause_the_full(consumer, waiting)
                for record in kafka.take(consumer, WAITING_MOST, _until_due_s(waiting, kafka.now_ms())):
                    if record.is_end:
                        ends[record.partition] = record.offset
                    else:
                        waiting[record.partition].append(record)
                        ends.pop(record.partition, None)
                self._commit_ends(consumer, [number for number in ends if not waiting[number]], ends)
        finally:
            consumer.close()

    def _commit_ends(self, consumer: Consumer, reached: list[int], ends: dict[int, int]) -> None:
        """Where nothing waits any more the group stands at the end, as `drained` and Kafka's tools look for it."""
        if reached:
            at = [TopicPartition(self._settings.retry_topic, number, ends.pop(number)) for number in reached]
            consumer.commit(offsets=at, asynchronous=False)

    def _send(self, producer: Producer, consumer: Consumer, due: list[Record]) -> None:
        producer.begin_transaction()
        for record in due:
            headers = {name: value for name, value in record.headers.items() if name != DUE}
            send(producer, Outgoing(self._settings.input_topic, record.key, record.value, headers=headers))
        last = {record.partition: record.offset for record in due}
        ends = [TopicPartition(self._settings.retry_topic, number, offset + 1) for number, offset in last.items()]
        kafka.commit_transaction(producer, consumer, ends)


def _due_ms(record: Record) -> int:
    return int(record.headers.get(DUE, "0"))


def _take_due(waiting: dict[int, deque[Record]], now_ms: int) -> list[Record]:
    taken = []
    for queue in waiting.values():
        while queue and _due_ms(queue[0]) <= now_ms:
            taken.append(queue.popleft())
    return taken


def _until_due_s(waiting: dict[int, deque[Record]], now_ms: int) -> float:
    """How long to wait for more; a stop is heard within half a second."""
    next_due = min((_due_ms(queue[0]) for queue in waiting.values() if queue), default=now_ms + 500)
    return min(max(next_due - now_ms, 1), 500) / 1000


def _pause_the_full(consumer: Consumer, waiting: dict[int, deque[Record]]) -> None:
    for at in consumer.assignment():
        move = consumer.pause if len(waiting[at.partition]) >= WAITING_MOST else consumer.resume
        move([at])
