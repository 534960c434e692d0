"""Mutated and hostile frames through a real socket: no crash, no hang, memory back to its level, others undisturbed.

Seeds are well-formed requests of every API and version, mostly of those the broker serves, and Produce requests with
real batches of every codec. Each is mutated and sent; behind it goes an ApiVersions request, and either that is
answered or the connection is closed. A witness on a connection of its own produces and fetches all the while.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import struct
import threading
from collections import Counter
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench import frames
from bench.servers import KbrokerServer
from kbroker._core.record import records
from kbroker._core.record.records import Record
from kbroker.protocol import apis, codec, messages
from kbroker.protocol.messages import ApiVersionsResponse

VECTORS = Path(__file__).parents[2] / "kbroker" / "tests" / "golden" / "vectors.jsonl"
TOPIC = "fuzzed"
PING = 0x7EAD
GROWTH_MAX_MIB = 96.0
PATIENCE_SECONDS = 0.25
HOSTILE_INTS = [0, 1, -1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, -0x80000000, 0x10000, 100_000_000]


def receive(connection: socket.socket, count: int) -> bytes | None:
    """Exactly `count` bytes, or None when the other side closed before."""
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(min(count - len(parts), 1 << 16))
        if not part:
            return None
        parts += part
    return bytes(parts)


def served(server: KbrokerServer) -> list[tuple[int, int]]:
    """Every (key, version) that the broker says it serves."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(frames.api_versions())
        (size,) = struct.unpack(">i", receive(connection, 4) or bytes(4))
        _, reply = codec.decode_response(ApiVersionsResponse, 3, receive(connection, size) or b"")
    return [(row.api_key, version) for row in reply.api_keys for version in range(row.min_version, row.max_version + 1)]


def seeds(server: KbrokerServer) -> list[bytes]:
    """Frames without their size prefix: mostly what the broker serves, and a few of everything else."""
    bodies: dict[tuple[int, int], list[bytes]] = {}
    for line in VECTORS.read_text("utf-8").splitlines():
        name, version, _value, encoded = json.loads(line)
        if name.endswith("Request"):
            key = getattr(messages, name).KEY
            bodies.setdefault((key, version), []).append(bytes.fromhex(encoded))
    found = []
    welcome = set(served(server))
    for api in apis.every():
        for version in range(api.first_version, api.last_version + 1):
            plain = frames.frame(api.request(), version)[4:]
            header = plain[: len(plain) - len(codec.encode(api.request(), version))]
            rich = [header + body for body in bodies.get((api.key, version), [])]
            found += [plain, *rich] * (8 if (api.key, version) in welcome else 1)
    for number in range(5):
        batch = records.build_batch([Record(key=b"k", value=b"v" * 300), Record()], codec=number)
        found += [frames.produce(TOPIC, 0, batch)[4:]] * 100
    found += [frames.fetch(TOPIC, 0, 0, 1 << 20)[4:]] * 200
    found += [frames.metadata(TOPIC)[4:]] * 50
    return found


def mutate(frame: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    body = bytearray(frame)
    for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
        # The first four bytes choose API and version; leave them mostly alone, so that the parsers are reached.
        at = chance.randrange(0 if chance.random() < 0.05 else 4, len(body) + 1) if len(body) > 4 else 0
        match chance.randrange(8):
            case 0 if body and at < len(body):
                body[at] ^= 1 << chance.randrange(8)
            case 1 if body and at < len(body):
                body[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))
            case 2:
                del body[at:]
            case 3:
                body[at:at] = chance.randbytes(chance.randrange(1, 64))
            case 4:
                body[at : at + 4] = struct.pack(">i", chance.choice(HOSTILE_INTS) & 0x7FFFFFFF)
            case 5:
                body[at : at + 5] = b"\xff\xff\xff\xff" + chance.choice((b"\x07", b"\x0f", b"\x7f", b"\xff"))
            case 6:
                other = chance.choice(others)
                body[at:] = other[min(at, len(other)) :]
            case _:
                del body[at : at + chance.randrange(1, 32)]
    return bytes(body[: 1 << 16])


