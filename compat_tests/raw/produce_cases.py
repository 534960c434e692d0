"""Produce: every way to be right, and every way to be wrong (append validation, sequences)."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import cramjam

from compat_tests.raw.batches import FIRST_MS, Batch, Rec, legacy_message, raw_snappy
from compat_tests.raw.cases import case, table
from compat_tests.raw.connection import versions_of
from compat_tests.raw.talk import Talk, Topic, produce_body

VERSIONS = versions_of("Produce")
_GOOD = Batch((Rec(b"a", b"1"), Rec(None, None, 5), Rec(b"", b"", 3, (("h", b"x"), ("n", None)))))
_PID: dict[str, Any] = {"producer_id": 4001, "producer_epoch": 0, "base_sequence": 0}
# CRC right, but the records are not what the header says.
_TORN = _GOOD.with_(payload=b"".join(r.encode(n) for n, r in enumerate(_GOOD.records))[:-3])


def _varint_bomb() -> bytes:
    return b"\xff" * 11


# name -> the bytes of the records field; each is sent alone to a fresh topic
WRONG: dict[str, bytes] = {
    "crc mismatch": _GOOD.with_(crc=1234).encode(),
    "magic 0": legacy_message(0),
    "magic 1": legacy_message(1),
    "magic 3": _GOOD.with_(magic=3).encode(),
    "magic 127": _GOOD.with_(magic=127).encode(),
    "magic minus one": _GOOD.with_(magic=-1).encode(),
    "two batches": _GOOD.encode() + _GOOD.encode(),
    "zero-length records": b"",
    "count too large": _GOOD.with_(count=4, last_offset_delta=3).encode(),
    "count too small": _GOOD.with_(count=2, last_offset_delta=1).encode(),
    "count zero": _GOOD.with_(count=0, last_offset_delta=-1).encode(),
    "count negative": _GOOD.with_(count=-1).encode(),
    "no records at all": Batch(()).encode(),
    "last offset delta differs from count": _GOOD.with_(last_offset_delta=7).encode(),
    "last offset delta too small": _GOOD.with_(last_offset_delta=0).encode(),
    "last offset delta negative": _GOOD.with_(last_offset_delta=-5).encode(),
    "record offset deltas repeat": Batch((Rec(), Rec(offset_delta=0))).encode(),
    "record offset deltas skip": Batch((Rec(), Rec(offset_delta=2)), last_offset_delta=2, count=2).encode(),
    "record attributes set": Batch((Rec(attributes=1),)).encode(),
    "control batch": _GOOD.with_(attributes=0x20).encode(),
    "control batch with producer": Batch((Rec(b"\0\0\0\1", b"\0\0\0\0\0\0"),), attributes=0x30, **_PID).encode(),
    "unused attribute bits set": _GOOD.with_(attributes=0x0F80).encode(),
    "delete horizon bit set": _GOOD.with_(attributes=0x40).encode(),
    "log append time bit set by the client": _GOOD.with_(attributes=0x08).encode(),
    "producer id with negative sequence": _GOOD.with_(producer_id=4002, producer_epoch=0).encode(),
    "producer id with negative epoch": _GOOD.with_(producer_id=4003, base_sequence=0).encode(),
    "sequence without producer id": _GOOD.with_(base_sequence=3).encode(),
    "base offset not zero": _GOOD.with_(base_offset=5).encode(),
    "base offset negative": _GOOD.with_(base_offset=-1).encode(),
    "leader epoch set by the client": _GOOD.with_(leader_epoch=77).encode(),
    "codec 5": _GOOD.with_(attributes=5).encode(),
    "codec 6": _GOOD.with_(attributes=6).encode(),
    "codec 7": _GOOD.with_(attributes=7).encode(),
    "garbage in gzip": _GOOD.with_(codec="gzip", payload=b"this is not gzip").encode(),
    "garbage in snappy": _GOOD.with_(codec="snappy", payload=b"\xff\xff\xff\xff\xffnot snappy").encode(),
    "garbage in lz4": _GOOD.with_(codec="lz4", payload=b"this is not lz4").encode(),
    "lz4 with linked blocks": _GOOD.with_(
        codec="lz4", payload=bytes(cramjam.lz4.compress(b"".join(r.encode(n) for n, r in enumerate(_GOOD.records))))
    ).encode(),
    "truncated gzip": _GOOD.with_(codec="gzip", payload=Batch(_GOOD.records, "gzip").encode()[61:-9]).encode(),
    "gzip of too few records": _GOOD.with_(codec="gzip", count=5, last_offset_delta=4).encode(),
    "gzip of too many records": _GOOD.with_(codec="gzip", count=2, last_offset_delta=1).encode(),
    "empty gzip payload": _GOOD.with_(codec="gzip", payload=b"").encode(),
    "record cut short": _TORN.encode(),
    "record length negative": Batch((Rec(),), payload=b"\x01").encode(),
    "record length beyond the batch": Batch((Rec(),), payload=b"\x7e\0\0\0").encode(),
    "record varint without end": Batch((Rec(),), payload=_varint_bomb()).encode(),
    "bytes behind the last record": Batch((Rec(),), payload=Rec().encode(0) + b"\0\0\0").encode(),
    "batch length too short": _GOOD.with_(length=20).encode(),
    "batch length beyond the field": _GOOD.with_(length=5000).encode(),
    "batch length negative": _GOOD.with_(length=-1).encode(),
    "bytes behind the batch": _GOOD.encode() + b"\0\0\0",
    "header cut short": _GOOD.encode()[:30],
    "a few bytes": b"\0\0\0",
    "timestamp -1": _GOOD.with_(base_timestamp=-1, max_timestamp=-1, codec="none", records=(Rec(),)).encode(),
    "timestamp 0": _GOOD.with_(base_timestamp=0).encode(),
    "max timestamp wrong": _GOOD.with_(max_timestamp=FIRST_MS + 999).encode(),
    "max timestamp below base": _GOOD.with_(max_timestamp=FIRST_MS - 5).encode(),
    "max timestamp -1": _GOOD.with_(max_timestamp=-1).encode(),
    "raw snappy": _GOOD.with_(
        codec="snappy", payload=raw_snappy(b"".join(r.encode(n) for n, r in enumerate(_GOOD.records)))
    ).encode(),
    "transactional batch without transactional id": _GOOD.with_(attributes=0x10, **_PID).encode(),
}


def _read_back(talk: Talk, topic: Topic) -> None:
    """What the log holds after an append: every byte."""
    fetched = talk.quietly(
        "Fetch",
        12,
        {
            "max_wait_ms": 0,
            "topics": [
                {
                    "topic": topic.name,
                    "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}],
                }
            ],
        },
    )
    talk.say("log", fetched["responses"][0]["partitions"][0])


def _send(records: bytes, talk: Talk, version: int) -> None:
    topic = talk.topic()
    talk.ask("answer", "Produce", version, produce_body(topic, records))
    _read_back(talk, topic)


for _name, _records in WRONG.items():
    table("Produce", _name, VERSIONS, partial(_send, _records))

for _codec in ("none", "gzip", "snappy", "lz4", "zstd"):
    table("Produce", f"a good batch, {_codec}", VERSIONS, partial(_send, _GOOD.with_(codec=_codec).encode()))


def _append_time(talk: Talk, version: int) -> None:
    topic = talk.topic(configs={"message.timestamp.type": "LogAppendTime"})
    talk.ask("answer", "Produce", version, produce_body(topic, _GOOD.encode()))
    talk.ask("compressed", "Produce", version, produce_body(topic, _GOOD.with_(codec="gzip").encode()))


table("Produce", "log append time", VERSIONS, _append_time)


@case("Produce")
def acks_0_1_all_and_wrong(talk: Talk, version: int) -> None:
    topic = talk.topic()
    for acks in (-1, 1, 2, -2, 32767):
        talk.ask(f"acks {acks}", "Produce", version, produce_body(topic, _GOOD.encode(), acks=acks))
    connection = talk.connect()
    talk.say("acks 0", connection.tell("Produce", version, produce_body(topic, _GOOD.encode(), acks=0)))
    talk.say("then acks 1", connection.ask("Produce", version, produce_body(topic, _GOOD.encode(), acks=1)))


@case("Produce")
def acks_0_hangs_up_on_failure(talk: Talk, version: int) -> None:
    topic = talk.topic()
    bad = produce_body(topic, _GOOD.with_(crc=1).encode(), acks=0)
    talk.say("bad crc", talk.connect().tell("Produce", version, bad))
    unknown = produce_body(Topic("no-such-topic", b"\7" * 16), _GOOD.encode(), acks=0)
    talk.say("unknown topic", talk.connect().tell("Produce", version, unknown))


@case("Produce")
def unknown_topics_and_partitions(talk: Talk, version: int) -> None:
    topic = talk.topic(partitions=2)
    good = _GOOD.encode()
    talk.ask("topic", "Produce", version, produce_body(Topic("no-such-topic", b"\7" * 16), good))
    talk.ask("zero id", "Produce", version, produce_body(Topic("", bytes(16)), good))
    for partition in (2, -1, 2147483647):
        talk.ask(f"partition {partition}", "Produce", version, produce_body(topic, good, partition=partition))
    body = produce_body(topic, good)
    body["topic_data"].append(produce_body(Topic("no-such-topic", b"\7" * 16), good)["topic_data"][0])
    body["topic_data"][0]["partition_data"] += [{"index": 1, "records": good}, {"index": 5, "records": good}]
    answer = talk.connection.ask("Produce", version, body)
    if isinstance(answer, dict):  # the order of topics in the answer is not promised; ids differ from run to run
        answer["responses"].sort(key=lambda t: (t.get("name"), -len(t["partition_responses"])))
        for one in answer["responses"]:
            one["partition_responses"].sort(key=lambda p: p["index"])
    talk.say("mixed", answer)


@case("Produce")
def an_empty_request(talk: Talk, version: int) -> None:
    talk.ask("no topics", "Produce", version, {"acks": -1, "timeout_ms": 1000, "topic_data": []})
    topic = talk.topic()
    body = produce_body(topic, b"")
    body["topic_data"][0]["partition_data"] = []
    talk.ask("no partitions", "Produce", version, body)


@case("Produce")
def larger_than_max_message_bytes(talk: Talk, version: int) -> None:
    topic = talk.topic(configs={"max.message.bytes": "300"})
    fits = Batch((Rec(b"k", b"x" * 200),)).encode()
    talk.ask("fits", "Produce", version, produce_body(topic, fits))
    talk.ask("exactly", "Produce", version, produce_body(topic, Batch((Rec(b"k", b"x" * 228),)).encode()))
    talk.ask("one more", "Produce", version, produce_body(topic, Batch((Rec(b"k", b"x" * 229),)).encode()))
    talk.ask("too large", "Produce", version, produce_body(topic, Batch((Rec(b"k", b"x" * 400),)).encode()))
    squeezed = Batch((Rec(b"k", b"x" * 4000),), "gzip").encode()
    talk.ask("compressed it fits", "Produce", version, produce_body(topic, squeezed))


@case("Produce")
def timestamps_too_far_away(talk: Talk, version: int) -> None:
    topic = talk.topic()
    far = int(time.time() * 1000) + 2 * 3_600_000
    soon = int(time.time() * 1000) + 1_800_000
    for name, base in (("far", far), ("soon", soon)):
        for codec in ("none", "gzip"):
            batch = _GOOD.with_(base_timestamp=base, codec=codec)
            talk.ask(f"{name} {codec}", "Produce", version, produce_body(topic, batch.encode()))
    one_far = Batch((Rec(), Rec(timestamp_delta=far - FIRST_MS), Rec()))
    talk.ask("one record", "Produce", version, produce_body(topic, one_far.encode()))
    strict = talk.topic(configs={"message.timestamp.before.max.ms": "1000"})
    talk.ask("too old", "Produce", version, produce_body(strict, _GOOD.encode()))


@case("Produce")
def a_compacted_topic_wants_keys(talk: Talk, version: int) -> None:
    topic = talk.topic(configs={"cleanup.policy": "compact"})
    keys = (b"k", None, b"", None)
    batch = Batch(tuple(Rec(key) for key in keys))
    talk.ask("answer", "Produce", version, produce_body(topic, batch.encode()))
    talk.ask("compressed", "Produce", version, produce_body(topic, batch.with_(codec="zstd").encode()))
    talk.ask("with keys", "Produce", version, produce_body(topic, Batch((Rec(b""),)).encode()))


@case("Produce", range(7, 14))
def the_topic_compresses(talk: Talk, version: int) -> None:
    """Offsets and answers only: two compressors need not agree on bytes."""
    for kind in ("gzip", "uncompressed"):
        topic = talk.topic(configs={"compression.type": kind})
        for codec in ("none", "gzip", "zstd"):
            body = produce_body(topic, _GOOD.with_(codec=codec).encode())
            talk.ask(f"{codec} into {kind}", "Produce", version, body)


def _sequences(talk: Talk, version: int, steps: list[tuple[str, dict[str, Any]]]) -> None:
    topic = talk.topic()
    for label, fields in steps:
        count = fields.pop("records", 1)
        batch = Batch(tuple(Rec(b"k", b"%d" % n) for n in range(count)), producer_id=5000, **fields)
        talk.ask(label, "Produce", version, produce_body(topic, batch.encode()))
    _read_back(talk, topic)


@case("Produce")
def sequences_in_and_out_of_order(talk: Talk, version: int) -> None:
    epoch = {"producer_epoch": 0}
    steps: list[tuple[str, dict[str, Any]]] = [
        ("first may be any", {**epoch, "base_sequence": 7, "records": 3}),
        ("next", {**epoch, "base_sequence": 10, "records": 2}),
        ("gap", {**epoch, "base_sequence": 15}),
        ("repeat of the last", {**epoch, "base_sequence": 10, "records": 2}),
        ("repeat of the first", {**epoch, "base_sequence": 7, "records": 3}),
        ("partial overlap", {**epoch, "base_sequence": 11, "records": 2}),
        ("part of the last", {**epoch, "base_sequence": 11}),
        ("below", {**epoch, "base_sequence": 0}),
        ("next again", {**epoch, "base_sequence": 12}),
    ]
    _sequences(talk, version, steps)


@case("Produce")
def the_duplicate_window_is_five_batches(talk: Talk, version: int) -> None:
    steps: list[tuple[str, dict[str, Any]]] = [
        (f"batch {n}", {"producer_epoch": 0, "base_sequence": n * 2, "records": 2}) for n in range(7)
    ]
    steps += [
        (f"repeat {n}", {"producer_epoch": 0, "base_sequence": n * 2, "records": 2}) for n in (6, 5, 4, 3, 2, 1, 0)
    ]
    _sequences(talk, version, steps)


@case("Produce")
def producer_epochs(talk: Talk, version: int) -> None:
    steps: list[tuple[str, dict[str, Any]]] = [
        ("epoch 3", {"producer_epoch": 3, "base_sequence": 0}),
        ("epoch 2", {"producer_epoch": 2, "base_sequence": 1}),
        ("epoch 4 not from zero", {"producer_epoch": 4, "base_sequence": 1}),
        ("epoch 4 from zero", {"producer_epoch": 4, "base_sequence": 0}),
        ("epoch 3 is old", {"producer_epoch": 3, "base_sequence": 1}),
        ("repeat in epoch 4", {"producer_epoch": 4, "base_sequence": 0}),
        ("epoch 4 goes on", {"producer_epoch": 4, "base_sequence": 1}),
    ]
    _sequences(talk, version, steps)


@case("Produce")
def sequences_wrap(talk: Talk, version: int) -> None:
    top = 2147483647
    steps: list[tuple[str, dict[str, Any]]] = [
        ("near the top", {"producer_epoch": 0, "base_sequence": top - 1}),
        ("across", {"producer_epoch": 0, "base_sequence": top, "records": 3}),
        ("after", {"producer_epoch": 0, "base_sequence": 2}),
        ("repeat of across", {"producer_epoch": 0, "base_sequence": top, "records": 3}),
        ("gap", {"producer_epoch": 0, "base_sequence": 4}),
    ]
    _sequences(talk, version, steps)
