"""Mutated input straight into the parsers, in this process and without a socket: meant for a sanitized build.

    frames    dispatch of the data plane; what it posts is read the short way and decoded, as the gateway would
    replies   the codec on mutated encodings of every message, requests and responses
    batches   validation with and without another codec, checks, walks over records
    streams   every codec's decompressor on mutated and cut streams

Anything but an answer or the room's own refusal ends the process. The input in hand stands in a file all the while, so
that it can be told after a crash.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import mmap
import random
import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from bench.campaigns import mutation
from bench.campaigns.barrage import Gunner
from bench.campaigns.seeds import NOW, PARTITIONS, SHELF, SHELF_ID, TOPIC, TOPIC_ID, VECTORS, Corpus
from kbroker._core.api.direct import DirectCaller
from kbroker._core.clock import BrokerClock
from kbroker._core.log.partition_log import PartitionLog
from kbroker._core.partitions import PartitionHandle
from kbroker._core.record import batch as batches
from kbroker._core.record import lz4_frame, records
from kbroker._core.record.compression import CodecError, compress_bytes, decompress_bytes
from kbroker._core.record.records import BrokenRecords, Record
from kbroker._core.views import ViewHandle
from kbroker._core.wire.express import read_commit, read_heartbeat
from kbroker._core.wire.express_end import read_end
from kbroker.api import REGISTRY
from kbroker.protocol import apis, codec, messages

LOGS_ANEW_EVERY = 50_000  # inputs: what was produced does not pile up
WARM = 10_000  # inputs before the level of memory is taken
GROWTH_MAX_MIB = 64.0  # a sanitizer keeps what was freed for a while; a leak of one byte an input would show later
CAP = 1 << 20
IN_HAND_BYTES = 1 << 20


class Node:
    """A data plane without a network: two topics, and frames handed straight to dispatch."""

    def __init__(self, directory: Path) -> None:
        self.clock = BrokerClock()
        self.clock.hold(NOW)
        self.view = ViewHandle()
        topics = []
        for name, topic_id in ((TOPIC, TOPIC_ID), (SHELF, SHELF_ID)):
            handles = []
            for index in range(PARTITIONS):
                handle = PartitionHandle(index, PartitionLog.open(directory / f"{name}-{index}", self.clock, {}))
                handle.lead(1, 0, 1, 1)
                handles.append(handle)
            topics.append((name, topic_id, False, handles))
        self.view.publish(topics, [(1, "here", 9092, None)])
        served = {
            row.key: (row.min_version, row.max_version, apis.by_key(row.key).flexible_from, row.native)
            for row in REGISTRY
        }
        self.calls = DirectCaller(self.clock, self.view, served, [b"body"] * 6)


def take_short_way(frame: bytes) -> None:
    """What the coordinators read where it lies. None of it: the frame is not plain."""
    key = int.from_bytes(frame[:2], "big")
    if key == messages.OffsetCommitRequest.KEY:
        commit = read_commit(frame)
        if commit is not None:
            commit.decide({}, lambda _: ("t", bytes(16), 3), tuple, NOW, 4096)
    elif key == messages.HeartbeatRequest.KEY:
        beat = read_heartbeat(frame)
        if beat is not None:
            beat.reply(0)
    elif key == messages.EndTxnRequest.KEY:
        end = read_end(frame)
        if end is not None:
            end.reply(end.producer_id, end.producer_epoch)


class Parsers:
    """One run. `step` gives one input to one parser."""

    def __init__(self, seed: str, number: int, in_hand: mmap.mmap) -> None:
        self.chance = random.Random(seed)
        self.seeds = Corpus(number)
        self.gunner = Gunner(self.seeds, self.chance, {TOPIC_ID: TOPIC_ID, SHELF_ID: SHELF_ID})
        self.in_hand = in_hand
        self.score: Counter[str] = Counter()
        vectors = [json.loads(line) for line in VECTORS.read_text("utf-8").splitlines()]
        self.encodings = [
            (getattr(messages, name), version, bytes.fromhex(encoded))
            for name, version, _, encoded in vectors
            if name.endswith(("Request", "Response"))
        ]
        plain = [bytes(5_000), self.chance.randbytes(3_000), b"kbroker " * 900, b"", b"x"]
        self.streams = [(which, compress_bytes(which, data)) for which in range(1, 5) for data in plain]
        self.slot = 0

    def run(self, count: int) -> None:
        level = 0.0
        kinds: tuple[Callable[[Node], str], ...] = (self.frame, self.frame, self.reply, self.batch, self.stream)
        for start in range(0, count, LOGS_ANEW_EVERY):
            with tempfile.TemporaryDirectory(prefix="kbroker-parsers-") as directory:
                node = Node(Path(directory))
                for index in range(start, min(start + LOGS_ANEW_EVERY, count)):
                    self.score[kinds[index % len(kinds)](node)] += 1
                    if index == WARM:
                        level = resident_mib()
                self.finish(node)
        if count > WARM and resident_mib() - level > GROWTH_MAX_MIB:
            raise AssertionError(f"memory grew by {resident_mib() - level:.1f} MiB")

    def take(self, kind: int, data: bytes) -> bytes:
        self.in_hand[:8] = kind.to_bytes(4, "big") + len(data).to_bytes(4, "big")
        kept = data[: IN_HAND_BYTES - 8]
        self.in_hand[8 : 8 + len(kept)] = kept
        return data

    def frame(self, node: Node) -> str:
        data = self.take(0, self.gunner.frame()[1])
        self.slot = (self.slot + 1) % 1_000
        outcome, reply, reason = node.calls.call(data, self.slot)
        if (outcome == "READY") != (reply is not None) or (outcome == "CLOSE") != (reason is not None):
            raise AssertionError(f"{outcome} with {reply!r} and {reason!r}")
        if outcome == "PARKED":
            node.calls.forget(self.slot)
        if outcome == "POST":
            take_short_way(data)
            with contextlib.suppress(codec.DecodeError):
                header, at = codec.decode_request_header(data)
                api = apis.find(header.request_api_key)
                if api is not None:
                    codec.decode(api.request, header.request_api_version, data, at)
                    return "frame: decoded"
        return f"frame: {outcome.lower()}"

    def finish(self, node: Node) -> None:
        node.clock.advance(2**31)
        while node.calls.collect() is not None:
            pass
        if node.calls.parked:
            raise AssertionError(f"{node.calls.parked} requests are still parked")

    def reply(self, _node: Node) -> str:
        cls, version, encoded = self.chance.choice(self.encodings)
        data = self.take(1, mutation.bytes_of(self.chance, encoded, keep=0))
        try:
            found, _ = codec.decode(cls, version, data)
        except codec.DecodeError:
            return "message: refused"
        with contextlib.suppress(codec.EncodeError):  # a null that the version may not hold
            codec.encode(found, version)
        return "message: read and written"

    def batch(self, _node: Node) -> str:
        chance = self.chance
        data = self.take(2, mutation.batch(chance, self.seeds.batches))
        found = batches.validate(
            data,
            NOW,
            log_append_time=chance.random() < 0.2,
            keys_required=chance.random() < 0.2,
            target_codec=chance.choice((-1, -1, 0, 1, 2, 3, 4)),
            timestamp_after_max_ms=1 << 62,
        )
        batches.check(data)
        for partial in (False, True):
            with contextlib.suppress(BrokenRecords):
                records.batches(data, partial_tail=partial)
            with contextlib.suppress(BrokenRecords):
                read: list[Record] = records.iterate(data, partial_tail=partial)
                if found.error == 0 and not partial and not read:
                    raise AssertionError("a batch without records was let in")
        return "batch: let in" if found.error == 0 else "batch: refused"

    def stream(self, _node: Node) -> str:
        which, packed = self.chance.choice(self.streams)
        data = self.take(3, mutation.bytes_of(self.chance, packed, keep=0))
        cap = self.chance.choice((0, 100, 4_096, CAP))
        if which == 3:
            lz4_frame.blocks(data)
        try:
            if len(decompress_bytes(which, data, cap)) > cap:
                raise AssertionError("more was inflated than allowed")
        except CodecError:
            return "stream: refused"
        return "stream: inflated"


def resident_mib() -> float:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() / (1 << 20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, required=True)
    parser.add_argument("--seed", required=True)
    parser.add_argument("--corpus", type=int, required=True)
    parser.add_argument("--in-hand", type=Path, required=True, help="a file for the input that is being parsed")
    arguments = parser.parse_args()
    arguments.in_hand.write_bytes(bytes(IN_HAND_BYTES))
    with arguments.in_hand.open("r+b") as file, mmap.mmap(file.fileno(), IN_HAND_BYTES) as in_hand:
        run = Parsers(arguments.seed, arguments.corpus, in_hand)
        run.run(arguments.inputs)
    json.dump(run.score, sys.stdout)


if __name__ == "__main__":
    main()
