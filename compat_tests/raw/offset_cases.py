"""ListOffsets, OffsetForLeaderEpoch, InitProducerId."""

from __future__ import annotations

from typing import Any

from compat_tests.client import WAIT_SECONDS
from compat_tests.raw.batches import FIRST_MS, Batch, Rec
from compat_tests.raw.cases import case
from compat_tests.raw.talk import Talk, Topic
from compat_tests.until import until


def _list(topic: Topic, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"replica_id": -1, "topics": [{"name": topic.name, "partitions": list(parts)}], "timeout_ms": 30_000, **more}


def _at(timestamp: int, partition: int = 0, **more: Any) -> dict[str, Any]:
    return {"partition_index": partition, "timestamp": timestamp, **more}


def _times(*deltas: int, codec: str = "none", base: int = FIRST_MS) -> bytes:
    return Batch(tuple(Rec(b"k", b"v", delta) for delta in deltas), codec, base_timestamp=base).encode()


@case("ListOffsets")
def special_timestamps(talk: Talk, version: int) -> None:
    empty, full = talk.topic(), talk.topic()
    talk.append(full, _times(0, 10, 5), _times(20, 20, 15, codec="gzip"), _times(20, 1))
    for timestamp in range(0, -9, -1):
        talk.ask(f"{timestamp}, empty log", "ListOffsets", version, _list(empty, _at(timestamp)))
        talk.ask(f"{timestamp}", "ListOffsets", version, _list(full, _at(timestamp)))
    talk.ask("far below", "ListOffsets", version, _list(full, _at(-9223372036854775808)))


@case("ListOffsets")
def by_time(talk: Talk, version: int) -> None:
    topic = talk.topic()
    talk.append(topic, _times(0, 10, 5), _times(30, 20, 40, codec="zstd"), _times(0, base=FIRST_MS + 35), _times(60))
    for delta in (-1, 0, 1, 5, 6, 10, 11, 20, 21, 30, 31, 36, 40, 41, 60, 61):
        talk.ask(f"+{delta}", "ListOffsets", version, _list(topic, _at(FIRST_MS + delta)))
    talk.ask("the end of time", "ListOffsets", version, _list(topic, _at(9223372036854775807)))


@case("ListOffsets")
def records_without_timestamp(talk: Talk, version: int) -> None:
    topic = talk.topic()
    talk.append(topic, Batch((Rec(),), base_timestamp=-1).encode())
    for timestamp in (-3, 0, 1):
        talk.ask(f"{timestamp}", "ListOffsets", version, _list(topic, _at(timestamp)))


@case("ListOffsets")
def unknown_and_repeated(talk: Talk, version: int) -> None:
    topic = talk.topic()
    for partition in (1, -1):
        talk.ask(f"partition {partition}", "ListOffsets", version, _list(topic, _at(-1, partition)))
    talk.ask("topic", "ListOffsets", version, _list(Topic("no-such-topic", bytes(16)), _at(-1)))
    talk.ask("bad name", "ListOffsets", version, _list(Topic("a/b", bytes(16)), _at(-1)))
    talk.ask("twice", "ListOffsets", version, _list(topic, _at(-1), _at(-2)))
    talk.ask("no topics", "ListOffsets", version, {"replica_id": -1, "topics": []})


@case("ListOffsets", range(4, 12))
def epochs_of_leaders(talk: Talk, version: int) -> None:
    topic = talk.topic()
    talk.append(topic, _times(0))
    for epoch in (-2, -1, 0, 1, 9):
        for timestamp in (-1, -2, FIRST_MS):
            body = _list(topic, _at(timestamp, current_leader_epoch=epoch))
            talk.ask(f"epoch {epoch}, time {timestamp}", "ListOffsets", version, body)


@case("ListOffsets", range(2, 12))
def isolation(talk: Talk, version: int) -> None:
    topic = talk.topic()
    talk.append(topic, _times(0, 1))
    for timestamp in (-1, -2, FIRST_MS + 1, FIRST_MS + 2):
        body = _list(topic, _at(timestamp), isolation_level=1)
        talk.ask(f"committed, {timestamp}", "ListOffsets", version, body)


@case("ListOffsets")
def replica_ids(talk: Talk, version: int) -> None:
    topic = talk.topic()
    talk.append(topic, _times(0, 1))
    for replica in (-2, -3):
        talk.ask(f"replica {replica}", "ListOffsets", version, _list(topic, _at(-1), replica_id=replica))


@case("OffsetForLeaderEpoch")
def ends_of_epochs(talk: Talk, version: int) -> None:
    empty, full = talk.topic(), talk.topic()
    talk.append(full, _times(0, 1, 2))
    for name, topic in (("empty", empty), ("full", full), ("unknown", Topic("no-such-topic", bytes(16)))):
        for partition, current, asked in (
            (0, -1, 0),
            (0, -1, 1),
            (0, -1, -1),
            (0, 0, 0),
            (0, 5, 0),
            (0, -2, 0),
            (4, -1, 0),
        ):
            part = {"partition": partition, "current_leader_epoch": current, "leader_epoch": asked}
            body = {"replica_id": -1, "topics": [{"topic": topic.name, "partitions": [part]}]}
            talk.ask(f"{name} {partition} {current} {asked}", "OffsetForLeaderEpoch", version, body)


def _init(talk: Talk, version: int, body: dict[str, Any]) -> Any:
    """Asks until the broker has ids to give: while Kafka fetches its first block it answers 14."""
    answer: Any = None

    def settled() -> bool:
        nonlocal answer
        answer = talk.connection.ask("InitProducerId", version, body)
        return isinstance(answer, str) or answer["error_code"] != 14

    until(settled, WAIT_SECONDS)
    return answer


@case("InitProducerId")
def ids_are_fresh(talk: Talk, version: int) -> None:
    body = {"transactional_id": None, "transaction_timeout_ms": 60_000}
    one, two = _init(talk, version, body), _init(talk, version, body)
    talk.say("different", one["producer_id"] != two["producer_id"])
    talk.say("rises", two["producer_id"] > one["producer_id"])
    for name, answer in (("one", one), ("two", two)):
        answer["producer_id"] = "an id" if answer["producer_id"] >= 0 else answer["producer_id"]
        talk.say(name, answer)


@case("InitProducerId")
def without_transactional_id_the_rest_is_free(talk: Talk, version: int) -> None:
    for name, more in (
        ("timeout 0", {"transaction_timeout_ms": 0}),
        ("timeout negative", {"transaction_timeout_ms": -1}),
        ("with an id", {"producer_id": 12, "producer_epoch": 3}),
        ("with an id alone", {"producer_id": 12}),
        ("with an epoch alone", {"producer_epoch": 3}),
    ):
        body = {"transactional_id": None, "transaction_timeout_ms": 60_000, **more}
        answer = _init(talk, version, body)
        if isinstance(answer, dict) and answer["producer_id"] >= 0:
            answer["producer_id"] = "an id"
        talk.say(name, answer)


@case("InitProducerId")
def an_empty_transactional_id(talk: Talk, version: int) -> None:
    talk.say("answer", _init(talk, version, {"transactional_id": "", "transaction_timeout_ms": 60_000}))
