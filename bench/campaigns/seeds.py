"""Well-formed requests to start from: every version of every API that is served, filled with what a client would say.

Each is filled along its schema: names and ids of topics that exist, partitions that they have, real batches of every
codec, waits and limits that keep a campaign short. Apache's own encodings of random values stand beside them, and a few
requests of the APIs that are not served.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from bench.campaigns.anatomy import Frame, dissect
from kbroker._core.record.records import Record, build_batch
from kbroker.api import REGISTRY
from kbroker.protocol import apis, codec, messages
from kbroker.protocol.message import Message, Struct

VECTORS = Path(__file__).parents[2] / "kbroker" / "tests" / "golden" / "vectors.jsonl"
TOPIC, SHELF = "fuzzed", "shelf"  # the first is produced to and made anew each round; the second is only read
PARTITIONS = 3
TOPIC_ID, SHELF_ID = b"the id of fuzzed", b"the id of shelf."  # replaced by the real ones once these are known
CLIENTS = ("fuzz", "", None)
NOW = 1_790_000_000_000
VARIANTS = 4  # of each version
DELETE_RECORDS = 21

# What keeps a campaign short and a broker small: waits in milliseconds, sizes, and topics from a short list.
MODEST: dict[str, tuple[Any, ...]] = {
    "acks": (-1, -1, 1, 0),
    "timeout_ms": (1_000,),
    "max_wait_ms": (0, 0, 0, 5),
    "min_bytes": (0, 1),
    "max_bytes": (1 << 20,),
    "partition_max_bytes": (1 << 10, 1 << 18),
    "isolation_level": (0, 1),
    "session_id": (0,),
    "session_epoch": (-1, -1, -1, 0),
    "replica_id": (-1,),
    "num_partitions": (1, -1, 3),
    "replication_factor": (1, -1),
    "count": (3, 4),
    "validate_only": (True, True, True, False),
    "allow_auto_topic_creation": (False,) * 7 + (True,),
    "partition": (0, 1, PARTITIONS - 1),
    "partition_index": (0, 1, PARTITIONS - 1),
    "index": (0, 1, PARTITIONS - 1),
    "timestamp": (-1, -2, -3, NOW),
    "resource_type": (2, 4),
    "key_type": (0, 1),
    "endpoint_type": (1,),
    "mechanism": ("PLAIN",),
    "key": ("group",),
    "transactional_id": ("one", "another"),
    "response_partition_limit": (1, 2000),
    "assignments": ([],),
    "configs": ([],),
}
MADE = tuple(f"made-{number}" for number in range(8))


def some_batches(chance: random.Random) -> list[bytes]:
    """Produce requests carry these: every codec, headers, nulls, idempotent and transactional producers."""
    records = [
        Record(timestamp=NOW, key=b"k", value=b"v" * 200, headers=(("h", b"x"), ("", None))),
        Record(timestamp=NOW + 1),
        Record(timestamp=NOW - 5, value=chance.randbytes(100)),
    ]
    plain = [build_batch(records, codec=number) for number in range(5)]
    told = [
        build_batch(records[:1], codec=number, producer_id=1000 + number, producer_epoch=0, base_sequence=0)
        for number in range(5)
    ]
    return [*plain, *told, build_batch(records, transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)]


class Filler:
    """Fills a request along its schema. What it says is chosen by `chance`."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.batches = some_batches(chance)

    def request(self, cls: type[Message], version: int) -> Message:
        made = cls()
        self.fill(made, cls, version)
        return made

    def fill(self, target: Struct, root: type[Message], version: int) -> None:
        for name, shape, first, last, nullable, tag, _default, _ignorable in target.FIELDS:
            if not first <= version <= last or (tag >= 0 and self.chance.random() < 0.7):
                continue
            may_be_null = nullable is not None and nullable[0] <= version <= nullable[1]
            if may_be_null and self.chance.random() < 0.2:
                setattr(target, name, None)
            elif name in MODEST and (shape != "records"):
                setattr(target, name, self.chance.choice(MODEST[name]))
            elif shape.startswith("["):
                count = self.chance.choice((1, 1, 2))
                setattr(target, name, [self.value(name, shape[1:-1], root, version) for _ in range(count)])
            else:
                setattr(target, name, self.value(name, shape, root, version))

    def value(self, name: str, shape: str, root: type[Message], version: int) -> Any:
        chance = self.chance
        if shape[0].isupper():
            made: Struct = getattr(root, shape)()
            self.fill(made, root, version)
            return made
        match shape:
            case "records":
                return chance.choice(self.batches)
            case "string":
                creating = root.KEY in (19, 20) and name in ("name", "topic_names")
                if root.KEY == DELETE_RECORDS:
                    return chance.choice((TOPIC, "unknown"))
                return chance.choice(MADE if creating else (TOPIC, TOPIC, SHELF, "unknown"))
            case "uuid":
                return chance.choice((TOPIC_ID, TOPIC_ID, SHELF_ID)) if "topic" in name else bytes(16)
            case "bytes":
                return chance.randbytes(20)
            case "bool":
                return chance.random() < 0.5
            case "float64":
                return 0.5
            case _:
                return chance.choice((0, 0, 1, -1)) if not shape.startswith("u") else 0


def golden() -> list[Frame]:
    """Apache's encodings of random values, as requests."""
    found = []
    for line in VECTORS.read_text("utf-8").splitlines():
        name, version, _value, encoded = json.loads(line)
        if name.endswith("Request"):
            cls = getattr(messages, name)
            api = apis.by_key(cls.KEY)
            if api.has_version(version):
                plain = codec.encode_request(cls(), version, 1, "fuzz")
                header = plain[: len(plain) - len(codec.encode(cls(), version))]
                found.append(dissect(header + bytes.fromhex(encoded)))
    return found


class Corpus:
    """The seeds of one campaign: the same for the same number. Produce and Fetch come up as often as in real life."""

    def __init__(self, number: int) -> None:
        chance = random.Random(number)
        filler = Filler(chance)
        served = {(row.key, version) for row in REGISTRY for version in range(row.min_version, row.max_version + 1)}
        self.batches = filler.batches
        self.by_key: dict[int, list[Frame]] = {}
        self.filled: list[Frame] = []  # what we said ourselves: no wait is long, no number is wild
        self.others: list[Frame] = []
        for frame in golden():
            if (frame.key, frame.version) in served:
                self.by_key.setdefault(frame.key, []).append(frame)
            else:
                self.others.append(frame)
        for key, version in sorted(served):
            cls = apis.by_key(key).request
            if not cls.VERSIONS[0] <= version <= cls.VERSIONS[1]:
                continue
            for _ in range(VARIANTS):
                data = codec.encode_request(filler.request(cls, version), version, 1, chance.choice(CLIENTS))
                self.filled.append(dissect(data))
                self.by_key.setdefault(key, []).append(self.filled[-1])
        rare = {19: 0.3, 20: 0.3, 37: 0.3}  # each is an fsync
        self.keys = sorted(self.by_key)
        self.weights = [{0: 12.0, 1: 10.0}.get(key, rare.get(key, 2.0)) for key in self.keys]

    def choose(self, chance: random.Random) -> Frame:
        if chance.random() < 0.02:
            return chance.choice(self.others)
        (key,) = chance.choices(self.keys, self.weights)
        return chance.choice(self.by_key[key])
