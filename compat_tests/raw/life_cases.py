"""What becomes of requests when topics go, come back, lack replicas or have rolled their segments."""

from __future__ import annotations

from typing import Any

from compat_tests.client import WAIT_SECONDS
from compat_tests.raw.batches import FIRST_MS, Batch, Rec
from compat_tests.raw.cases import case
from compat_tests.raw.talk import Talk, Topic, produce_body
from compat_tests.until import until

_BATCH = Batch((Rec(b"a", b"1"), Rec(b"b", b"2", 1))).encode()


def _fetch(topic: Topic, offset: int = 0, **more: Any) -> dict[str, Any]:
    part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 10 << 20}
    asked = {"topic": topic.name, "topic_id": topic.topic_id, "partitions": [part]}
    return {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50 << 20, "topics": [asked], **more}


def _delete(talk: Talk, topic: Topic) -> None:
    """Gone from the metadata and from the broker that led it."""
    answer = talk.quietly("DeleteTopics", 6, {"topics": [{"name": topic.name}], "timeout_ms": 30_000})
    assert answer["responses"][0]["error_code"] == 0
    asked = {"replica_id": -1, "topics": [{"name": topic.name, "partitions": [{"timestamp": -1}]}]}

    def gone() -> bool:
        offsets = talk.quietly("ListOffsets", 7, asked)["topics"][0]["partitions"][0]
        body = {"topics": [{"name": topic.name}], "allow_auto_topic_creation": False}
        known = talk.quietly("Metadata", 12, body)["topics"][0]
        return bool(offsets["error_code"] == 3 and known["error_code"] == 3)

    until(gone, WAIT_SECONDS)


def _again(talk: Talk, topic: Topic) -> Topic:
    wanted = {"name": topic.name, "num_partitions": 1, "replication_factor": 1}
    made = talk.quietly("CreateTopics", 7, {"topics": [wanted], "timeout_ms": 30_000})["topics"][0]
    assert made["error_code"] == 0
    talk.symbol(made["topic_id"], "the new id")
    asked = {"replica_id": -1, "topics": [{"name": topic.name, "partitions": [{"timestamp": -1}]}]}
    until(lambda: talk.quietly("ListOffsets", 7, asked)["topics"][0]["partitions"][0]["error_code"] == 0, WAIT_SECONDS)
    return Topic(topic.name, bytes.fromhex(made["topic_id"]))


@case("Produce", range(3, 14))
def to_a_topic_that_is_gone_and_back(talk: Talk, version: int) -> None:
    topic = talk.topic()
    talk.append(topic, _BATCH)
    _delete(talk, topic)
    talk.ask("gone", "Produce", version, produce_body(topic, _BATCH))
    back = _again(talk, topic)
    talk.ask("the old id", "Produce", version, produce_body(topic, _BATCH))
    talk.ask("the new id", "Produce", version, produce_body(back, _BATCH))


@case("Fetch", range(4, 19))
def from_a_topic_that_is_gone_and_back(talk: Talk, version: int) -> None:
    topic = talk.topic()
    talk.append(topic, _BATCH)
    opened = talk.ask("session", "Fetch", version, _fetch(topic, session_id=0, session_epoch=0))
    _delete(talk, topic)
    talk.ask("gone", "Fetch", version, _fetch(topic))
    if version >= 7:
        turn = {"session_id": opened["session_id"], "session_epoch": 1, "topics": []}
        talk.ask("gone, in the session", "Fetch", version, {"max_wait_ms": 0, "min_bytes": 1, **turn})
    back = _again(talk, topic)
    talk.ask("the old id", "Fetch", version, _fetch(topic))
    talk.ask("the new id", "Fetch", version, _fetch(back))
    if version >= 7:
        turn = {"session_id": opened["session_id"], "session_epoch": 2, "topics": []}
        talk.ask("back, in the session", "Fetch", version, {"max_wait_ms": 0, "min_bytes": 1, **turn})


@case("Produce", range(3, 14))
def too_few_replicas(talk: Talk, version: int) -> None:
    topic = talk.topic(configs={"min.insync.replicas": "2"})
    for acks in (-1, 1):
        talk.ask(f"acks {acks}", "Produce", version, produce_body(topic, _BATCH, acks=acks))
    talk.ask(
        "offsets",
        "ListOffsets",
        7,
        {"replica_id": -1, "topics": [{"name": topic.name, "partitions": [{"timestamp": -1}]}]},
    )


@case("Produce", [9, 13])
def larger_than_a_segment(talk: Talk, version: int) -> None:
    topic = talk.topic(configs={"segment.bytes": "1048576", "max.message.bytes": "4000000"})
    talk.ask("too large", "Produce", version, produce_body(topic, Batch((Rec(b"k", bytes(1_100_000)),)).encode()))
    talk.ask("fits", "Produce", version, produce_body(topic, Batch((Rec(b"k", bytes(1_000_000)),)).encode()))
    talk.ask("next segment", "Produce", version, produce_body(topic, Batch((Rec(b"k", bytes(500_000)),)).encode()))


def _segments(talk: Talk) -> Topic:
    """Five segments of a megabyte, two batches of two records each, times rising but for one."""
    topic = talk.topic(configs={"segment.bytes": "1048576"})
    for turn in range(10):
        late = 5_000 if turn == 5 else 0
        records = (Rec(b"k", bytes([turn]) * 250_000, late), Rec(b"k", bytes([turn]) * 250_000, 10))
        talk.append(topic, Batch(records, base_timestamp=FIRST_MS + 100 * turn).encode())
    return topic


@case("Fetch", [4, 11, 12, 18])
def across_segments(talk: Talk, version: int) -> None:
    topic = _segments(talk)
    for offset in range(21):
        answer: Any = talk.connection.ask("Fetch", version, _fetch(topic, offset))
        (part,) = answer["responses"][0]["partitions"]
        data = bytes.fromhex(part.pop("records") or "")
        part["first"] = int.from_bytes(data[:8], "big") if data else None
        part["bytes"] = len(data)
        talk.say(f"offset {offset}", part)


@case("ListOffsets", [1, 7, 11])
def times_across_segments(talk: Talk, version: int) -> None:
    topic = _segments(talk)
    whens = [FIRST_MS + 50 * step + plus for step in range(24) for plus in (0, 1, 10, 11)]
    for when in (*whens, FIRST_MS + 5_000, FIRST_MS + 5_500, FIRST_MS + 5_501, -1, -2, -3):
        asked = {"name": topic.name, "partitions": [{"timestamp": when}]}
        if f"{when}" not in talk.said:
            talk.ask(f"{when}", "ListOffsets", version, {"replica_id": -1, "topics": [asked]})


@case("ListPartitionReassignments")
def nothing_moves(talk: Talk, version: int) -> None:
    topic = talk.topic()
    talk.ask("all", "ListPartitionReassignments", version, {"timeout_ms": 30_000, "topics": None})
    for name in (topic.name, "no-such-topic"):
        asked = [{"name": name, "partition_indexes": [0, 5]}]
        talk.ask(name, "ListPartitionReassignments", version, {"timeout_ms": 30_000, "topics": asked})
    talk.ask("none", "ListPartitionReassignments", version, {"timeout_ms": 30_000, "topics": []})
