"""A million records through each client and codec, every byte back in order.

    python -m compat_tests.million [--bootstrap HOST:PORT] [--records N] [--clients a,b] [--codecs a,b]

Records are a function of their number, so nothing is kept: the reader computes what must come and compares.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from compat_tests.against import add_bootstrap_option, chosen_broker
from compat_tests.client import CODECS, TopicPlan
from compat_tests.confluent import ConfluentClient
from compat_tests.oracle.jars import java, kafka_class_path
from compat_tests.oracle.tools import TOOLS

FIRST_MS = 1_700_000_000_000
_FILL = b"the quick brown fox jumps over the lazy dog; " * 3
Told = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes], ...], int]


def record(n: int) -> Told:
    """Key, value, headers and timestamp of record n. Never both null: two of the clients refuse that."""
    key = None if n % 7 == 0 else b"" if n % 7 == 1 else b"key-%d" % (n % 1000)
    value = (
        None if n % 97 == 5 and key is not None else b"" if n % 89 == 3 else b"%d %s" % (n, _FILL[n % 40 : n % 40 + 80])
    )
    headers = (("n", b"%d" % n), ("e", b"")) if n % 10 == 0 else ()
    return key, value, headers, FIRST_MS + n


class Judge:
    """Takes records in the order they are read and stops at the first that is not the expected one."""

    def __init__(self) -> None:
        self.count = 0

    def take(self, offset: int, told: Told) -> None:
        if offset != self.count or told != record(self.count):
            raise AssertionError(
                f"at offset {offset}, record {self.count}: got {told!r}, expected {record(self.count)!r}"
            )
        self.count += 1


def _confluent_produce(bootstrap: str, topic: str, count: int, codec: str) -> None:
    from confluent_kafka import Producer

    failures: list[Any] = []
    settings = {"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True, "linger.ms": 20}
    producer = Producer(settings)
    for n in range(count):
        key, value, headers, when = record(n)
        while True:
            try:
                producer.produce(
                    topic,
                    value,
                    key,
                    0,
                    on_delivery=lambda error, _: failures.append(error) if error else None,
                    timestamp=when,
                    headers=list(headers),
                )
                break
            except BufferError:
                producer.poll(1.0)
        if n % 1000 == 0:
            producer.poll(0)
    left = producer.flush(300)
    if left or failures:
        raise AssertionError(f"{left} undelivered, {len(failures)} failed, first {failures[:1]}")


def _confluent_consume(bootstrap: str, topic: str, count: int) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "never-joined", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    judge = Judge()
    while judge.count < count:
        messages: list[Any] = consumer.consume(10_000, 30.0)
        if not messages:
            raise AssertionError(f"nothing came after {judge.count} records")
        for m in messages:
            if m.error():
                raise AssertionError(str(m.error()))
            judge.take(m.offset(), (m.key(), m.value(), tuple(m.headers() or ()), m.timestamp()[1]))
    consumer.close()


def _kafka_python_produce(bootstrap: str, topic: str, count: int, codec: str) -> None:
    from kafka import KafkaProducer

    failures: list[Any] = []
    kind = None if codec == "none" else codec
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, compression_type=kind, acks="all", linger_ms=20, batch_size=65536
    )
    for n in range(count):
        key, value, headers, when = record(n)
        sent = producer.send(topic, value=value, key=key, headers=list(headers), partition=0, timestamp_ms=when)
        sent.add_errback(failures.append)
    producer.flush(300)
    producer.close()
    if failures:
        raise AssertionError(f"{len(failures)} failed, first {failures[0]}")


def _kafka_python_consume(bootstrap: str, topic: str, count: int) -> None:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False, max_poll_records=10_000
    )
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek(place, 0)
    judge = Judge()
    while judge.count < count:
        polled = consumer.poll(30_000)
        if not polled:
            raise AssertionError(f"nothing came after {judge.count} records")
        for m in polled[place]:
            judge.take(m.offset, (m.key, m.value, tuple(m.headers), m.timestamp))
    consumer.close()


def _aiokafka_produce(bootstrap: str, topic: str, count: int, codec: str) -> None:
    from aiokafka import AIOKafkaProducer

    async def work() -> None:
        kind = None if codec == "none" else codec
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=kind, acks="all", linger_ms=20, max_batch_size=65536
        )
        await producer.start()
        try:
            waiting: list[Any] = []
            for n in range(count):
                key, value, headers, when = record(n)
                waiting.append(
                    await producer.send(
                        topic, value=value, key=key, headers=list(headers), partition=0, timestamp_ms=when
                    )
                )
                if len(waiting) == 50_000:
                    await asyncio.gather(*waiting)
                    waiting.clear()
            await asyncio.gather(*waiting)
        finally:
            await producer.stop()

    asyncio.run(work())


def _aiokafka_consume(bootstrap: str, topic: str, count: int) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def work() -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False)
        await consumer.start()
        try:
            place = TopicPartition(topic, 0)
            consumer.assign([place])
            consumer.seek(place, 0)
            judge = Judge()
            while judge.count < count:
                polled = await consumer.getmany(timeout_ms=30_000, max_records=10_000)
                if not polled:
                    raise AssertionError(f"nothing came after {judge.count} records")
                for m in polled[place]:
                    judge.take(m.offset, (m.key, m.value, tuple(m.headers), m.timestamp))
        finally:
            await consumer.stop()

    asyncio.run(work())


def _tool(name: str, *arguments: str) -> list[str]:
    return [java(), "-Xmx512M", "-XX:+UseSerialGC", "-cp", kafka_class_path(), TOOLS[name], *arguments]


def _java_produce(bootstrap: str, topic: str, count: int, codec: str) -> None:
    """The perf tool writes the numbers 0, 1, 2 … as values, which makes its load one that can be verified."""
    settings = (f"compression.type={codec}", "acks=all", "batch.size=65536", "linger.ms=20")
    properties = [part for setting in settings for part in ("--command-property", setting)]
    load = ("--num-records", str(count), "--payload-monotonic", "--throughput", "-1")
    command = _tool("kafka-producer-perf-test", "--bootstrap-server", bootstrap, "--topic", topic, *load, *properties)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 or f"{count} records sent" not in done.stdout.splitlines()[-1]:
        raise AssertionError(done.stdout[-500:] + done.stderr[-500:])


def _java_consume(bootstrap: str, topic: str, count: int) -> None:
    place = ("--topic", topic, "--partition", "0", "--offset", "0", "--max-messages", str(count))
    command = _tool("kafka-console-consumer", "--bootstrap-server", bootstrap, *place)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as reader:
        assert reader.stdout is not None
        for n, line in enumerate(_lines(reader.stdout)):
            if line != b"%d" % n:
                raise AssertionError(f"line {n} is {line!r}")
        if n + 1 != count:
            raise AssertionError(f"{n + 1} of {count} records came")


def _lines(stream: Any) -> Iterator[bytes]:
    for line in stream:
        yield line.rstrip(b"\n")


Produce = Callable[[str, str, int, str], None]
Consume = Callable[[str, str, int], None]
CLIENTS: dict[str, tuple[Produce, Consume]] = {
    "confluent-kafka": (_confluent_produce, _confluent_consume),
    "kafka-python": (_kafka_python_produce, _kafka_python_consume),
    "aiokafka": (_aiokafka_produce, _aiokafka_consume),
    "java": (_java_produce, _java_consume),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add_bootstrap_option(parser)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--clients", default=",".join(CLIENTS))
    parser.add_argument("--codecs", default=",".join(CODECS))
    options = parser.parse_args()
    failed = 0
    with chosen_broker(options) as bootstrap:
        for client in options.clients.split(","):
            produce, consume = CLIENTS[client]
            for codec in options.codecs.split(","):
                topic = f"million-{client}-{codec}"
                with ConfluentClient(bootstrap) as admin:
                    admin.create_topic(topic, TopicPlan())
                started = time.monotonic()
                try:
                    produce(bootstrap, topic, options.records, codec)
                    middle = time.monotonic()
                    consume(bootstrap, topic, options.records)
                    verdict = f"in {middle - started:.1f} s, out {time.monotonic() - middle:.1f} s, every byte in order"
                except AssertionError as error:
                    failed += 1
                    verdict = f"FAILED: {error}"
                print(f"{client:16} {codec:7} {options.records} records: {verdict}", flush=True)
                with ConfluentClient(bootstrap) as admin:
                    admin.delete_topic(topic)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
