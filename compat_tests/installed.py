"""The installed command, outside of any checkout: it says where it listens, stores a record, returns it and stops.

The client is written with the standard library alone, so that it can run natively beside an emulated broker.
"""

from __future__ import annotations

import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

PRODUCE, FETCH, API_VERSIONS, CREATE_TOPICS = 0, 1, 18, 19
TOPIC = b"a-topic"


def string(value: bytes) -> bytes:
    return struct.pack(">h", len(value)) + value


def array_of_one(item: bytes) -> bytes:
    return struct.pack(">i", 1) + item


def crc32c(data: bytes) -> int:
    """Return the checksum of a v2 record batch, bit by bit: independent of the broker's code."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 & -(crc & 1))
    return crc ^ 0xFFFFFFFF


def batch_of(value: bytes) -> bytes:
    """Return a v2 record batch of one record without a key. The value is so short that each varint has one byte."""
    record = struct.pack(">bbbbb", 0, 0, 0, 1, 2 * len(value)) + value + b"\0"  # the third 1 is a zigzag -1: no key
    records = struct.pack(">b", 2 * len(record)) + record
    covered = struct.pack(">hiqqqhii", 0, 0, 1, 1, -1, -1, -1, 1) + records
    rest = struct.pack(">ibI", -1, 2, crc32c(covered)) + covered
    return struct.pack(">qi", 0, len(rest)) + rest


def ask(client: socket.socket, key: int, version: int, body: bytes) -> bytes:
    """Send one request and return the body of its response, which must carry the same correlation id."""
    request = struct.pack(">hhih", key, version, 7, -1) + body
    client.sendall(struct.pack(">i", len(request)) + request)
    size, correlation_id = struct.unpack(">ii", client.recv(8, socket.MSG_WAITALL))
    assert correlation_id == 7, correlation_id
    return client.recv(size - 4, socket.MSG_WAITALL)


def round_trip(client: socket.socket) -> None:
    """Create a topic, produce one record to it, and fetch the same bytes back."""
    (error,) = struct.unpack_from(">h", ask(client, API_VERSIONS, 0, b""))
    assert error == 0, error
    topic = string(TOPIC) + struct.pack(">ihii", 1, 1, 0, 0)
    created = ask(client, CREATE_TOPICS, 2, array_of_one(topic) + struct.pack(">i?", 30_000, False))
    (error,) = struct.unpack_from(">h", created, 8 + len(string(TOPIC)))
    assert error == 0, error
    batch = batch_of(b"two teapots")
    partition = struct.pack(">ii", 0, len(batch)) + batch
    data = array_of_one(string(TOPIC) + array_of_one(partition))
    produced = ask(client, PRODUCE, 3, struct.pack(">hhi", -1, -1, 30_000) + data)
    error, base_offset = struct.unpack_from(">hq", produced, 4 + len(string(TOPIC)) + 8)
    assert (error, base_offset) == (0, 0), (error, base_offset)
    wanted = array_of_one(string(TOPIC) + array_of_one(struct.pack(">iqi", 0, 0, 1 << 20)))
    fetched = ask(client, FETCH, 4, struct.pack(">iiiib", -1, 30_000, 1, 1 << 20, 0) + wanted)
    error, high_watermark = struct.unpack_from(">hq", fetched, 8 + len(string(TOPIC)) + 8)
    assert (error, high_watermark) == (0, 1), (error, high_watermark)
    # The broker writes the leader epoch into bytes 12 to 15 and leaves the rest as it was.
    returned = fetched[-len(batch) :]
    assert (returned[:12], returned[16:]) == (batch[:12], batch[16:]), returned


def main(command: str) -> None:
    subprocess.run([command, "--version"], check=True)
    with tempfile.TemporaryDirectory() as data_dir:
        broker = subprocess.Popen(
            [command, "start", "--listeners", "PLAINTEXT://127.0.0.1:0", "--data-dir", data_dir],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert broker.stdout is not None
        place = re.search(r"127\.0\.0\.1:(\d+)", broker.stdout.readline())
        assert place is not None, "no ready line"
        with socket.create_connection(("127.0.0.1", int(place.group(1))), timeout=60) as client:
            round_trip(client)
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(60) == 0, broker.returncode
        assert (Path(data_dir) / ".kafka_cleanshutdown").exists()
    print("the installed command works: one record produced and fetched")


if __name__ == "__main__":
    main(sys.argv[1])
