"""What a broker's CPU pays for idempotence: the same requests with and without a producer id, in turn.

    python -m bench.idempotence [--pairs 20] [--python other/tree/.venv/bin/python ...]

Each tree given is a kbroker of its own, so that two of them are compared under the same weather. A pair is one round of
plain requests and one of numbered ones; told is the median of the pairs.
"""

from __future__ import annotations

import argparse
import re
import socket
import statistics
import struct
import subprocess
import tempfile
import time
from pathlib import Path

from kbroker._core.record.records import Record, build_batch
from kbroker.protocol import codec
from kbroker.protocol.messages import (
    CreateTopicsRequest,
    FetchRequest,
    FetchResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)

REQUESTS = 12_000
AHEAD = 64  # requests under way
LISTENING = re.compile(r"127\.0\.0\.1:(\d+)")


class Server:
    def __init__(self, python: str, directory: Path) -> None:
        self.name = python
        self.process = subprocess.Popen(
            [python, "-m", "kbroker", "start", "--listeners", "PLAINTEXT://127.0.0.1:0", "--data-dir", str(directory)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=Path(python).absolute().parents[2],
        )
        assert self.process.stdout is not None
        port = 0
        while not port:
            line = self.process.stdout.readline()
            assert line, "the broker did not start"
            found = LISTENING.search(line) if "started" in line else None
            port = int(found.group(1)) if found else 0
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = self.socket.makefile("rb")

    def cpu_ns(self) -> int:
        tasks = Path(f"/proc/{self.process.pid}/task")
        return sum(int((one / "schedstat").read_text().split()[0]) for one in tasks.iterdir())

    def reply(self) -> bytes:
        (size,) = struct.unpack(">i", self.stream.read(4))
        return self.stream.read(size)

    def ask(self, request: object, version: int) -> bytes:
        frame = codec.encode_request(request, version, 1, "bench")  # type: ignore[arg-type]
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)
        return self.reply()

    def run(self, frames: list[bytes]) -> float:
        """CPU microseconds a request."""
        before = self.cpu_ns()
        for at in range(0, len(frames), AHEAD):
            turn = frames[at : at + AHEAD]
            self.socket.sendall(b"".join(turn))
            for _ in turn:
                last = self.reply()
        spent = self.cpu_ns() - before
        if frames[0][4:6] == b"\0\0":
            _, produced = codec.decode_response(ProduceResponse, 9, last)
            assert produced.responses[0].partition_responses[0].error_code == 0, produced
        else:
            _, fetched = codec.decode_response(FetchResponse, 12, last)
            assert fetched.responses[0].partitions[0].error_code == 0, fetched
        return spent / len(frames) / 1000

    def stop(self) -> None:
        self.socket.close()
        self.process.terminate()
        self.process.wait()


def framed(request: object, version: int) -> bytes:
    frame = codec.encode_request(request, version, 1, "bench")  # type: ignore[arg-type]
    return struct.pack(">i", len(frame)) + frame


def produce(topic: str, records: bytes) -> bytes:
    part = ProduceRequest.PartitionProduceData(index=0, records=records)
    data = ProduceRequest.TopicProduceData(name=topic, partition_data=[part])
    return framed(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data]), 9)


def fetch(topic: str, offset: int, isolation: int) -> bytes:
    part = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=4096)
    asked = FetchRequest.FetchTopic(topic=topic, partitions=[part])
    return framed(
        FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, isolation_level=isolation, topics=[asked]), 12
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--python", nargs="+", default=[".venv/bin/python"])
    options = parser.parse_args()
    now = int(time.time() * 1000)  # records from long ago would be taken by retention while this runs
    record = [Record(timestamp=now, value=b"x" * options.size)]
    plain = [produce("plain", build_batch(record))] * REQUESTS
    with tempfile.TemporaryDirectory() as home:
        servers = [Server(str(Path(one).absolute()), Path(home) / str(n)) for n, one in enumerate(options.python)]
        ids = {}
        for one in servers:
            topics = [
                CreateTopicsRequest.CreatableTopic(name=n, num_partitions=1, replication_factor=1)
                for n in ("plain", "numbered")
            ]
            one.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7)
            _, told = codec.decode_response(
                InitProducerIdResponse, 4, one.ask(InitProducerIdRequest(transaction_timeout_ms=1), 4)
            )
            ids[one] = told.producer_id
            one.run(plain)
        figures: dict[tuple[str, str], list[float]] = {}
        for turn in range(options.pairs):
            first = turn * REQUESTS
            for one in servers if turn % 2 == 0 else reversed(servers):
                numbered = [
                    produce(
                        "numbered", build_batch(record, producer_id=ids[one], producer_epoch=0, base_sequence=first + n)
                    )
                    for n in range(REQUESTS)
                ]
                kinds = [("plain", plain), ("idempotent", numbered)]
                for kind, frames in kinds if turn % 4 < 2 else reversed(kinds):
                    figures.setdefault((one.name, kind), []).append(one.run(frames))
                for isolation in (0, 1):
                    reads = [fetch("plain", n, isolation) for n in range(4000)]
                    figures.setdefault((one.name, f"fetch, isolation {isolation}"), []).append(one.run(reads))
        for one in servers:
            one.stop()
    for (name, kind), values in sorted(figures.items()):
        print(f"{name:60} {kind:20} {statistics.median(values):8.3f} us of CPU a request")
    for one in servers:
        ratios = [b / a for a, b in zip(figures[one.name, "plain"], figures[one.name, "idempotent"], strict=True)]
        print(f"{one.name:60} idempotent / plain: {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
