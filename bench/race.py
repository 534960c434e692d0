"""kbroker against Apache Kafka on the same machine, in one run: every work is done on both in turn, round after round.

Machines are shared and noisy, so the figures to read are the ratios of the medians, and the broker's CPU per message:
clients saturate before the brokers do. Apache Kafka is first warmed for minutes with the same works.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench import frames, report
from bench.bars import BARS, FRESH_MEMORY, SPARK_READS
from bench.fresh import Sponge
from bench.outcome import Race, Row
from bench.servers import SETTINGS, ApacheServer, KbrokerServer, Server
from bench.settle import Ballast
from bench.transactors import Shape
from bench.works import floor, groups, latency, librdkafka, lives, raw, transactions
from bench.works.measure import Figures, Work

RESULTS = Path(__file__).parent / "results"
MILLION = 1_000_000

# On two brokers that run all the time, in this order: memory is looked at when the load is over.
WORKS: dict[str, Work] = {
    "librdkafka produce, 100 B, acks=all": librdkafka.produce(100, 2 * MILLION),
    "librdkafka produce, 1 KiB, acks=all": librdkafka.produce(1024, 700_000),
    "librdkafka produce, 100 B, lz4": librdkafka.produce(100, 2 * MILLION, "lz4"),
    "librdkafka produce, 1 KiB, lz4": librdkafka.produce(1024, MILLION, "lz4"),
    "librdkafka produce, 100 B, zstd": librdkafka.produce(100, 2 * MILLION, "zstd"),
    "librdkafka produce, 1 KiB, zstd": librdkafka.produce(1024, MILLION, "zstd"),
    "raw produce, 16 KiB batches, 4 x 4": raw.produce(16 * 1024, 1024, 4, 4),
    "raw produce, 512 KiB batches, 4 x 4": raw.produce(512 * 1024, 1024, 4, 4),
    "raw produce, one 100 B record, 16 x 8": raw.produce(100, 100, 16, 8),
    "raw fetch, 1 MiB": raw.fetch(1024 * 1024),
    "raw fetch, 64 KiB": raw.fetch(64 * 1024),
    "librdkafka consume, 100 B": librdkafka.consume(100, 3 * MILLION),
    "librdkafka consume, 1 KiB": librdkafka.consume(1024, 2 * MILLION),
    "produce to ack, low load": latency.to_ack(latency.PACED),
    "produce to ack, back to back": latency.to_ack(latency.BACK_TO_BACK),
    "produce to consumer, low load": latency.to_consumer(latency.PACED),
    "produce to consumer, back to back": latency.to_consumer(latency.BACK_TO_BACK),
    "ApiVersions, 16 x 8": raw.small(lambda _topic: frames.api_versions()),
    "Metadata of one topic, 16 x 8": raw.small(frames.metadata),
    "1,000 connections": latency.crowd(),
    "resident memory, after the load": lives.resident,
    "500 topics x 4 partitions, create": lives.create_topics,
}
# The group coordinators, in a race of their own: `--groups`.
GROUPS: dict[str, Work] = {
    "OffsetCommit, 50 groups, 50 x 1": groups.commits(50, 1),
    "OffsetCommit, 16 groups, 16 x 8": groups.commits(16, 8),
    "Heartbeat, 50 groups, 50 x 1": groups.heartbeats(50, 1),
    "Heartbeat, 16 groups, 16 x 8": groups.heartbeats(16, 8),
    "a group of 100, one more joins": groups.rebalance(100),
    "500 groups at once": groups.many_groups(500),
    "first record, 1 classic consumer": groups.first_record(1, "classic"),
    "first record, 4 classic consumers": groups.first_record(4, "classic"),
    "first record, 1 consumer, KIP-848": groups.first_record(1, "consumer"),
    "first record, 4 consumers, KIP-848": groups.first_record(4, "consumer"),
    "100 members come and go": groups.storm(100, 5.0),
}
# Transactions, in a race of their own: `--transactions`.
SMALL, LARGE = Shape(1, 100, 1), Shape(25, 1024, 4)  # 1 x 100 B in one partition, 100 x 1 KiB over four
OFFSETS, OLDER = replace(SMALL, group="race"), replace(SMALL, older=True)
PACED_S = 8 / 400  # for each of eight producers: 400 a second in all, which both brokers keep up with
TRANSACTIONS: dict[str, Work] = {
    "transactions, 1 x 100 B": transactions.commits(1, SMALL),
    "transactions, 1 x 100 B, 8 producers": transactions.commits(8, SMALL),
    "transactions, 100 x 1 KiB": transactions.commits(1, LARGE),
    "transactions, 100 x 1 KiB, 8 producers": transactions.commits(8, LARGE),
    "with offsets, 1 x 100 B": transactions.commits(1, OFFSETS),
    "with offsets, 1 x 100 B, 8 producers": transactions.commits(8, OFFSETS),
    "older flow, 1 x 100 B": transactions.commits(1, OLDER),
    "older flow, 1 x 100 B, 8 producers": transactions.commits(8, OLDER),
    "transactions, 1 x 100 B, 8 producers, 400/s": transactions.commits(8, replace(SMALL, every_s=PACED_S)),
    "transactions, 100 x 1 KiB, 8 producers, 400/s": transactions.commits(8, replace(LARGE, every_s=PACED_S)),
    "with offsets, 1 x 100 B, 8 producers, 400/s": transactions.commits(8, replace(OFFSETS, every_s=PACED_S)),
    "older flow, 1 x 100 B, 8 producers, 400/s": transactions.commits(8, replace(OLDER, every_s=PACED_S)),
    "librdkafka transactions, 1 x 100 B": transactions.librdkafka(1, 100),
    "librdkafka transactions, 100 x 1 KiB": transactions.librdkafka(100, 1024),
}
# In memory that the machine must fetch from its host, in a race of its own: `--fresh`.
FRESH: dict[str, Work] = {
    name + FRESH_MEMORY: WORKS[name]
    for name in (
        "raw produce, 16 KiB batches, 4 x 4",
        "raw produce, 512 KiB batches, 4 x 4",
        "raw produce, one 100 B record, 16 x 8",
        "raw fetch, 1 MiB",
        "raw fetch, 64 KiB",
        "produce to ack, low load",
        "produce to consumer, low load",
        "librdkafka produce, 1 KiB, acks=all",
    )
}
RESTART = lives.Restart()
# On brokers that the work itself starts and stops.
LIVES: dict[str, Work] = {"a fresh broker": lives.fresh, "500 topics x 4 partitions, restart": RESTART}
# On a kbroker that is alone, on one whose process also runs a busy Python thread, and beside a busy process.
BESIDE: dict[str, Work] = {
    "produce to ack": latency.to_ack(latency.PACED),
    "produce to consumer": latency.to_consumer(latency.PACED),
}
# The same two on a kbroker that is alone, and on a process that does nothing but answer.
FLOORS: dict[str, Callable[[dict[str, int]], Figures]] = {
    "produce to ack": floor.to_ack,
    "produce to consumer": floor.to_consumer,
}
ECHO, NEAR = "a bare echo", ", low load, alone"
THREAD, PROCESS = ", a Python thread spins", ", another process spins"
APACHE, ALONE = "Apache Kafka", "kbroker alone"
Prepare = Callable[[], Figures]


def unprepared() -> Figures:
    return {}


def interleave(
    turns: Mapping[str, Callable[[], Figures]], rounds: int, prepare: Prepare = unprepared
) -> dict[str, list[Figures]]:
    """Runs every turn once a round, `prepare` before each; the order changes from round to round.

    The figures that `prepare` returns are kept beside those of the turn.
    """
    seen: dict[str, list[Figures]] = {name: [] for name in turns}
    order = list(turns)
    for _ in range(rounds):
        for name in order:
            prepared = prepare()
            seen[name].append({**turns[name](), **prepared})
        order.reverse()
    return seen


def rows_of(name: str, rival: str, ours: list[Figures], theirs: list[Figures]) -> Iterator[Row]:
    for figure in ours[0]:
        yield Row(name, figure, rival, [one[figure] for one in ours], [one[figure] for one in theirs])


def warm(apache: Server, works: Mapping[str, Work], minutes: float) -> None:
    """Does the works on Apache Kafka until the time is over, so that its compiler has seen them all."""
    until = time.monotonic() + minutes * 60
    while works and time.monotonic() < until:
        for work in works.values():
            if time.monotonic() < until:
                work(apache)


def duel(
    works: Mapping[str, Work], lived: Mapping[str, Work], rounds: int, warm_minutes: float, prepare: Prepare
) -> Iterator[Row]:
    """The works on both brokers, which run all the time, and those that start brokers of their own."""
    if works or lived:
        apache, kbroker = ApacheServer(), KbrokerServer(config=SETTINGS)
        try:
            warm(apache, works, warm_minutes)
            for name, work in {**works, **lived}.items():
                turns = {"kbroker": partial(work, kbroker), APACHE: partial(work, apache)}
                seen = interleave(turns, rounds, prepare)
                yield from rows_of(name, APACHE, seen["kbroker"], seen[APACHE])
        finally:
            kbroker.stop()
            apache.stop()
            RESTART.clear()


def race(rounds: int, only: str, warm_minutes: float, prepare: Prepare) -> Iterator[Row]:
    works, lived = ({name: work for name, work in kind.items() if only in name} for kind in (WORKS, LIVES))
    yield from duel(works, lived, rounds, warm_minutes, prepare)
    for name, work in BESIDE.items():
        if only in name + THREAD or only in name + PROCESS:
            ways = {how: partial(beside, work, how) for how in (ALONE, THREAD, PROCESS)}
            seen = interleave(ways, rounds, prepare)
            for how in (THREAD, PROCESS):
                yield from rows_of(name + how, ALONE, seen[how], seen[ALONE])
    for name, bare in FLOORS.items():
        if only in name + NEAR:
            turns = {ALONE: partial(beside, BESIDE[name], ALONE), ECHO: partial(bare, latency.PACED)}
            seen = interleave(turns, rounds, prepare)
            yield from rows_of(name + NEAR, ECHO, seen[ALONE], seen[ECHO])


def beside(work: Work, how: str) -> Figures:
    """The work on a kbroker of its own: what spins would otherwise take a core from everyone else's turn."""
    spinner = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if how == PROCESS else None
    try:
        kbroker = KbrokerServer(spinning=how == THREAD, config=SETTINGS)
        try:
            return work(kbroker)
        finally:
            kbroker.stop()
    finally:
        if spinner is not None:
            spinner.kill()
            spinner.wait()


