"""The works of the race. Each is done on both brokers in turn; each gives figures that can be divided."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench import frames, wireload
from bench.servers import Server

Figures = dict[str, float]
_names = count()
SECONDS = 3.0


def make_topic(server: Server, partitions: int = 4) -> str:
    name = f"race{next(_names):06d}"
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
    for created in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        created.result(30)
    settle(server, name, partitions)
    return name


def settle(server: Server, topic: str, partitions: int) -> None:
    """Returns once every partition takes records: Apache answers a creation before its broker has applied it."""
    batch = frames.batch(1, 1)
    deadline = time.monotonic() + 30
    for partition in range(partitions):
        while True:
            try:
                wireload.run(
                    "127.0.0.1",
                    server.port,
                    [[frames.produce(topic, partition, batch)]],
                    requests=1,
                    check_offset=frames.produce_error_offset(topic),
                )
                break
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise


@dataclass
class Meter:
    """Wall clock and broker CPU over one piece of work."""

    server: Server

    def __enter__(self) -> Meter:
        self.cpu = -self.server.cpu_seconds()
        self.wall = -time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall += time.monotonic()
        self.cpu += self.server.cpu_seconds()


def librdkafka_produce(record_bytes: int, messages: int, codec: str = "none") -> Callable[[Server], Figures]:
    def work(server: Server) -> Figures:
        topic = make_topic(server)
        value = os.urandom(record_bytes // 2) + b"x" * (record_bytes - record_bytes // 2)
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
            for _ in range(messages):
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
        return {"messages/s": messages / meter.wall, "CPU s per million": meter.cpu / messages * 1e6}

    return work


def librdkafka_consume(record_bytes: int, messages: int) -> Callable[[Server], Figures]:
    filled: dict[int, str] = {}

    def work(server: Server) -> Figures:
        if server.port not in filled:
            filled[server.port] = make_topic(server, 1)
            fill(server, filled[server.port], record_bytes, messages)
        topic = filled[server.port]
        consumer = Consumer(
            {
                "bootstrap.servers": server.bootstrap,
                "group.id": "race",
                "enable.auto.commit": False,
                "queued.min.messages": 10_000_000,  # else the client pauses for a second when it holds enough
            }
        )
        consumer.assign([TopicPartition(topic, 0, 0)])
        seen = 0
        with Meter(server) as meter:
            while seen < messages:
                seen += len(consumer.consume(10_000, timeout=10))
        consumer.close()
        return {"messages/s": messages / meter.wall, "CPU s per million": meter.cpu / messages * 1e6}

    return work


def fill(server: Server, topic: str, record_bytes: int, messages: int) -> None:
    """Puts `messages` records into partition 0 with the load generator."""
    per_batch = max(1, 65536 // record_bytes)
    batch = frames.batch(per_batch * record_bytes, record_bytes)
    wireload.run(
        "127.0.0.1",
        server.port,
        [[frames.produce(topic, 0, batch)]],
        depth=1,
        seconds=600,
        requests=-(-messages // per_batch),
        check_offset=frames.produce_error_offset(topic),
    )


def raw_produce(batch_bytes: int, record_bytes: int, connections: int, depth: int) -> Callable[[Server], Figures]:
    batch = frames.batch(batch_bytes, record_bytes)

    def work(server: Server) -> Figures:
        topic = make_topic(server)
        requests = [[frames.produce(topic, i % 4, batch)] for i in range(connections)]
        with Meter(server) as meter:
            outcome = wireload.run(
                "127.0.0.1",
                server.port,
                requests,
                depth=depth,
                seconds=SECONDS,
                check_offset=frames.produce_error_offset(topic),
            )
        return per_byte_and_request(outcome.sent_bytes, outcome.replies, meter)

    return work


def per_byte_and_request(moved_bytes: int, requests: int, meter: Meter) -> Figures:
    return {
        "MB/s": moved_bytes / meter.wall / 1e6,
        "CPU s per GB": meter.cpu / moved_bytes * 1e9,
        "requests/s": requests / meter.wall,
        "CPU µs per request": meter.cpu / requests * 1e6,
    }


def raw_fetch(fetch_bytes: int, connections: int = 4, depth: int = 1) -> Callable[[Server], Figures]:
    filled: dict[int, str] = {}
    records = 400_000

    def work(server: Server) -> Figures:
        if server.port not in filled:
            filled[server.port] = make_topic(server, 1)
            fill(server, filled[server.port], 1024, records)
        topic = filled[server.port]
        step = max(64, fetch_bytes // 1024)
        offsets = list(range(step, records - 2 * step, step))  # past the small first batch
        requests = [
            [frames.fetch(topic, 0, offset, fetch_bytes) for offset in offsets[i::connections]]
            for i in range(connections)
        ]
        with Meter(server) as meter:
            outcome = wireload.run(
                "127.0.0.1",
                server.port,
                requests,
                depth=depth,
                seconds=SECONDS,
                check_offset=frames.FETCH_ERROR_OFFSET,
                reply_min_bytes=fetch_bytes // 2,
            )
        return per_byte_and_request(outcome.reply_bytes, outcome.replies, meter)

    return work


def raw_small(make_frame: Callable[[str], bytes], connections: int = 16, depth: int = 8) -> Callable[[Server], Figures]:
    def work(server: Server) -> Figures:
        topic = make_topic(server)
        request = make_frame(topic)
        with Meter(server) as meter:
            outcome = wireload.run("127.0.0.1", server.port, [[request]] * connections, depth=depth, seconds=SECONDS)
        return {"requests/s": outcome.replies / meter.wall, "CPU µs per request": meter.cpu / outcome.replies * 1e6}

    return work


def percentile(values: list[int], share: float) -> float:
    ordered = sorted(values)
    return float(ordered[min(len(ordered) - 1, int(len(ordered) * share))])


def ack_latency(samples: int = 5_000) -> Callable[[Server], Figures]:
    batch = frames.batch(100, 100)

    def work(server: Server) -> Figures:
        topic = make_topic(server, 1)
        outcome = wireload.run(
            "127.0.0.1",
            server.port,
            [[frames.produce(topic, 0, batch)]],
            depth=1,
            seconds=60,
            requests=samples,
            check_offset=frames.produce_error_offset(topic),
            latency_samples=samples,
        )
        settled = outcome.latencies_us[samples // 10 :]
        return {"p50 µs": percentile(settled, 0.5), "p99 µs": percentile(settled, 0.99)}

    return work
