"""Fetch: places, limits, epochs, sessions, errors."""

from __future__ import annotations

from typing import Any

from compat_tests.raw.batches import Batch, Rec
from compat_tests.raw.cases import case
from compat_tests.raw.talk import Talk, Topic

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def _part(partition: int = 0, offset: int = 0, **more: Any) -> dict[str, Any]:
    return {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20, **more}


def _body(topic: Topic, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    asked = {"topic": topic.name, "topic_id": topic.topic_id, "partitions": list(parts)}
    return {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50 << 20, "topics": [asked], **more}


def _batch(*values: bytes, codec: str = "none") -> bytes:
    return Batch(tuple(Rec(b"k", value, n) for n, value in enumerate(values)), codec).encode()


def _whole(answer: Any) -> Any:
    """Without the part of a batch that a byte limit may leave at the end; clients drop it as well."""
    if isinstance(answer, dict):
        for topic in answer["responses"]:
            for part in topic["partitions"]:
                data = bytes.fromhex(part["records"] or "")
                end = 0
                while end + 12 <= len(data):
                    size = 12 + int.from_bytes(data[end + 8 : end + 12], "big")
                    if end + size > len(data):
                        break
                    end += size
                part["records"] = data[:end].hex()
    return answer


@case("Fetch")
def offsets_inside_and_outside_the_log(talk: Talk, version: int) -> None:
    topic = talk.topic()
    talk.append(topic, _batch(b"a", b"b"), _batch(b"c"), _batch(b"d", b"e", b"f"))
    for offset in (0, 1, 2, 4, 5, 6, 7, 1000, -1, -5, 9223372036854775807):
        talk.ask(f"offset {offset}", "Fetch", version, _body(topic, _part(offset=offset)))


@case("Fetch")
def every_codec_comes_back_as_it_went(talk: Talk, version: int) -> None:
    for codec in _CODECS:
        topic = talk.topic()
        talk.append(topic, _batch(b"a" * 50, b"b" * 50, codec=codec))
        talk.ask(codec, "Fetch", version, _body(topic, _part()))


@case("Fetch")
def limits_of_bytes(talk: Talk, version: int) -> None:
    topic = talk.topic(partitions=2)
    for partition in (0, 1):
        talk.append(topic, *(_batch(b"x" * 100) for _ in range(5)), partition=partition)
    size = len(_batch(b"x" * 100))

    def ask(label: str, body: dict[str, Any]) -> None:
        talk.say(label, _whole(talk.connection.ask("Fetch", version, body)))

    for limit in (0, 1, size - 1, size, size + 1, 2 * size, 3 * size - 1):
        part = _part(partition_max_bytes=limit)
        ask(f"partition_max_bytes {limit}", _body(topic, part))
        ask(f"max_bytes {limit}", _body(topic, _part(), max_bytes=limit))
    both = (_part(0), _part(1))
    for limit in (1, size, size + 5, 5 * size, 5 * size + 5, 6 * size, 6 * size + 5, 7 * size):
        ask(f"two partitions, max_bytes {limit}", _body(topic, *both, max_bytes=limit))
    small = (_part(0, partition_max_bytes=1), _part(1, partition_max_bytes=1))
    ask("two partitions of one byte", _body(topic, *small))
    first_empty = (_part(0, offset=5), _part(1, partition_max_bytes=1))
    ask("the first is at its end", _body(topic, *first_empty))


@case("Fetch")
def where_the_last_batch_is_cut(talk: Talk, version: int) -> None:
    topic = talk.topic()
    talk.append(topic, _batch(b"x" * 100), _batch(b"y" * 100))
    size = len(_batch(b"x" * 100))
    answer = talk.quietly("Fetch", version, _body(topic, _part(partition_max_bytes=size + 50)))
    talk.say("bytes", len(answer["responses"][0]["partitions"][0]["records"]) // 2)


@case("Fetch")
def waiting_ends_with_what_there_is(talk: Talk, version: int) -> None:
    topic = talk.topic()
    talk.ask("empty log", "Fetch", version, _body(topic, _part(), max_wait_ms=20))
    talk.append(topic, _batch(b"a"))
    talk.ask("too little", "Fetch", version, _body(topic, _part(), max_wait_ms=20, min_bytes=100_000))
    talk.ask("min_bytes 0", "Fetch", version, _body(topic, _part(offset=1), max_wait_ms=10_000, min_bytes=0))
    talk.ask("enough", "Fetch", version, _body(topic, _part(), max_wait_ms=10_000, min_bytes=1))
    unknown = (_part(), _part(partition=9))
    talk.ask("an unknown partition", "Fetch", version, _body(topic, *unknown, max_wait_ms=20, min_bytes=100_000))
    two = talk.topic(partitions=2)
    wrong = (_part(), _part(partition=1, offset=99))
    talk.ask("an error ends it", "Fetch", version, _body(two, *wrong, max_wait_ms=10_000, min_bytes=100_000))


@case("Fetch")
def unknown_topics_and_partitions(talk: Talk, version: int) -> None:
    topic = talk.topic()
    talk.ask("topic", "Fetch", version, _body(Topic("no-such-topic", b"\7" * 16), _part()))
    talk.ask("zero id or empty name", "Fetch", version, _body(Topic("", bytes(16)), _part()))
    for partition in (1, -1, 2147483647):
        talk.ask(f"partition {partition}", "Fetch", version, _body(topic, _part(partition=partition)))
    talk.ask("no topics", "Fetch", version, {"max_wait_ms": 0, "topics": []})
    talk.ask("no partitions", "Fetch", version, _body(topic))


@case("Fetch")
def isolation_levels(talk: Talk, version: int) -> None:
    topic = talk.topic()
    talk.append(topic, _batch(b"a"))
    for level in (0, 1):
        talk.ask(f"level {level}", "Fetch", version, _body(topic, _part(), isolation_level=level))
        talk.ask(f"level {level}, at the end", "Fetch", version, _body(topic, _part(offset=1), isolation_level=level))
        talk.ask(f"level {level}, beyond", "Fetch", version, _body(topic, _part(offset=9), isolation_level=level))
        talk.ask(f"level {level}, unknown", "Fetch", version, _body(topic, _part(3), isolation_level=level))


@case("Fetch", range(9, 19))
def leader_epochs(talk: Talk, version: int) -> None:
    topic = talk.topic()
    talk.append(topic, _batch(b"a"))
    for epoch in (-2, -1, 0, 1, 100):
        talk.ask(f"epoch {epoch}", "Fetch", version, _body(topic, _part(current_leader_epoch=epoch)))


@case("Fetch", range(12, 19))
def last_fetched_epochs(talk: Talk, version: int) -> None:
    topic = talk.topic()
    talk.append(topic, _batch(b"a", b"b"))
    for epoch, offset in ((0, 0), (0, 1), (0, 2), (0, 3), (1, 2), (5, 0), (-1, 2)):
        part = _part(offset=offset, last_fetched_epoch=epoch, current_leader_epoch=0)
        talk.ask(f"epoch {epoch} at {offset}", "Fetch", version, _body(topic, part))


@case("Fetch", range(7, 19))
def a_session_from_open_to_close(talk: Talk, version: int) -> None:
    topic = talk.topic(partitions=3)
    talk.append(topic, _batch(b"a"), partition=0)
    opened = talk.ask("open", "Fetch", version, _body(topic, _part(0), _part(1), session_id=0, session_epoch=0))
    session = opened["session_id"]

    def step(label: str, epoch: int, *parts: dict[str, Any], **more: Any) -> None:
        body = _body(topic, *parts, session_id=session, session_epoch=epoch, **more)
        if not parts:
            body["topics"] = []
        talk.ask(label, "Fetch", version, body)

    step("still the same data", 1)
    step("move past it", 2, _part(0, offset=1))
    step("nothing new", 3)
    talk.append(topic, _batch(b"b"), partition=1)
    step("data in the other", 4)
    step("wrong epoch", 9)
    step("right epoch after the wrong one", 5, _part(1, offset=1))
    step("add a third", 6, _part(2))
    talk.append(topic, _batch(b"c"), partition=2)
    forgotten = [{"topic": topic.name, "topic_id": topic.topic_id, "partitions": [2]}]
    step("forget it", 7, forgotten_topics_data=forgotten)
    step("an unknown partition joins", 8, _part(7))
    step("it is told each time", 9)
    step("close", -1, _part(0))
    step("after the close", 10)


@case("Fetch", range(7, 19))
def session_errors(talk: Talk, version: int) -> None:
    topic = talk.topic()
    for session, epoch in ((12345, 1), (12345, 0), (12345, -1), (0, 1), (0, 5), (-1, 3)):
        body = _body(topic, _part(), session_id=session, session_epoch=epoch)
        talk.ask(f"session {session}, epoch {epoch}", "Fetch", version, body)


@case("Fetch", range(7, 19))
def a_session_of_an_unknown_topic(talk: Talk, version: int) -> None:
    topic = talk.topic()
    unknown = {"topic": "no-such-topic", "topic_id": b"\7" * 16, "partitions": [_part()]}
    body = _body(topic, _part(), session_id=0, session_epoch=0)
    body["topics"].append(unknown)
    opened = talk.ask("open", "Fetch", version, body)
    session = {"session_id": opened["session_id"], "session_epoch": 1}
    talk.ask("next", "Fetch", version, {"max_wait_ms": 0, "min_bytes": 1, "topics": [], **session})


@case("Fetch", range(7, 19))
def an_empty_session(talk: Talk, version: int) -> None:
    talk.ask("open", "Fetch", version, {"max_wait_ms": 0, "topics": [], "session_id": 0, "session_epoch": 0})


@case("Fetch", range(11, 19))
def a_rack_changes_nothing(talk: Talk, version: int) -> None:
    topic = talk.topic()
    talk.append(topic, _batch(b"a"))
    talk.ask("answer", "Fetch", version, _body(topic, _part(), rack_id="somewhere"))


@case("Fetch")
def the_same_partition_twice(talk: Talk, version: int) -> None:
    topic = talk.topic()
    talk.append(topic, _batch(b"a"), _batch(b"b"))
    talk.ask("answer", "Fetch", version, _body(topic, _part(), _part(offset=1)))


@case("Fetch", range(4, 15))
def odd_replica_ids(talk: Talk, version: int) -> None:
    topic = talk.topic()
    talk.append(topic, _batch(b"a"))
    for replica in (-2, -3):
        talk.ask(f"replica {replica}", "Fetch", version, _body(topic, _part(), replica_id=replica))


@case("Fetch")
def log_append_time_is_stamped(talk: Talk, version: int) -> None:
    """The stamp is the broker's clock; attribute bit 3 and everything else of the batch is comparable."""
    topic = talk.topic(configs={"message.timestamp.type": "LogAppendTime"})
    talk.append(topic, _batch(b"a", b"b"), _batch(b"c", codec="gzip"))
    answer = talk.quietly("Fetch", version, _body(topic, _part()))
    (part,) = answer["responses"][0]["partitions"]
    data = bytearray.fromhex(part["records"])
    at = 0
    while at < len(data):
        data[at + 17 : at + 21] = bytes(4)  # crc
        data[at + 35 : at + 43] = bytes(8)  # max timestamp
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    part["records"] = data.hex()
    talk.say("answer", answer)
