"""How long one record takes, to its acknowledgement and to a consumer that waits for it.

Low load means one request about every millisecond: the broker, with nothing else to do, has gone to sleep before each
one, as it has when a real application produces now and then. Back to back, the next request follows the answer at once;
the broker's threads are then still awake and the figures are lower for both.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench import frames, wirelatency, wireload
from bench.servers import Server
from bench.works.measure import Figures, Meter, Work, percentile, topic

PACED = {"samples": 3_000, "pause_us": 1_000}
BACK_TO_BACK = {"samples": 10_000, "pause_us": 0}
CONNECTIONS = 1_000
REQUESTS_PER_SECOND = 2_000


def p50_p99(latencies_us: Sequence[float]) -> Figures:
    """The first tenth is left out: connections are new and the topic's first pages are not there yet."""
    settled = latencies_us[len(latencies_us) // 10 :]
    return {"p50 µs": percentile(settled, 0.5), "p99 µs": percentile(settled, 0.99)}


def to_ack(pace: dict[str, int]) -> Work:
    batch = frames.batch(100, 100)

    def work(server: Server) -> Figures:
        with topic(server, 1) as name:
            error_at = frames.produce_error_offset(name)
            return p50_p99(wirelatency.acks(server.port, frames.produce(name, 0, batch), error_at=error_at, **pace))

    return work


def to_consumer(pace: dict[str, int]) -> Work:
    """A Fetch waits on one connection; the clock runs from the Produce on another until its answer has arrived."""
    batch = frames.batch(100, 100)

    def work(server: Server) -> Figures:
        with topic(server, 1) as name:
            latencies_us = wirelatency.relays(
                server.port,
                frames.produce(name, 0, batch),
                frames.fetch(name, 0, 0, 1 << 20),
                produce_error_at=frames.produce_error_offset(name),
                fetch_error_at=frames.FETCH_ERROR_OFFSET,
                fetch_offset_at=frames.fetch_offset_at(name),
                first_offset=1,  # behind the record that came with the topic
                records_bytes=len(batch),
                **pace,
            )
        return p50_p99(latencies_us)

    return work


def crowd(seconds: float = 4.0) -> Work:
    """One-record Produce requests over 1,000 open connections in turn, at a pace that both brokers keep up with."""
    batch = frames.batch(100, 100)

    def work(server: Server) -> Figures:
        with topic(server) as name, Meter(server) as meter:
            outcome = wireload.run(
                server.port,
                [[frames.produce(name, i % 4, batch)] for i in range(CONNECTIONS)],
                seconds=seconds,
                interval_us=1_000_000 // REQUESTS_PER_SECOND,
                check_offset=frames.produce_error_offset(name),
                latency_samples=int(REQUESTS_PER_SECOND * seconds * 2),
            )
        if outcome.replies < 0.9 * REQUESTS_PER_SECOND * seconds:
            raise RuntimeError(f"{outcome.replies} requests in {outcome.seconds:.1f} s: the pace was not kept")
        return {**p50_p99(outcome.latencies_us), "CPU µs per request": meter.cpu / outcome.replies * 1e6}

    return work


def at_rest(server: Server, patience_seconds: float = 20) -> None:
    """Returns once the broker has used under 2 % of one core for half a second."""
    deadline = time.monotonic() + patience_seconds
    while time.monotonic() < deadline:
        before = server.cpu_seconds()
        time.sleep(0.5)
        if server.cpu_seconds() - before < 0.01:
            return
