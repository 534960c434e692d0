"""Commits per second and CPU per commit: one connection that pipelines, and many that wait for each answer.

    python -m bench.commits [--seconds 5] [--connections 50] [--bootstrap host:port --pid N]

Each request commits one partition of a simple group, as auto-commit does. CPU is the broker's process, from /proc.
"""

from __future__ import annotations

import argparse
import os
import selectors
import socket
import struct
import tempfile
import time
from pathlib import Path

from compat_tests.kbroker_server import KBroker
from compat_tests.raw.connection import Connection
from kbroker.protocol.codec import encode_request
from kbroker.protocol.messages import OffsetCommitRequest

VERSION = 9
TOPIC = "commits"
PIPELINED = 64


def frame(group: str, number: int) -> bytes:
    part = OffsetCommitRequest.Partition(partition_index=number % 4, committed_offset=number, committed_metadata="")
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequest.Topic(name=TOPIC, partitions=[part])],
    )
    body = encode_request(request, VERSION, number, "bench")
    return struct.pack(">i", len(body)) + body


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def drive(bootstrap: str, connections: int, in_flight: int, seconds: float) -> int:
    host, port = bootstrap.split(":")
    chooser = selectors.DefaultSelector()
    frames = [[frame(f"group-{index}", number) for number in range(16)] for index in range(connections)]
    pending = [bytearray() for _ in range(connections)]
    sockets = []
    for index in range(connections):
        one = socket.create_connection((host, int(port)))
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one.sendall(b"".join(frames[index][number % 16] for number in range(in_flight)))
        chooser.register(one, selectors.EVENT_READ, index)
        sockets.append(one)
    done = 0
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for key, _ in chooser.select(0.1):
            index = key.data
            held = pending[index]
            held += key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
            at = answered = 0
            while len(held) - at >= 4 and len(held) - at - 4 >= int.from_bytes(held[at : at + 4], "big"):
                at += 4 + int.from_bytes(held[at : at + 4], "big")
                answered += 1
            del held[:at]
            if answered:
                key.fileobj.sendall(b"".join(frames[index][number % 16] for number in range(answered)))  # type: ignore[union-attr]
                done += answered
    for one in sockets:
        one.close()
    return done


def prepare(bootstrap: str) -> None:
    connection = Connection(bootstrap)
    made = {"name": TOPIC, "num_partitions": 4, "replication_factor": 1}
    connection.ask("CreateTopics", 7, {"topics": [made], "timeout_ms": 30_000})
    while True:
        found = connection.ask("FindCoordinator", 3, {"key": "group-0", "key_type": 0})
        if isinstance(found, dict) and found["error_code"] == 0:
            break
    connection.close()


def measure(bootstrap: str, pid: int, connections: int, in_flight: int, seconds: float) -> None:
    drive(bootstrap, connections, in_flight, 1.0)
    began, cpu = time.monotonic(), cpu_seconds(pid)
    done = drive(bootstrap, connections, in_flight, seconds)
    took, used = time.monotonic() - began, cpu_seconds(pid) - cpu
    shape = f"{connections} connections, {in_flight} in flight each"
    print(f"{shape}: {done / took:,.0f} commits/s, {used / done * 1e6:.1f} us of CPU each")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--bootstrap")
    parser.add_argument("--pid", type=int)
    wanted = parser.parse_args()
    shapes = ((1, PIPELINED), (wanted.connections, 1))
    if wanted.bootstrap:
        prepare(wanted.bootstrap)
        for connections, in_flight in shapes:
            measure(wanted.bootstrap, wanted.pid, connections, in_flight, wanted.seconds)
        return
    with tempfile.TemporaryDirectory() as folder, KBroker(Path(folder)) as broker:
        prepare(broker.bootstrap)
        for connections, in_flight in shapes:
            measure(broker.bootstrap, broker.pid, connections, in_flight, wanted.seconds)


if __name__ == "__main__":
    main()
