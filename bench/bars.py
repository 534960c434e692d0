"""What the race must show: for each figure that is judged, its bar. A figure without one is shown, not judged."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bar:
    """The ratio is kbroker's median divided by its rival's; a bar in figures of its own is held against kbroker's."""

    text: str
    ratio_min: float = 0.0
    ratio_max: float = float("inf")
    figure_max: float = float("inf")

    def met(self, ours: float, ratio: float) -> bool:
        return self.ratio_min <= ratio <= self.ratio_max and ours < self.figure_max


def at_least(times: float) -> Bar:
    return Bar("not lower" if times == 1 else f"{times:g}x", ratio_min=times)


def at_most(share: float) -> Bar:
    """A share given as its inverse: 3 is a third."""
    return Bar("not higher" if share == 1 else f"1/{share:g}", ratio_max=1 / share)


CLIENT_PRODUCE = {"messages/s": at_least(1), "CPU s per million": at_most(3)}
COMPRESSED = {"CPU s per million": at_most(2)}
CLIENT_CONSUME = {"messages/s": at_least(1), "CPU s per million": at_most(2)}
LOW_LOAD = {"p50 µs": at_most(2), "p99 µs": at_most(3)}
BESIDE_PYTHON = {"p99 µs": Bar("at most 2x", ratio_max=2)}
COMMITS = {"requests/s": at_least(1.2), "CPU µs per request": at_most(2)}
HEARTBEATS = {"requests/s": at_least(1.2), "CPU µs per request": at_most(2)}
SOONER = Bar("sooner", ratio_max=0.9)
MORE = Bar("more", ratio_min=1.1)
COMMIT_TIMES = {"commit p50 µs": SOONER, "commit p99 µs": SOONER}
TRANSACTIONS = {"transactions/s": MORE, **COMMIT_TIMES}
MANY_TRANSACTIONS = {"transactions/s": MORE}  # who commits ten times as often has more to wait for: see the paced ones

# What Spark reads, and how long its records are: a race of its own, `bench.spark`.
SPARK_READS = {"Spark batch read, 1 M x 100 B": 100, "Spark batch read, 1 M x 1 KiB": 1024}

# The end of a work's name in the race on fresh memory. There no figure may be behind Apache Kafka's.
FRESH_MEMORY = ", fresh memory"
NOT_BEHIND_BYTES = {"MB/s": at_least(1), "CPU s per GB": at_most(1)}
NOT_BEHIND_REQUESTS = {"requests/s": at_least(1), "CPU µs per request": at_most(1)}
NOT_BEHIND_MESSAGES = {"messages/s": at_least(1), "CPU s per million": at_most(1)}
NOT_BEHIND_LATENCY = {"p50 µs": at_most(1), "p99 µs": at_most(1)}

