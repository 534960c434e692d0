"""Replay of the dead letters: one command takes all there are back to the input, repaired if a repair is given.

Each turn is one transaction, of the records and of the offset up to which the dead letters are done with; then the
broker deletes them up to there. Killed at any point, and started again, it goes on where it stood. What the repair
gives up is appended to an archive before the transaction is committed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from spark_integration.pipeline import kafka
from spark_integration.pipeline.ingest import ATTEMPT, ERROR
from spark_integration.pipeline.kafka import Record
from spark_integration.pipeline.settings import Settings
from spark_integration.pipeline.sink import Outgoing, send

Repair = Callable[[bytes], bytes | None]
TURN = 5_000


@dataclass
class Replayed:
    sent: int = 0
    archived: int = 0


def waiting(settings: Settings) -> int:
    """How many dead letters there are."""
    return len(kafka.read_all(settings, settings.dead_topic))


def replay(settings: Settings, archive: Path, repair: Repair | None = None) -> Replayed:
    name = f"{settings.name}.dead-letters"
    consumer, producer = kafka.consumer(settings, name), kafka.producer(settings, name)
    try:
        done = Replayed()
        for partition in kafka.partitions_of(consumer, settings.dead_topic):
            _replay_partition(settings, (consumer, producer), partition, (archive, repair, done))
        return done
    finally:
        consumer.close()


def _replay_partition(
    settings: Settings,
    clients: tuple[Consumer, Producer],
    partition: TopicPartition,
    work: tuple[Path, Repair | None, Replayed],
) -> None:
    consumer, producer = clients
    low, end = kafka.bounds(consumer, partition)
    start = max(low, kafka.committed(consumer, [partition]).get(partition.partition, 0))
    from_here = TopicPartition(partition.topic, partition.partition, start)
    letters = kafka.read_between(consumer, [from_here], {partition.partition: end})
    while turn := list(islice(letters, TURN)):
        producer.begin_transaction()
        for letter in turn:
            _replay_one(settings, producer, letter, work)
        upto = TopicPartition(partition.topic, partition.partition, turn[-1].offset + 1)
        kafka.commit_transaction(producer, consumer, [upto])
    admin = AdminClient({"bootstrap.servers": settings.bootstrap})
    all_of_it = TopicPartition(partition.topic, partition.partition, end)
    for deleted in admin.delete_records([all_of_it]).values():
        deleted.result(kafka.SECONDS)


def _replay_one(
    settings: Settings, producer: Producer, letter: Record, work: tuple[Path, Repair | None, Replayed]
) -> None:
    archive, repair, done = work
    headers, value = letter.headers, letter.value or b""
    mended = value if repair is None else repair(value)
    if mended is None:
        _append(archive, {"headers": headers, "value": value.hex()})
        done.archived += 1
        return
    fresh = {name: text for name, text in headers.items() if name != ERROR} | {ATTEMPT: "0"}
    send(producer, Outgoing(settings.input_topic, letter.key, mended, headers=fresh))
    done.sent += 1


def _append(archive: Path, line: dict[str, object]) -> None:
    with open(archive, "a") as file:
        file.write(json.dumps(line) + "\n")
        file.flush()
        os.fsync(file.fileno())