class Attacker(threading.Thread):
    """Sends its share of frames, one connection for as long as the broker keeps it open."""

    def __init__(self, port: int, count: int, seed: int, corpus: list[bytes]) -> None:
        super().__init__(daemon=True)
        self.port, self.count, self.corpus = port, count, corpus
        self.chance = random.Random(seed)
        self.seen: Counter[str] = Counter()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            connection: socket.socket | None = None
            for _ in range(self.count):
                if connection is None:
                    connection = socket.create_connection(("127.0.0.1", self.port), timeout=30)
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if not self.strike(connection):
                    connection.close()
                    connection = None
        except BaseException as failure:
            self.failure = failure

    def strike(self, connection: socket.socket) -> bool:
        """One hostile frame. False when this connection is of no more use."""
        frame = mutate(self.chance.choice(self.corpus), self.chance, self.corpus)
        try:
            if self.chance.random() < 0.03:
                lie = self.chance.choice((-1, 0, 7, 0x7FFFFFFF, -0x80000000, len(frame) + 1, 1 << 20))
                connection.sendall(struct.pack(">i", lie) + frame)
                self.seen["lied about its size"] += 1
                return False
            ping = frames.frame(apis.by_key(18).request(), 3, PING)
            connection.sendall(struct.pack(">i", len(frame)) + frame + ping)
            return self.await_ping(connection)
        except (BrokenPipeError, ConnectionResetError):
            self.seen["closed"] += 1
            return False

    def await_ping(self, connection: socket.socket) -> bool:
        connection.settimeout(PATIENCE_SECONDS)
        try:
            while True:
                head = receive(connection, 8)
                if head is None:
                    self.seen["closed"] += 1
                    return False
                size, correlation_id = struct.unpack(">ii", head)
                if receive(connection, size - 4) is None:
                    self.seen["closed"] += 1
                    return False
                if correlation_id == PING:
                    self.seen["answered or ignored"] += 1
                    return True
        except TimeoutError:
            # A frame that asks for a long wait is allowed to get one; the witness tells a wait from a hang.
            self.seen["parked"] += 1
            return False


class Witness(threading.Thread):
    """A well-behaved client: produces and fetches until told to stop, and is answered every time."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.stop = threading.Event()
        self.answers = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        produce = frames.produce("witness", 0, records.build_batch([Record(key=b"k", value=b"v")]))
        fetch = frames.fetch("witness", 0, 0, 1 << 10)
        error_at = frames.produce_error_offset("witness") - 4
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
                while not self.stop.is_set():
                    for request in (produce, fetch):
                        connection.sendall(request)
                        (size,) = struct.unpack(">i", receive(connection, 4) or b"\0\0\0\0")
                        reply = receive(connection, size)
                        if reply is None or not size:
                            raise AssertionError("the witness was disconnected")
                        if request is produce and reply[error_at : error_at + 2] != b"\0\0":
                            raise AssertionError(f"the witness was refused: {reply.hex()}")
                        self.answers += 1
        except BaseException as failure:
            self.failure = failure


def campaign(count: int, seed: int) -> None:
    server = KbrokerServer()
    try:
        corpus = seeds(server)
        admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
        for created in admin.create_topics([NewTopic(TOPIC, 2, 1), NewTopic("witness", 1, 1)]).values():
            created.result(30)
        attack(server, min(count, 5_000), seed + 1, corpus)  # warms pools and caches: the level to come back to
        level = server.resident_mib()
        witness = Witness(server.port)
        witness.start()
        seen = attack(server, count, seed, corpus)
        witness.stop.set()
        witness.join(60)
        if witness.failure is not None:
            raise witness.failure
        grown = server.resident_mib() - level
        print(f"fuzz: {dict(seen)}; the witness was answered {witness.answers} times; {grown:+.1f} MiB", flush=True)
        if server.process.poll() is not None:
            raise AssertionError(f"the broker died with {server.process.returncode}")
        if grown > GROWTH_MAX_MIB:
            raise AssertionError(f"memory grew by {grown:.1f} MiB")
    finally:
        server.stop()
    if server.process.returncode != 0:
        raise AssertionError(f"the broker ended with {server.process.returncode}")


def attack(server: KbrokerServer, count: int, seed: int, corpus: list[bytes]) -> Counter[str]:
    attackers = [Attacker(server.port, count // 4 + (i < count % 4), seed * 31 + i, corpus) for i in range(4)]
    for attacker in attackers:
        attacker.start()
    seen: Counter[str] = Counter()
    for attacker in attackers:
        attacker.join()
        if attacker.failure is not None:
            raise attacker.failure
        seen += attacker.seen
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    arguments = parser.parse_args()
    print(f"fuzz: {arguments.frames} frames, seed {arguments.seed}", flush=True)
    campaign(arguments.frames, arguments.seed)
    print("fuzz: no crash, no hang, memory back to its level")


if __name__ == "__main__":
    main()
