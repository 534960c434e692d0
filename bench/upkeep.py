"""Produce latency while the broker cleans up behind others: one steady producer at low load, first with nothing else to
do, then while a large topic is compacted and retention removes thousands of segments of other topics.

    make upkeep                ROUNDS=… (5)

kbroker and Apache Kafka take turns. Each round fills the topics, waits until the disk has them, measures, and then lets
the upkeep begin by a change of the topics' settings. What is measured as "at work" ends when the old files are gone.
Memory is not settled: a page cache full of ballast would have to make room for gigabytes, on the same cores.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from bench import frames, report, wirelatency, wireload
from bench.client import Client
from bench.outcome import Race
from bench.race import APACHE, RESULTS, interleave, rows_of
from bench.servers import ApacheServer, KbrokerServer, Server
from bench.works.latency import PACED, at_rest
from bench.works.measure import Figures, percentile
from kbroker._core.record.records import Record, build_batch
from kbroker.protocol import messages

WORK = "produce to ack, low load"
MEASURED, COMPACTED = "measured", "compacted"
OLD_SMALL, OLD_LARGE = ("oldsmall0", "oldsmall1"), ("oldlarge0",)
BATCH_BYTES, RECORD_BYTES = 64 * 1024, 128
COMPACTED_BYTES, RETIRED_BYTES = 1 << 30, 512 << 20  # of the first, and of each that retention empties
SMALL_SEGMENT, LARGE_SEGMENT = 1 << 20, 128 << 20
CHUNK = {**PACED, "samples": 250}  # between two looks at the files
SETTINGS = {
    "log.segment.delete.delay.ms": "200",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.cleaner.backoff.ms": "100",
}
NEVER_MS = str(10**15)
TOPIC_RESOURCE = 2
PATIENCE_S = 120

TEXT = """\
## Producing while the broker cleans up

Written by `make upkeep`, last for commit {commit} at {at}. Medians of {rounds} rounds, in turn.

{table}
- One producer sends a record of 100 bytes about every millisecond, acks=all, one at a time.
- **At work** begins when a topic of {compacted} MiB, of whose records every second one is outdated, may be compacted,
  and {retired} MiB of other topics, in segments of {small} and {large} MiB, are past their retention. It ends when the
  old files are gone. The broker shares the machine's {cores} cores, page cache and disk with the client.
- **p99 at work / idle** is the median of each round's own ratio. It means something only where the machine was quiet
  before: what was in use of it while the broker was idle, the client included, is the last line.
"""


def keyed_batches() -> list[bytes]:
    """Half as many as fill the topic: each is sent twice, so that the second half makes the first one outdated."""
    chance = random.Random(1)
    now_ms = int(time.time() * 1000)
    a_batch = BATCH_BYTES // RECORD_BYTES
    return [
        build_batch(
            Record(timestamp=now_ms, key=b"%016d" % (number * a_batch + at), value=chance.randbytes(RECORD_BYTES - 24))
            for at in range(a_batch)
        )
        for number in range(COMPACTED_BYTES // BATCH_BYTES // 2)
    ]


def fill(server: Server, topic: str, batches: Iterable[bytes], count: int) -> None:
    wanted = [frames.produce(topic, 0, batch) for batch in batches]
    error_at = frames.produce_error_offset(topic)
    wireload.run(server.port, [wanted], depth=4, seconds=PATIENCE_S, requests=count, check_offset=error_at)


def create(client: Client, name: str, **configs: str) -> None:
    topic = messages.CreateTopicsRequest.CreatableTopic
    config = messages.CreateTopicsRequest.CreatableTopicConfig
    wanted = topic(
        name=name,
        num_partitions=1,
        replication_factor=1,
        configs=[config(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )
    answer = client.ask(messages.CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), 7)
    assert isinstance(answer, messages.CreateTopicsResponse)
    assert not answer.topics[0].error_code, answer


def alter(client: Client, name: str, key: str, value: str) -> None:
    request = messages.IncrementalAlterConfigsRequest
    resource = request.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE,
        resource_name=name,
        configs=[request.AlterableConfig(name=key, config_operation=0, value=value)],
    )
    answer = client.ask(request(resources=[resource]), 1)
    assert isinstance(answer, messages.IncrementalAlterConfigsResponse)
    assert not answer.responses[0].error_code, answer


def partition_files(server: Server, topic: str) -> Iterator[Path]:
    for directory in (server.data_dir / f"{topic}-0", server.data_dir / "data" / f"{topic}-0"):
        if directory.is_dir():
            yield from directory.iterdir()


def is_compacted(server: Server) -> bool:
    sizes = 0
    for path in partition_files(server, COMPACTED):
        if path.suffix in (".cleaned", ".swap", ".deleted"):
            return False
        if path.suffix == ".log":
            try:
                sizes += path.stat().st_size
            except FileNotFoundError:
                return False
    return sizes < 0.6 * COMPACTED_BYTES


def is_retired(server: Server, topic: str) -> bool:
    kept = [path.suffix for path in partition_files(server, topic)]
    return ".deleted" not in kept and kept.count(".log") <= 2


def settle_disk(server: Server) -> None:
    """Returns when what was written is on the disk and the machine has nothing more to do."""
    os.sync()
    at_rest(server)
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        busy, idle = machine_ticks()
        time.sleep(1)
        busy_now, idle_now = machine_ticks()
        if busy_now - busy < 0.03 * (idle_now - idle):
            return


def machine_ticks() -> tuple[int, int]:
    """Of all processors since the machine came up: in use, or waiting for the disk; idle."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split()[1:9]]
    return sum(ticks) - ticks[3], ticks[3]


