"""kbroker against Apache Kafka on the same machine, in one run: every work is done on both in turn, round after round.

Machines are shared and noisy, so the figures to read are the ratios of the medians, and the broker's CPU per message:
clients saturate before the brokers do.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

from bench import frames, works
from bench.servers import ApacheServer, KbrokerServer, Server
from bench.works import Figures

RESULTS = Path(__file__).parent / "results"

WORKS: dict[str, Callable[[Server], Figures]] = {
    "librdkafka produce, 100 B, acks=all": works.librdkafka_produce(100, 400_000),
    "librdkafka produce, 1 KiB, acks=all": works.librdkafka_produce(1024, 150_000),
    "librdkafka produce, 1 KiB, lz4": works.librdkafka_produce(1024, 150_000, "lz4"),
    "librdkafka produce, 1 KiB, zstd": works.librdkafka_produce(1024, 150_000, "zstd"),
    "raw produce, 16 KiB batches, 4 x 4": works.raw_produce(16 * 1024, 1024, 4, 4),
    "raw produce, 512 KiB batches, 4 x 4": works.raw_produce(512 * 1024, 1024, 4, 4),
    "raw produce, one 100 B record, 16 x 8": works.raw_produce(100, 100, 16, 8),
    "raw fetch, 1 MiB": works.raw_fetch(1024 * 1024),
    "raw fetch, 64 KiB": works.raw_fetch(64 * 1024),
    "librdkafka consume, 100 B": works.librdkafka_consume(100, 400_000),
    "librdkafka consume, 1 KiB": works.librdkafka_consume(1024, 200_000),
    "produce to ack, one at a time": works.ack_latency(),
    "ApiVersions, 16 x 8": works.raw_small(lambda _topic: frames.api_versions()),
    "Metadata of one topic, 16 x 8": works.raw_small(frames.metadata),
}

# Figures of which less is better; of all others more is.
LESS_IS_BETTER = ("CPU", "µs", "MiB", "seconds")


def ratio(figure: str, kbroker: float, apache: float) -> str:
    if kbroker == 0 or apache == 0:
        return "-"
    if figure.startswith(LESS_IS_BETTER) or "µs" in figure:
        return f"1/{apache / kbroker:.1f}" if kbroker <= apache else f"{kbroker / apache:.2f}x"
    return f"{kbroker / apache:.2f}x"


def race(rounds: int, only: str, warm_up: int) -> list[dict[str, object]]:
    chosen = {name: work for name, work in WORKS.items() if only in name}
    rows: list[dict[str, object]] = []
    apache, kbroker = ApacheServer(), KbrokerServer()
    try:
        idle = {server.name: server.resident_mib() for server in (apache, kbroker)}
        for name, work in chosen.items():
            for _ in range(warm_up):
                work(apache)
            seen: dict[str, list[Figures]] = {"apache": [], "kbroker": []}
            for turn in range(rounds):
                for server in (apache, kbroker) if turn % 2 else (kbroker, apache):
                    seen[server.name].append(work(server))
            rows += report(name, seen)
        memory = {
            "MiB resident, idle": idle,
            "MiB resident, after the race": {server.name: server.resident_mib() for server in (apache, kbroker)},
            "seconds to ready": {server.name: server.started_in for server in (apache, kbroker)},
        }
        for figure, values in memory.items():
            rows += report("the process", {name: [{figure: value}] for name, value in values.items()})
    finally:
        kbroker.stop()
        apache.stop()
    rows += spinning(rounds)
    return rows


def spinning(rounds: int) -> list[dict[str, object]]:
    """Ack latency of a kbroker whose process also runs a busy Python thread, beside one that is at rest."""
    work = works.ack_latency()
    seen: dict[str, list[Figures]] = {"at rest": [], "spinning": []}
    brokers = {"at rest": KbrokerServer(), "spinning": KbrokerServer(spinning=True)}
    try:
        for _ in range(rounds):
            for name, server in brokers.items():
                seen[name].append(work(server))
    finally:
        for server in brokers.values():
            server.stop()
    rows = []
    for figure in seen["at rest"][0]:
        rest, busy = (statistics.median(one[figure] for one in seen[name]) for name in ("at rest", "spinning"))
        print(f"{'ack with a spinning Python thread':40} {figure:20} {busy:>12.1f} {rest:>12.1f} {busy / rest:>10.2f}x")
        rows.append({"work": "spinning", "figure": figure, "spinning": busy, "at rest": rest, "ratio": busy / rest})
    return rows


def report(name: str, seen: dict[str, list[Figures]]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for figure in seen["kbroker"][0]:
        ours, theirs = (statistics.median(one[figure] for one in seen[who]) for who in ("kbroker", "apache"))
        text = ratio(figure, ours, theirs)
        print(f"{name:40} {figure:20} {ours:>12.1f} {theirs:>12.1f} {text:>11}", flush=True)
        rows.append({"work": name, "figure": figure, "kbroker": ours, "apache": theirs, "ratio": text})
    return rows


def commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm-up", type=int, default=1, help="rounds that only warm Apache Kafka's JVM")
    parser.add_argument("--only", default="", help="run the works whose name contains this")
    arguments = parser.parse_args()
    print(f"{'work':40} {'figure':20} {'kbroker':>12} {'apache':>12} {'ratio':>11}")
    rows = race(arguments.rounds, arguments.only, arguments.warm_up)
    machine = {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count(), "kernel": platform.release()}
    when = datetime.now(timezone.utc)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"race-{when:%Y%m%d-%H%M%S}.json"
    path.write_text(
        json.dumps(
            {"commit": commit(), "machine": machine, "rounds": arguments.rounds, "at": when.isoformat(), "rows": rows},
            indent=1,
        )
        + "\n"
    )
    print(f"kept in {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")


if __name__ == "__main__":
    began = time.monotonic()
    main()
    print(f"{time.monotonic() - began:.0f} s")
