"""Prepared frames from the native load generator: here the broker is what saturates."""

from __future__ import annotations

from collections.abc import Callable

from bench import frames, wireload
from bench.servers import Server
from bench.works.measure import SECONDS, Figures, Meter, Work, fill, make_topic, topic

# What one turn writes at the most: past a tenth of the memory the system begins to write back, and measures its disk.
TURN_BYTES = 1_500_000_000


def produce(batch_bytes: int, record_bytes: int, connections: int, depth: int) -> Work:
    batch = frames.batch(batch_bytes, record_bytes)

    def work(server: Server) -> Figures:
        with topic(server) as name, Meter(server) as meter:
            requests = [[frames.produce(name, i % 4, batch)] for i in range(connections)]
            outcome = wireload.run(
                server.port,
                requests,
                depth=depth,
                seconds=SECONDS,
                requests=TURN_BYTES // len(batch),
                check_offset=frames.produce_error_offset(name),
            )
        return per_byte_and_request(outcome.sent_bytes, outcome, meter)

    return work


def fetch(fetch_bytes: int, connections: int = 4, depth: int = 1) -> Work:
    filled: dict[int, str] = {}
    records = 400_000

    def work(server: Server) -> Figures:
        if server.pid not in filled:
            filled[server.pid] = make_topic(server, 1)
            fill(server, filled[server.pid], 1024, records)
        name = filled[server.pid]
        step = max(64, fetch_bytes // 1024)
        offsets = list(range(step, records - 2 * step, step))  # past the small first batch
        requests = [
            [frames.fetch(name, 0, offset, fetch_bytes) for offset in offsets[i::connections]]
            for i in range(connections)
        ]
        with Meter(server) as meter:
            outcome = wireload.run(
                server.port,
                requests,
                depth=depth,
                seconds=SECONDS,
                check_offset=frames.FETCH_ERROR_OFFSET,
                reply_min_bytes=fetch_bytes // 2,
            )
        return per_byte_and_request(outcome.reply_bytes, outcome, meter)

    return work


def small(make_frame: Callable[[str], bytes], connections: int = 16, depth: int = 8) -> Work:
    def work(server: Server) -> Figures:
        with topic(server) as name, Meter(server) as meter:
            requests = [[make_frame(name)]] * connections
            outcome = wireload.run(server.port, requests, depth=depth, seconds=SECONDS)
        return per_request(outcome, meter)

    return work


def per_request(outcome: wireload.Outcome, meter: Meter) -> Figures:
    return {
        "requests/s": outcome.replies / outcome.seconds,
        "CPU µs per request": meter.cpu / outcome.replies * 1e6,
    }


def per_byte_and_request(moved_bytes: int, outcome: wireload.Outcome, meter: Meter) -> Figures:
    return {
        "MB/s": moved_bytes / outcome.seconds / 1e6,
        "CPU s per GB": meter.cpu / moved_bytes * 1e9,
        **per_request(outcome, meter),
    }
