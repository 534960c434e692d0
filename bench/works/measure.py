"""What every work needs: a topic of its own, the broker's CPU over a stretch of time, percentiles."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

from bench import frames, wireload
from bench.client import Client
from bench.servers import Server

Figures = dict[str, float]
Work = Callable[[Server], Figures]
SECONDS = 3.0
_names = count()


def new_name() -> str:
    return f"race{next(_names):06d}"


def make_topic(server: Server, partitions: int) -> str:
    """A topic whose every partition holds one small record: Apache Kafka answers a creation before it is applied."""
    name = new_name()
    with Client(server.port) as client:
        client.create_topics([name], partitions)
        client.await_writable(name, partitions)
    return name


@contextmanager
def topic(server: Server, partitions: int = 4) -> Iterator[str]:
    """A topic for one work, deleted behind it: else the disk's writing back would be measured with the next one."""
    name = make_topic(server, partitions)
    try:
        yield name
    finally:
        with Client(server.port) as client:
            client.delete_topics([name])
        server.await_deleted({name})


def fill(server: Server, topic: str, record_bytes: int, messages: int, partition: int = 0) -> None:
    """Puts at least `messages` records into one partition with the load generator."""
    per_batch = max(1, 65536 // record_bytes)
    batch = frames.batch(per_batch * record_bytes, record_bytes)
    wireload.run(
        server.port,
        [[frames.produce(topic, partition, batch)]],
        depth=1,
        seconds=600,
        requests=-(-messages // per_batch),
        check_offset=frames.produce_error_offset(topic),
    )


@dataclass
class Meter:
    """Wall clock, broker CPU, and the CPU of this process, which is the client, over one piece of work."""

    server: Server

    def __enter__(self) -> Meter:
        self.cpu = -self.server.cpu_seconds()
        self.client_cpu = -time.process_time()
        self.wall = -time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall += time.monotonic()
        self.cpu += self.server.cpu_seconds()
        self.client_cpu += time.process_time()

    def per_million(self, messages: int) -> dict[str, float]:
        return {
            "messages/s": messages / self.wall,
            "CPU s per million": self.cpu / messages * 1e6,
            "client CPU s per million": self.client_cpu / messages * 1e6,
        }


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return float(ordered[min(len(ordered) - 1, int(len(ordered) * share))])
