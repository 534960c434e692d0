"""DeleteRecords, and what the other APIs tell of a log whose beginning is gone."""

from __future__ import annotations

from typing import Any

from compat_tests.raw.batches import FIRST_MS, Batch, Rec
from compat_tests.raw.cases import case
from compat_tests.raw.talk import Talk, Topic

_LONGS = (-(1 << 63), -2, -1, 0, 1, 3, 5, 6, 7, (1 << 63) - 1)


def _delete(topic: str, *parts: tuple[int, int], timeout_ms: int = 30_000) -> dict[str, Any]:
    asked = [{"partition_index": index, "offset": offset} for index, offset in parts]
    return {"topics": [{"name": topic, "partitions": asked}], "timeout_ms": timeout_ms}


def _ask(talk: Talk, label: str, version: int, body: dict[str, Any]) -> None:
    """Kafka answers topics and partitions in an order of its own."""
    answer = talk.connection.ask("DeleteRecords", version, body)
    if isinstance(answer, dict):
        answer["topics"].sort(key=lambda topic: topic["name"])
        for topic in answer["topics"]:
            topic["partitions"].sort(key=lambda one: one["partition_index"])
    talk.say(label, answer)


def _six(talk: Talk, **configs: str) -> Topic:
    topic = talk.topic(configs={name.replace("_", "."): value for name, value in configs.items()})
    for turn in range(3):
        batch = Batch((Rec(), Rec(timestamp_delta=1)), base_timestamp=FIRST_MS + turn * 10)
        talk.append(topic, batch.encode())
    return topic


def _look(talk: Talk, label: str, topic: Topic) -> None:
    for when in (-2, -1, -3, -4, FIRST_MS, FIRST_MS + 11):
        part = {"partition_index": 0, "timestamp": when}
        body = {"replica_id": -1, "topics": [{"name": topic.name, "partitions": [part]}]}
        talk.ask(f"{label}: offset for {when}", "ListOffsets", 8, body)
    for offset in range(8):
        part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        body = {"max_wait_ms": 0, "topics": [{"topic": topic.name, "partitions": [part]}]}
        talk.ask(f"{label}: fetch at {offset}", "Fetch", 12, body)
    part = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    body = {"replica_id": -1, "topics": [{"topic": topic.name, "partitions": [part]}]}
    talk.ask(f"{label}: end of epoch", "OffsetForLeaderEpoch", 4, body)


@case("DeleteRecords")
def offsets_of_every_kind(talk: Talk, version: int) -> None:
    for offset in _LONGS:
        topic = _six(talk)
        _ask(talk, f"{offset}", version, _delete(topic.name, (0, offset)))
        _look(talk, f"after {offset}", topic)


@case("DeleteRecords")
def the_start_only_rises(talk: Talk, version: int) -> None:
    topic = _six(talk)
    for turn, offset in enumerate((2, 1, 0, 4, 3, -1, 5, 6)):
        _ask(talk, f"{turn}: {offset}", version, _delete(topic.name, (0, offset)))
    answer = talk.append(topic, Batch().encode())
    talk.say("the next record", answer)
    _look(talk, "at the end", topic)


@case("DeleteRecords")
def policies(talk: Talk, version: int) -> None:
    for policy in ("delete", "compact", "compact,delete", "delete,compact", ""):
        topic = _six(talk, cleanup_policy=policy)
        _ask(talk, f"{policy!r}", version, _delete(topic.name, (0, 3)))
        _ask(talk, f"{policy!r}, beyond", version, _delete(topic.name, (0, 70)))


@case("DeleteRecords")
def unknown_and_repeated(talk: Talk, version: int) -> None:
    topic = _six(talk)
    _ask(talk, "partitions", version, _delete(topic.name, (0, 1), (1, 1), (-1, 1), (2147483647, -1)))
    _ask(talk, "topic", version, _delete("no-such-topic", (0, -1)))
    _ask(talk, "bad name", version, _delete("a/b", (0, -1)))
    _ask(talk, "no name", version, _delete("", (0, -1)))
    _ask(talk, "twice", version, _delete(topic.name, (0, 4), (0, 2)))
    two = {"name": topic.name, "partitions": [{"partition_index": 0, "offset": 3}]}
    other = {"name": topic.name, "partitions": [{"partition_index": 0, "offset": 5}, {"partition_index": 9}]}
    _ask(talk, "in two topics", version, {"topics": [two, other], "timeout_ms": 1000})
    _ask(talk, "no topics", version, {"topics": [], "timeout_ms": 1000})
    _ask(talk, "no partitions", version, _delete(topic.name))
    for timeout_ms in (0, -1):
        _ask(talk, f"timeout {timeout_ms}", version, _delete(topic.name, (0, 6), timeout_ms=timeout_ms))
    _look(talk, "then", topic)


@case("DeleteRecords")
def an_empty_log(talk: Talk, version: int) -> None:
    topic = talk.topic()
    for offset in (-1, 0, 1):
        _ask(talk, f"{offset}", version, _delete(topic.name, (0, offset)))
