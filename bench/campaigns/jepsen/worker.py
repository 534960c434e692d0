"""One client of a run, a process of its own, so that it can be stopped, killed and fenced.

    python -m bench.campaigns.jepsen.worker ROLE --name w1.1 --id w1 --bootstrap … --seed N --diary FILE

writer      transactions of a few sends to the partitions of a topic, with polls in between; some are aborted
copier      consume, transform, produce: the copies and the group's offsets in one transaction
feeder      an idempotent producer, one send after the other
reader      polls every partition at read_committed

SIGTERM ends it after its operation. What it does stands in the diary before and after it does it: see history.py.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from bench.campaigns.jepsen.checker import copy_of

QUEUE, SOURCE, TARGET, GROUP = "queue", "source", "target", "copiers"
PARTITIONS = 3
TRANSACTION_MS = 6_000
ASK_S = 4.0
AGAIN_S = 0.05
GIVE_UP_S = 30.0  # after so long without an answer a producer is made anew
FEED_EVERY_S = 0.005  # copiers shall keep up, and diaries be read within minutes
TAIL = 1000  # how many records before the end readers begin: what is new is what can be wrong
FROM_THE_TAIL = -2000 - TAIL  # as librdkafka has it


def place_and_value(message: Message) -> tuple[int, str]:
    offset, value = message.offset(), message.value()
    assert offset is not None
    assert value is not None
    return offset, value.decode()


class Diary:
    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.operation = 0

    def write(self, event: str, **told: Any) -> None:
        """One write, with no buffer on the way: a killed process has said everything it said."""
        os.write(self._file, json.dumps({"event": event, **told}).encode() + b"\n")

    def begin(self) -> int:
        self.operation += 1
        self.write("begin", op=self.operation, at=time.monotonic_ns())
        return self.operation

    def end(self, outcome: str) -> None:
        self.write("end", outcome=outcome, at=time.monotonic_ns())


class Over(Exception):  # noqa: N818  it is no error
    """This producer is fenced, or in a state from which there is no way back."""


class Client:
    def __init__(self, asked: argparse.Namespace) -> None:
        self.name: str = asked.name
        self.chance = random.Random(f"{asked.seed}-{asked.name}")
        self.diary = Diary(asked.diary)
        self.ending = False
        self.life = 0
        self._dropped = False  # a record of this producer was given up, and may be in the log all the same
        self._asked = asked
        signal.signal(signal.SIGTERM, self._end)

    def _end(self, *_args: object) -> None:
        self.ending = True

    def settings(self, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": self._asked.bootstrap,
            "client.id": self.name,
            "socket.timeout.ms": 3_000,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
            **{key.replace("_", "."): value for key, value in more.items()},
        }

    def producer(self, *, transactional: bool) -> Producer:
        if not transactional:
            return Producer(self.settings(enable_idempotence=True, linger_ms=0, message_timeout_ms=20_000))
        made = Producer(
            self.settings(transactional_id=self._asked.id, transaction_timeout_ms=TRANSACTION_MS, linger_ms=1)
        )
        asked = time.monotonic_ns()
        self._dropped = False
        self.insist(made.init_transactions)
        self.diary.write("taken", id=self._asked.id, asked=asked, at=time.monotonic_ns())
        return made

    def insist(self, ask: Any, *args: Any) -> None:
        """Until it is answered. A transaction that must be aborted, and a producer that is over, are the caller's."""
        give_up = time.monotonic() + GIVE_UP_S
        while True:
            try:
                ask(*args, ASK_S)
            except KafkaException as error:
                problem: KafkaError = error.args[0]
                if problem.txn_requires_abort():
                    raise
                if problem.fatal() or not problem.retriable() or time.monotonic() > give_up:
                    raise Over from error
                time.sleep(AGAIN_S)
            else:
                return

    def consumer(self, group: str, **more: Any) -> Consumer:
        return Consumer(
            self.settings(
                group_id=group,
                isolation_level="read_committed",
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                session_timeout_ms=6_000,
                **more,
            )
        )

    def tail_reader(self) -> Consumer:
        reader = self.consumer(f"reads-of-{self.name}")
        self.life += 1
        reader.assign([TopicPartition(QUEUE, number, FROM_THE_TAIL) for number in range(PARTITIONS)])
        return reader

    def send(self, producer: Producer, topic: str, partition: int, value: str) -> None:
        self.diary.write("send", partition=f"{topic}-{partition}", value=value)

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.diary.write("sent", value=value, offset=message.offset())
            else:
                self._dropped = True

        producer.produce(topic, value.encode(), partition=partition, on_delivery=delivered)

    def note(self, messages: list[Message]) -> list[Message]:
        good = [message for message in messages if message.error() is None]
        by_partition: dict[str, list[tuple[int, str]]] = {}
        for message in good:
            name = f"{message.topic()}-{message.partition()}"
            by_partition.setdefault(name, []).append(place_and_value(message))
        for name, records in by_partition.items():
            self.diary.write("seen", life=self.life, partition=name, records=records, at=time.monotonic_ns())
        return good

    def commit(self, producer: Producer) -> bool:
        """Ends the transaction and its operation. An abort that succeeds is proof that the commit did not: False."""
        try:
            self.diary.write("committing", at=time.monotonic_ns())
            self.insist(producer.commit_transaction)
        except KafkaException:
            self.abort(producer)
            return False
        except Over:
            self.diary.end("unknown")
            raise
        self.diary.end("ok")
        return True

    def abort(self, producer: Producer) -> None:
        """librdkafka drops a record whose answer was lost, and its sequence number goes to one of the next transaction.

        A broker that has the dropped one takes the other for it, sent twice, and nobody reads it; so does Apache Kafka
        (compat_tests/raw). A producer that starts anew has an epoch of its own, in which the numbers begin again.
        """
        self.diary.write("aborting")
        try:
            self.insist(producer.abort_transaction)
        except (KafkaException, Over) as error:
            self.diary.end("unknown")
            raise Over from error
        self.diary.end("failed")
        producer.poll(0)
        if self._dropped:
            raise Over

    def run(self, live: Any) -> None:
        """A producer that is over is made anew, unless another has its name: then this client is done."""
        while not self.ending:
            try:
                live()
            except (Over, KafkaException) as error:
                cause = error.__cause__ if isinstance(error, Over) else error
                if isinstance(cause, KafkaException) and cause.args[0].code() == KafkaError._FENCED:
                    return

    def write(self) -> None:
        producer = self.producer(transactional=True)
        reader = self.tail_reader()
        try:
            while not self.ending:
                number = self.diary.begin()
                producer.begin_transaction()
                for count in range(self.chance.randrange(1, 5)):
                    value = f"{self.name}-{number}-{count}"
                    self.send(producer, QUEUE, self.chance.randrange(PARTITIONS), value)
                if self.chance.random() < 0.4:
                    self.note(reader.consume(50, 0.2))
                if self.chance.random() < 0.15:
                    producer.flush(ASK_S)  # what was not sent yet would be dropped here
                    self.abort(producer)
                else:
                    self.commit(producer)
        finally:
            reader.close()

    def copy(self) -> None:
        producer = self.producer(transactional=True)
        consumer = self.consumer(GROUP, partition_assignment_strategy="cooperative-sticky")

        def renew(*_args: object) -> None:
            self.life += 1

        consumer.subscribe([SOURCE], on_assign=renew, on_revoke=renew, on_lost=renew)
        try:
            while not self.ending:
                self._copy_some(producer, consumer)
        finally:
            consumer.close()

    def _copy_some(self, producer: Producer, consumer: Consumer) -> None:
        messages = consumer.consume(20, 0.3)
        number = self.diary.begin()
        found = self.note(messages)
        if not found:
            self.diary.end("failed")
            return
        producer.begin_transaction()
        ends: dict[int, int] = {}
        for message in found:
            partition = message.partition()
            assert partition is not None
            offset, _value = place_and_value(message)
            ends[partition] = offset + 1
            self.send(producer, TARGET, partition, copy_of(f"{SOURCE}-{partition}", offset, f"{self.name}-{number}"))
        moved = [TopicPartition(SOURCE, partition, at) for partition, at in ends.items()]
        try:
            self.insist(producer.send_offsets_to_transaction, moved, consumer.consumer_group_metadata())
            if self.chance.random() < 0.1:
                self.abort(producer)
                raise KafkaException(KafkaError(KafkaError._STATE))  # the copies are made again
            if not self.commit(producer):
                self._go_back(consumer)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                self.abort(producer)
            self._go_back(consumer)

    def _go_back(self, consumer: Consumer) -> None:
        """To what the group has committed: the copies were dropped."""
        self.life += 1
        for position in consumer.committed(consumer.assignment(), ASK_S):
            position.offset = max(position.offset, 0)
            consumer.seek(position)

    def feed(self) -> None:
        producer = self.producer(transactional=False)
        while not self.ending:
            number = self.diary.begin()
            topic = self.chance.choice((SOURCE, QUEUE))
            told: list[KafkaError | None] = []
            value = f"{self.name}-{number}-0"
            partition = self.chance.randrange(PARTITIONS)
            self.diary.write("send", partition=f"{topic}-{partition}", value=value)

            def delivered(error: KafkaError | None, message: Message, value: str = value, told: Any = told) -> None:
                if error is None:
                    self.diary.write("sent", value=value, offset=message.offset())
                told.append(error)

            producer.produce(topic, value.encode(), partition=partition, on_delivery=delivered)
            while not told:
                producer.poll(0.1)
            self.diary.end("ok" if told[0] is None else "unknown")
            if told[0] is not None:
                return
            time.sleep(FEED_EVERY_S)

    def look(self) -> None:
        consumer = self.tail_reader()
        try:
            while not self.ending:
                messages = consumer.consume(200, 0.2)
                self.diary.begin()
                self.note(messages)
                self.diary.end("ok")
        finally:
            consumer.close()


ROLES = {"writer": Client.write, "copier": Client.copy, "feeder": Client.feed, "reader": Client.look}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=sorted(ROLES))
    parser.add_argument("--name", required=True)
    parser.add_argument("--id", required=True)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--diary", type=Path, required=True)
    asked = parser.parse_args()
    client = Client(asked)
    client.run(lambda: ROLES[asked.role](client))
    return 0


if __name__ == "__main__":
    sys.exit(main())
