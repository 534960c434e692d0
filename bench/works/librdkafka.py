"""What a real client does: librdkafka producing and consuming. It saturates first, so broker CPU per message counts."""

from __future__ import annotations

import os
from itertools import cycle, islice

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.servers import Server
from bench.works.measure import Figures, Meter, Work, fill, make_topic, topic


def produce(record_bytes: int, messages: int, codec: str = "none") -> Work:
    def work(server: Server) -> Figures:
        with topic(server) as name:
            meter = send(server, name, record_bytes, messages, codec)
        return meter.per_million(messages)

    return work


def send(server: Server, topic: str, record_bytes: int, messages: int, codec: str) -> Meter:
    values = half_random(record_bytes)
    failed = 0

    def delivered(error: object, _message: object) -> None:
        nonlocal failed
        failed += error is not None

    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "log_level": 0,
            "acks": "all",
            "linger.ms": 5,
            "compression.type": codec,
            "queue.buffering.max.messages": 500_000,
        }
    )
    with Meter(server) as meter:
        for value in islice(cycle(values), messages):
            while True:
                try:
                    producer.produce(topic, value, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.05)
            producer.poll(0)
        producer.flush(120)
    if failed or len(producer):
        raise RuntimeError(f"{failed} messages failed, {len(producer)} unsent on {server.name}")
    return meter


def half_random(record_bytes: int) -> list[bytes]:
    """Values that a codec halves: were they all the same, a compressed batch would be next to nothing."""
    noise = record_bytes // 2
    return [os.urandom(noise) + b"x" * (record_bytes - noise) for _ in range(8192)]


def consume(record_bytes: int, messages: int) -> Work:
    """The topic is filled once; every round reads it from its first record, out of the page cache."""
    filled: dict[int, str] = {}

    def work(server: Server) -> Figures:
        if server.pid not in filled:
            filled[server.pid] = make_topic(server, 1)
            fill(server, filled[server.pid], record_bytes, messages)
        consumer = Consumer(
            {
                "bootstrap.servers": server.bootstrap,
                "group.id": "race",
                "enable.auto.commit": False,
                # Else the client pauses for a second whenever it holds enough, and the faster broker loses.
                "queued.min.messages": 10_000_000,
                "fetch.queue.backoff.ms": 1,
            }
        )
        consumer.assign([TopicPartition(filled[server.pid], 0, 0)])
        seen = 0
        with Meter(server) as meter:
            while seen < messages:
                seen += len(consumer.consume(10_000, timeout=10))
        consumer.close()
        return meter.per_million(seen)

    return work