BARS: dict[str, dict[str, Bar]] = {
    "raw produce, 16 KiB batches, 4 x 4" + FRESH_MEMORY: NOT_BEHIND_BYTES,
    "raw produce, 512 KiB batches, 4 x 4" + FRESH_MEMORY: NOT_BEHIND_BYTES,
    "raw produce, one 100 B record, 16 x 8" + FRESH_MEMORY: NOT_BEHIND_REQUESTS,
    "raw fetch, 1 MiB" + FRESH_MEMORY: NOT_BEHIND_BYTES,
    "raw fetch, 64 KiB" + FRESH_MEMORY: NOT_BEHIND_BYTES,
    "produce to ack, low load" + FRESH_MEMORY: NOT_BEHIND_LATENCY,
    "produce to consumer, low load" + FRESH_MEMORY: NOT_BEHIND_LATENCY,
    "librdkafka produce, 1 KiB, acks=all" + FRESH_MEMORY: NOT_BEHIND_MESSAGES,
    "librdkafka produce, 100 B, acks=all": CLIENT_PRODUCE,
    "librdkafka produce, 1 KiB, acks=all": CLIENT_PRODUCE,
    "librdkafka produce, 100 B, lz4": COMPRESSED,
    "librdkafka produce, 1 KiB, lz4": COMPRESSED,
    "librdkafka produce, 100 B, zstd": COMPRESSED,
    "librdkafka produce, 1 KiB, zstd": COMPRESSED,
    "raw produce, 16 KiB batches, 4 x 4": {"MB/s": at_least(3), "CPU s per GB": at_most(5)},
    "raw produce, 512 KiB batches, 4 x 4": {"MB/s": at_least(1.5), "CPU s per GB": at_most(2)},
    "raw produce, one 100 B record, 16 x 8": {"requests/s": at_least(3), "CPU µs per request": at_most(5)},
    "raw fetch, 1 MiB": {"MB/s": at_least(1), "CPU s per GB": at_most(1)},
    "raw fetch, 64 KiB": {"MB/s": at_least(2), "CPU s per GB": at_most(3)},
    "librdkafka consume, 100 B": CLIENT_CONSUME,
    "librdkafka consume, 1 KiB": CLIENT_CONSUME,
    "produce to ack, low load": LOW_LOAD,
    "produce to consumer, low load": LOW_LOAD,
    "produce to ack, a Python thread spins": BESIDE_PYTHON,
    "produce to consumer, a Python thread spins": BESIDE_PYTHON,
    "ApiVersions, 16 x 8": {"requests/s": at_least(3)},
    "Metadata of one topic, 16 x 8": {"requests/s": at_least(1.5)},
    "1,000 connections": {"p99 µs": at_most(2)},
    "OffsetCommit, 50 groups, 50 x 1": COMMITS,
    "OffsetCommit, 16 groups, 16 x 8": COMMITS,
    "Heartbeat, 50 groups, 50 x 1": HEARTBEATS,
    "Heartbeat, 16 groups, 16 x 8": HEARTBEATS,
    "a group of 100, one more joins": {"seconds": SOONER, "broker CPU s": at_most(2)},
    "500 groups at once": {"seconds": SOONER, "broker CPU s": at_most(2)},
    "first record, 1 classic consumer": {"seconds": SOONER},
    "first record, 4 classic consumers": {"seconds": at_most(4)},
    "first record, 1 consumer, KIP-848": {"seconds": SOONER},
    "first record, 4 consumers, KIP-848": {"seconds": at_most(4)},
    "transactions, 1 x 100 B": TRANSACTIONS,
    "transactions, 1 x 100 B, 8 producers": MANY_TRANSACTIONS,
    "transactions, 1 x 100 B, 8 producers, 400/s": COMMIT_TIMES,
    "transactions, 100 x 1 KiB": TRANSACTIONS,
    "transactions, 100 x 1 KiB, 8 producers": MANY_TRANSACTIONS,
    "transactions, 100 x 1 KiB, 8 producers, 400/s": COMMIT_TIMES,
    "with offsets, 1 x 100 B": TRANSACTIONS,
    "with offsets, 1 x 100 B, 8 producers": MANY_TRANSACTIONS,
    "with offsets, 1 x 100 B, 8 producers, 400/s": COMMIT_TIMES,
    "older flow, 1 x 100 B": TRANSACTIONS,
    "older flow, 1 x 100 B, 8 producers": MANY_TRANSACTIONS,
    "older flow, 1 x 100 B, 8 producers, 400/s": COMMIT_TIMES,
    "librdkafka transactions, 1 x 100 B": TRANSACTIONS,
    "librdkafka transactions, 100 x 1 KiB": TRANSACTIONS,
    "500 topics x 4 partitions, create": {"seconds to answer": at_most(1), "seconds to all led": at_most(1)},
    "500 topics x 4 partitions, restart": {"seconds": at_most(8)},
    "a fresh broker": {
        "seconds to first record": at_most(12),
        "MiB idle": at_most(6),
        "KiB per connection": Bar("under 32", figure_max=32),
    },
    "resident memory, after the load": {"MiB": at_most(10)},
    **{name: {"rows/s": at_least(1), "CPU s per million": at_most(3)} for name in SPARK_READS},
}
