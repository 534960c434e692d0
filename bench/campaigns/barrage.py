"""Sends mutated requests as fast as they are answered, from several threads of one process, and keeps the score.

Frames go out in groups with an ApiVersions request behind them. The group is over when that is answered. A frame that
got the connection closed, or that waits, is scored, and those behind it are sent again on another connection: every
frame that counts has been looked at by the broker. A quarter of the replies are decoded to their last byte.

The same numbers make the same frames, whatever the broker answers.
"""

from __future__ import annotations

import random
import struct
import threading
from collections import Counter, deque
from functools import cache

from bench.campaigns import mutation
from bench.campaigns.seeds import SHELF_ID, TOPIC_ID, Corpus
from bench.campaigns.wire import ClosedError, MalformedError, Wire, ping, prefixed
from kbroker.api import REGISTRY
from kbroker.protocol import apis, codec

THREADS = 6
PING = 0x7EADBEEF
PATIENCE_SECONDS = 0.25  # a frame may ask for a wait; the witness tells a wait from a hang
KEPT = 64  # the last frames of each thread, told when something went wrong
LIES = (-1, 0, 7, 0x7FFFFFFF, -0x80000000, 104_857_601)


class OffenceError(Exception):
    """What went wrong, and the last frames that were sent before, oldest first, in hex."""


@cache
def corpus(number: int) -> Corpus:
    return Corpus(number)


class Gunner:
    """Makes frames from seeds. One per thread, so that a thread's frames do not depend on the others."""

    def __init__(self, seeds: Corpus, chance: random.Random, ids: dict[bytes, bytes]) -> None:
        self.seeds, self.chance, self.ids = seeds, chance, ids
        self.known = tuple(ids.values())

    def frame(self) -> tuple[str, bytes]:
        """Who made it, and the frame without its size. Every one has its header's eight bytes."""
        chance = self.chance
        seed = self.seeds.choose(chance)
        hand = chance.random()
        if hand < 0.80:
            made, by = mutation.one_field(chance, seed, self.seeds.batches, self.known), "field"
        elif hand < 0.95:
            made, by = mutation.bytes_of(chance, seed.data), "bytes"
        else:
            made, by = seed.data[: chance.randrange(8, len(seed.data) + 1)], "cut"
        for placeholder, real in self.ids.items():
            made = made.replace(placeholder, real)
        made = made[:4] + struct.pack(">i", chance.getrandbits(30)) + made[8:]
        return by, made.ljust(8, b"\0")


class Attacker(threading.Thread):
    """Fires `count` frames, one connection for as long as the broker keeps it open."""

    def __init__(self, port: int, count: int, gunner: Gunner) -> None:
        super().__init__(daemon=True)
        self.port, self.left, self.gunner = port, count, gunner
        self.score: Counter[str] = Counter()
        self.sent: deque[str] = deque(maxlen=KEPT)
        self.failure: BaseException | None = None
        self.again: list[tuple[str, bytes]] = []
        self.wire: Wire | None = None

    def run(self) -> None:
        try:
            while self.left or self.again:
                self.fire(self.next_group())
        except BaseException as failure:
            self.failure = failure
        finally:
            self.hang_up()

    def next_group(self) -> list[tuple[str, bytes]]:
        group, self.again = self.again, []
        if not group:
            count = min(self.left, self.gunner.chance.choice((1, 4, 16, 32)))
            self.left -= count
            group = [self.gunner.frame() for _ in range(count)]
            if self.gunner.chance.random() < 0.02:
                self.lie_about_size(group[0][1], self.gunner.chance.choice(LIES))
        return group

    def lie_about_size(self, frame: bytes, size: int) -> None:
        with Wire(self.port) as wire:
            try:
                wire.send(struct.pack(">i", size) + frame)
            except ClosedError:
                return
            if not wire.is_closed_by_broker():
                raise MalformedError(f"a frame of {size} bytes did not close its connection")
        self.score["size: closed"] += 1

    def fire(self, group: list[tuple[str, bytes]]) -> None:
        at = 0
        try:
            if self.wire is None:
                self.wire = Wire(self.port)
            self.sent.extend(frame.hex() for _, frame in group)
            self.wire.socket.settimeout(PATIENCE_SECONDS)
            self.wire.send(b"".join(prefixed(frame) for _, frame in group) + ping(PING))
            while (reply := self.wire.receive())[:4] != PING.to_bytes(4, "big"):
                at = self.match(group, at, reply)
            for by, _ in group[at:]:
                self.score[f"{by}: no answer due"] += 1
        except (ClosedError, TimeoutError) as ending:
            self.hang_up()
            if at < len(group):
                outcome = "closed" if isinstance(ending, ClosedError) else "waited"
                self.score[f"{group[at][0]}: {outcome}"] += 1
                self.again = group[at + 1 :]

    def match(self, group: list[tuple[str, bytes]], at: int, reply: bytes) -> int:
        """Replies come in the order of the requests. Which one is this? Those before it have no answer due."""
        for index in range(at, len(group)):
            by, frame = group[index]
            if frame[4:8] == reply[:4]:
                for passed, _ in group[at:index]:
                    self.score[f"{passed}: no answer due"] += 1
                self.score[f"{by}: answered"] += 1
                if reply[3] & 3 == 0:
                    check(frame, reply)
                return index + 1
        raise MalformedError(f"a reply to nobody: {reply[:200].hex()}")

    def hang_up(self) -> None:
        if self.wire is not None:
            self.wire.close()
            self.wire = None


def check(frame: bytes, reply: bytes) -> None:
    """The reply is of the request's version and is whole."""
    key, version = struct.unpack(">hh", frame[:4])
    row, api = REGISTRY.find(key), apis.find(key)
    if row is None or api is None:
        raise MalformedError(f"key {key} is not served and was answered: {reply[:200].hex()}")
    if key == 18 and not row.min_version <= version <= row.max_version:
        version = 0  # how ApiVersions says that it does not know the version
    if not api.has_version(version):
        return  # Produce before 3: answered so that old clients understand, and in no schema
    header = 5 if version >= api.flexible_from and key != 18 else 4
    try:
        _, end = codec.decode(api.response, version, reply, header, budget=1 << 30)
    except codec.DecodeError as problem:
        if row.native and problem.reason == "is not UTF-8":
            return  # the data plane gives back a topic's name as it came
        raise MalformedError(f"{api} v{version}: {problem}: {reply[:400].hex()}") from None
    if end != len(reply):
        raise MalformedError(f"{api} v{version}: {len(reply) - end} bytes behind the reply: {reply[:400].hex()}")


def volley(port: int, seed: str, number: int, count: int, ids: tuple[bytes, bytes]) -> Counter[str]:
    """`count` frames at the broker; the score. Runs in a process of its own."""
    seeds = corpus(number)
    places = dict(zip((TOPIC_ID, SHELF_ID), ids, strict=True))
    attackers = [
        Attacker(port, count // THREADS + (i < count % THREADS), Gunner(seeds, random.Random(f"{seed}/{i}"), places))
        for i in range(THREADS)
    ]
    for attacker in attackers:
        attacker.start()
    score: Counter[str] = Counter()
    for attacker in attackers:
        attacker.join()
        score += attacker.score
    for attacker in attackers:
        if attacker.failure is not None:
            # One string: an exception that crosses processes keeps its arguments and nothing else.
            raise OffenceError(f"{type(attacker.failure).__name__}: {attacker.failure}", "\n".join(attacker.sent))
    return score