class Rounds:
    def __init__(self) -> None:
        self.keyed = keyed_batches()
        self.plain = frames.batch(BATCH_BYTES)

    def __call__(self, server: Server) -> Figures:
        topics = [MEASURED, COMPACTED, *OLD_SMALL, *OLD_LARGE]
        with Client(server.port) as client:
            self.prepare(server, client)
            settle_disk(server)
            before = machine_ticks()
            idle = self.latencies(server, PACED)
            after = machine_ticks()
            began = time.monotonic()
            alter(client, COMPACTED, "min.compaction.lag.ms", "0")
            for name in (*OLD_SMALL, *OLD_LARGE):
                alter(client, name, "retention.bytes", "1")
            busy, ended = self.while_busy(server)
            client.delete_topics(topics)
        server.await_deleted(set(topics))
        used = after[0] - before[0]
        share = used / (used + after[1] - before[1])
        return {**figures(idle, busy, ended - began), "% of the machine in use, idle": 100 * share}

    def prepare(self, server: Server, client: Client) -> None:
        create(client, MEASURED)
        create(
            client,
            COMPACTED,
            cleanup_policy="compact",
            segment_bytes=str(LARGE_SEGMENT),
            min_compaction_lag_ms=NEVER_MS,
            max_message_bytes=str(4 * BATCH_BYTES),
        )
        for names, size in ((OLD_SMALL, SMALL_SEGMENT), (OLD_LARGE, LARGE_SEGMENT)):
            for name in names:
                create(client, name, segment_bytes=str(size))
        for name in (MEASURED, COMPACTED, *OLD_SMALL, *OLD_LARGE):
            if name != COMPACTED:
                client.await_writable(name)
        fill(server, COMPACTED, self.keyed, 2 * len(self.keyed))
        for name in (*OLD_SMALL, *OLD_LARGE):
            fill(server, name, [self.plain], RETIRED_BYTES // BATCH_BYTES)

    def while_busy(self, server: Server) -> tuple[list[float], float]:
        busy: list[float] = []
        deadline = time.monotonic() + PATIENCE_S
        while not (is_compacted(server) and all(is_retired(server, name) for name in (*OLD_SMALL, *OLD_LARGE))):
            assert time.monotonic() < deadline, f"{server.name} is not done after {PATIENCE_S} s"
            busy += self.latencies(server, CHUNK)
        return busy, time.monotonic()

    def latencies(self, server: Server, pace: dict[str, int]) -> list[float]:
        request = frames.produce(MEASURED, 0, frames.batch(100, 100))
        found = wirelatency.acks(server.port, request, error_at=frames.produce_error_offset(MEASURED), **pace)
        return found[10:]  # the connection is new


def figures(idle: list[float], busy: list[float], seconds: float) -> Figures:
    found: Figures = {}
    for share, name in ((0.5, "p50"), (0.99, "p99"), (0.999, "p99.9")):
        found[f"{name} µs, idle"] = percentile(idle, share)
        found[f"{name} µs, at work"] = percentile(busy, share)
    found["p99 at work / idle"] = found["p99 µs, at work"] / found["p99 µs, idle"]
    found["worst ms, at work"] = max(busy) / 1000
    found["seconds of work"] = seconds
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("kbroker", "apache"), help="one broker, nothing is written")
    asked = parser.parse_args()
    work = Rounds()
    makers: dict[str, Callable[[], Server]] = {
        "kbroker": lambda: KbrokerServer(config=SETTINGS),
        APACHE: lambda: ApacheServer(config=SETTINGS),
    }
    if asked.only:
        makers = {name: make for name, make in makers.items() if name.lower().startswith(asked.only)}
    servers: dict[str, Server] = {}
    try:
        servers = {name: make() for name, make in makers.items()}
        seen = interleave({name: partial(work, one) for name, one in servers.items()}, asked.rounds)
    finally:
        for one in servers.values():
            one.stop()
    if asked.only:
        for figures_seen in next(iter(seen.values())):
            print("  ".join(f"{name} {value:.2f}" for name, value in figures_seen.items()))
        return
    rows = list(rows_of(WORK, APACHE, seen["kbroker"], seen[APACHE]))
    for row in rows:
        print(report.line(row))
    race = Race.of(rows, rounds=asked.rounds, warm_minutes=0)
    print(f"kept in {race.keep(RESULTS, 'upkeep')}")
    report.put_section("upkeep", section(race))


def section(race: Race) -> str:
    return TEXT.format(
        commit=race.commit,
        at=race.at,
        rounds=race.rounds,
        table=report.table(APACHE, race.rows),
        compacted=COMPACTED_BYTES >> 20,
        retired=(len(OLD_SMALL) + len(OLD_LARGE)) * RETIRED_BYTES >> 20,
        small=SMALL_SEGMENT >> 20,
        large=LARGE_SEGMENT >> 20,
        cores=race.machine["cores"],
    )


if __name__ == "__main__":
    main()