def race_section(kind: str, works: Mapping[str, Work], arguments: argparse.Namespace, prepare: Prepare) -> None:
    """Runs the works of one kind on both brokers; the page has a section for each kind."""
    began = time.monotonic()
    print(report.HEADING)
    rows: list[Row] = []
    chosen = {name: work for name, work in works.items() if arguments.only in name}
    try:
        for row in duel(chosen, {}, arguments.rounds, arguments.warm_minutes, prepare):
            print(report.line(row), flush=True)
            rows.append(row)
    finally:  # what was found before a work failed is kept as well
        outcome = Race.of(rows, rounds=arguments.rounds, warm_minutes=arguments.warm_minutes)
        path = outcome.keep(RESULTS, kind)
        print(f"{report.judgement(outcome)} {time.monotonic() - began:.0f} s; kept in {path}")
    if not arguments.only:
        report.write_section(kind, outcome)


def main() -> None:
    known = {**WORKS, **LIVES, **GROUPS, **TRANSACTIONS, **FRESH, **SPARK_READS}.keys()
    unknown = BARS.keys() - known - {name + THREAD for name in BESIDE}
    assert not unknown, f"bars for works that are not there: {unknown}"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm-minutes", type=float, default=3, help="how long Apache Kafka is warmed with the works")
    parser.add_argument("--only", default="", help="run the works whose name contains this; the docs stay as they are")
    parser.add_argument("--groups", action="store_true", help="the race of the group coordinators")
    parser.add_argument("--transactions", action="store_true", help="the race of transactions")
    parser.add_argument("--fresh", action="store_true", help="the race in memory that the machine has never touched")
    arguments = parser.parse_args()
    sponge = Sponge()
    for kind, works, prepare in (
        ("groups", GROUPS, unprepared),  # coordinators do not fill memory
        ("transactions", TRANSACTIONS, unprepared),
        ("fresh", FRESH, sponge.soak),
    ):
        if getattr(arguments, kind):
            try:
                race_section(kind, works, arguments, prepare)
            finally:
                sponge.release()
            return
    began = time.monotonic()
    print(report.HEADING)
    rows: list[Row] = []
    ballast = Ballast()
    try:
        for row in race(arguments.rounds, arguments.only, arguments.warm_minutes, ballast.settle):
            print(report.line(row), flush=True)
            rows.append(row)
    finally:  # what was found before a work failed is kept as well
        ballast.drop()
        outcome = Race.of(rows, rounds=arguments.rounds, warm_minutes=arguments.warm_minutes)
        path = outcome.keep(RESULTS)
        print(f"{time.monotonic() - began:.0f} s; kept in {path}")
    if not arguments.only:
        report.write(outcome)


if __name__ == "__main__":
    main()
