"""Hundreds of topics at once: answered before all their directories are made, yet nothing is missing afterwards."""

import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import kbroker

TOPICS, PARTITIONS = 60, 4
Start = Callable[..., kbroker.Broker]


def create(broker: kbroker.Broker) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    made = admin.create_topics([NewTopic(f"many{i:03d}", PARTITIONS, 1) for i in range(TOPICS)])
    for future in made.values():
        future.result(30)
    return admin


def directories(path: Path) -> int:
    return len(list(path.glob("many*-*/partition.metadata")))


def await_directories(path: Path) -> None:
    deadline = time.monotonic() + 60
    while directories(path) < TOPICS * PARTITIONS:
        assert time.monotonic() < deadline, directories(path)
        time.sleep(0.01)


def test_the_last_topic_of_many_takes_records_at_once(start_broker: Start, tmp_path: Path) -> None:
    broker = start_broker(tmp_path)
    create(broker)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for partition in range(PARTITIONS):
        producer.produce(f"many{TOPICS - 1:03d}", b"x", partition=partition)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    consumer.assign([TopicPartition(f"many{TOPICS - 1:03d}", partition, 0) for partition in range(PARTITIONS)])
    assert len(consumer.consume(PARTITIONS, 30)) == PARTITIONS
    consumer.close()


def test_all_directories_come_without_being_asked_for(start_broker: Start, tmp_path: Path) -> None:
    create(start_broker(tmp_path))
    await_directories(tmp_path)


def test_after_a_stop_right_behind_the_answer_the_next_start_makes_what_is_missing(
    start_broker: Start, tmp_path: Path
) -> None:
    broker = start_broker(tmp_path)
    create(broker)
    broker.stop()
    start_broker(tmp_path)
    await_directories(tmp_path)


def test_topics_deleted_right_behind_the_answer_leave_nothing(start_broker: Start, tmp_path: Path) -> None:
    broker = start_broker(tmp_path, config={"log.segment.delete.delay.ms": "0"})
    admin = create(broker)
    for future in admin.delete_topics([f"many{i:03d}" for i in range(TOPICS)]).values():
        future.result(30)
    broker.stop()
    assert not [path for path in tmp_path.glob("many*") if not path.name.endswith("-delete")]
    with kbroker.Broker(tmp_path):
        assert not list(tmp_path.glob("many*"))
