"""The machine's own share of a latency: the same client and the same frames, answered by a process that does nothing.

`python -m bench.works.floor CONNECTIONS` is that process.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bench import frames, wirefloor, wirelatency
from bench.works.latency import p50_p99
from bench.works.measure import Figures

TOPIC = "race000000"
BATCH = frames.batch(100, 100)
ACKNOWLEDGED = bytes([0, 0, 0, 96]) + bytes(96)
FETCHED = bytes([0, 0, 0, 252]) + bytes(252)


@contextmanager
def bare(connections: int) -> Iterator[int]:
    """The port of one that answers so many connections."""
    command = [sys.executable, "-m", "bench.works.floor", str(connections)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def to_ack(pace: dict[str, int]) -> Figures:
    with bare(1) as port:
        error_at = frames.produce_error_offset(TOPIC)
        return p50_p99(wirelatency.acks(port, frames.produce(TOPIC, 0, BATCH), error_at=error_at, **pace))


def to_consumer(pace: dict[str, int]) -> Figures:
    with bare(2) as port:
        latencies_us = wirelatency.relays(
            port,
            frames.produce(TOPIC, 0, BATCH),
            frames.fetch(TOPIC, 0, 0, 1 << 20),
            produce_error_at=frames.produce_error_offset(TOPIC),
            fetch_error_at=frames.FETCH_ERROR_OFFSET,
            fetch_offset_at=frames.fetch_offset_at(TOPIC),
            first_offset=1,
            records_bytes=len(BATCH),
            **pace,
        )
    return p50_p99(latencies_us)


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        ends = [listener.accept()[0] for _ in range(int(sys.argv[1]))]
        for end in ends:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_CONGESTION"):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
        wirefloor.answer(ends[0].fileno(), ends[1].fileno() if len(ends) > 1 else -1, ACKNOWLEDGED, FETCHED)


if __name__ == "__main__":
    main()
