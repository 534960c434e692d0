"""A hundred producers and a hundred consumers at once for a minute: nothing lost, doubled or out of order.

    python -m compat_tests.crowd [--bootstrap HOST:PORT] [--seconds 60] [--producers 100] [--consumers 100]

Each producer writes to two partitions in turn; each consumer follows one partition while it grows. A record says who
sent it and its number for that partition, so a consumer sees a loss, a repeat or a swap as it happens.
"""

from __future__ import annotations

import argparse
import multiprocessing
import struct
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from compat_tests.against import add_bootstrap_option, chosen_broker
from compat_tests.client import TopicPlan
from compat_tests.confluent import ConfluentClient

_TOPIC = "crowd"
_HEAD = struct.Struct(">iq")  # producer, its number for this partition
_FILL = b"x" * 88
_PER_TURN = 20
_PATIENCE_SECONDS = 60.0


def produce(bootstrap: str, number: int, partitions: int, seconds: float) -> dict[int, int]:
    """Sends until the time is over; returns the acknowledged records of each partition."""
    from confluent_kafka import Producer

    places = (number % partitions, (number + 1) % partitions)
    sent = dict.fromkeys(places, 0)
    acknowledged = dict.fromkeys(places, 0)
    failures: list[str] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(str(error))
        else:
            acknowledged[message.partition()] += 1

    codec = ("none", "lz4", "zstd", "gzip", "snappy")[number % 5]
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "compression.type": codec}
    )
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for _ in range(_PER_TURN):
            for place in places:
                producer.produce(_TOPIC, _HEAD.pack(number, sent[place]) + _FILL, None, place, on_delivery=delivered)
                sent[place] += 1
        producer.poll(0.1)
    left = producer.flush(_PATIENCE_SECONDS)
    if left or failures or acknowledged != sent:
        raise AssertionError(f"producer {number}: {left} left, failures {failures[:2]}, {acknowledged} of {sent}")
    return acknowledged


def consume(bootstrap: str, partition: int, finished: Any, totals: Any) -> dict[int, int]:
    """Follows one partition; returns how many records of each producer came, all of them in their order."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "never-joined", "enable.auto.commit": False})
    consumer.assign([TopicPartition(_TOPIC, partition, 0)])
    seen: dict[int, int] = {}
    offset = 0
    quiet_since = time.monotonic()
    while not (finished.is_set() and offset >= totals[partition]):
        messages: list[Any] = consumer.consume(5000, 0.5)
        if messages:
            quiet_since = time.monotonic()
        elif time.monotonic() - quiet_since > 2 * _PATIENCE_SECONDS:
            raise AssertionError(f"partition {partition} stopped at offset {offset} of {totals[partition]}")
        for message in messages:
            if message.error():
                raise AssertionError(f"partition {partition}: {message.error()}")
            producer, number = _HEAD.unpack_from(message.value())
            if message.offset() != offset or number != seen.get(producer, 0):
                raise AssertionError(
                    f"partition {partition} offset {message.offset()}: producer {producer} record {number}, "
                    f"expected offset {offset} record {seen.get(producer, 0)}"
                )
            seen[producer] = number + 1
            offset += 1
    consumer.close()
    return seen


@dataclass(frozen=True)
class Plan:
    """What every process of a run knows; the last three are shared between them."""

    bootstrap: str
    partitions: int
    seconds: float
    finished: Any
    totals: Any
    out: Any


def _crew(kind: str, numbers: list[int], plan: Plan) -> None:
    """One process of several threads, each a client of its own."""

    def work(number: int) -> None:
        try:
            if kind == "producer":
                plan.out.put((kind, number, produce(plan.bootstrap, number, plan.partitions, plan.seconds)))
            else:
                told = consume(plan.bootstrap, number % plan.partitions, plan.finished, plan.totals)
                plan.out.put((kind, number, told))
        except Exception as error:
            plan.out.put((kind, number, error))

    threads = [threading.Thread(target=work, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def run(bootstrap: str, producers: int, consumers: int, seconds: float) -> tuple[int, list[str]]:
    """How many records went through, and what was wrong."""
    partitions = consumers
    with ConfluentClient(bootstrap) as client:
        client.create_topic(_TOPIC, TopicPlan(partitions=partitions))
    context = multiprocessing.get_context("spawn")
    finished, totals, out = context.Event(), context.Array("q", partitions), context.Queue()
    plan = Plan(bootstrap, partitions, seconds, finished, totals, out)
    crews = [
        context.Process(target=_crew, args=(kind, list(range(first, count, 4)), plan))
        for kind, count in (("consumer", consumers), ("producer", producers))
        for first in range(4)
    ]
    for crew in crews:
        crew.start()
    sent: dict[tuple[int, int], int] = {}
    read: dict[tuple[int, int], int] = {}
    problems: list[str] = []
    for _ in range(producers + consumers):
        kind, number, told = out.get()
        if isinstance(told, Exception):
            problems.append(f"{kind} {number}: {told}")
            finished.set()
        elif kind == "producer":
            sent |= {(number, partition): count for partition, count in told.items()}
            for partition, count in told.items():
                totals[partition] += count
            if len({producer for producer, _ in sent}) == producers:
                finished.set()
        else:
            read |= {(producer, number % partitions): count for producer, count in told.items()}
    for crew in crews:
        crew.join()
    if sent != read and not problems:
        missing = {pair: count - read.get(pair, 0) for pair, count in sent.items() if read.get(pair) != count}
        problems.append(f"sent and read differ: {dict(list(missing.items())[:5])}")
    return sum(sent.values()), problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add_bootstrap_option(parser)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--producers", type=int, default=100)
    parser.add_argument("--consumers", type=int, default=100)
    options = parser.parse_args()
    with chosen_broker(options) as bootstrap:
        count, problems = run(bootstrap, options.producers, options.consumers, options.seconds)
    for problem in problems:
        print(f"FAILED: {problem}")
    print(
        f"{options.producers} producers, {options.consumers} consumers, {options.seconds:.0f} s: {count} records",
        end="",
    )
    print(", nothing lost" if not problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
