"""DescribeLogDirs and AlterReplicaLogDirs on a broker of one directory; `test_log_dirs` has those of several."""

from __future__ import annotations

from typing import Any

from compat_tests.raw.batches import Batch, Rec
from compat_tests.raw.cases import case
from compat_tests.raw.talk import Talk, Topic


def normal(answer: Any, named: dict[str, str], *topics: str) -> Any:
    """Paths by name, room as far as it can be compared, nothing of other topics, everything in order."""
    if not isinstance(answer, dict):
        return answer
    for one in answer["results"]:
        one["log_dir"] = named.get(one["log_dir"], one["log_dir"])
        if "usable_bytes" in one:
            one["usable_bytes"] = 0 < one["usable_bytes"] <= one["total_bytes"]
        if topics:
            one["topics"] = [topic for topic in one["topics"] if topic["name"] in topics]
        one["topics"].sort(key=lambda topic: topic["name"])
        for topic in one["topics"]:
            topic["partitions"].sort(key=lambda part: (part["partition_index"], part["is_future_key"]))
    return answer


def describe(*wanted: tuple[str, list[int]]) -> dict[str, Any]:
    return {"topics": [{"topic": topic, "partitions": partitions} for topic, partitions in wanted]}


def paths(talk: Talk) -> list[str]:
    return [one["log_dir"] for one in talk.quietly("DescribeLogDirs", 4, {"topics": []})["results"]]


def _ask(talk: Talk, label: str, version: int, body: dict[str, Any], *topics: str) -> None:
    named = {path: f"directory {n}" for n, path in enumerate(paths(talk))}
    talk.say(label, normal(talk.connection.ask("DescribeLogDirs", version, body), named, *topics))


def _some(talk: Talk, partitions: int = 3) -> Topic:
    topic = talk.topic(partitions=partitions)
    for partition in range(partitions):
        for _ in range(partition):
            talk.append(topic, Batch((Rec(), Rec(timestamp_delta=1))).encode(), partition=partition)
    return topic


@case("DescribeLogDirs")
def what_is_asked_for(talk: Talk, version: int) -> None:
    one, other = _some(talk), _some(talk, 2)
    everything = {"topics": None}
    _ask(talk, "everything", version, everything, one.name, other.name)
    _ask(talk, "nothing", version, {"topics": []})
    _ask(talk, "one", version, describe((one.name, [1])))
    _ask(talk, "two topics", version, describe((one.name, [0, 2]), (other.name, [1])))
    _ask(talk, "no partitions", version, describe((one.name, [])))
    _ask(talk, "twice", version, describe((one.name, [1, 1]), (one.name, [1, 2])))
    _ask(talk, "unknown", version, describe((one.name, [1, 3, -1, 2147483647]), ("no-such-topic", [0]), ("", [0])))
    _ask(talk, "unknown only", version, describe(("a/b", [0])))


@case("DescribeLogDirs")
def of_a_log_that_was_deleted_from(talk: Talk, version: int) -> None:
    topic = _some(talk)
    parts = [{"partition_index": 2, "offset": 3}]
    talk.quietly("DeleteRecords", 2, {"topics": [{"name": topic.name, "partitions": parts}], "timeout_ms": 30_000})
    _ask(talk, "in the middle", version, describe((topic.name, [2])))


def _alter(talk: Talk, label: str, version: int, *wanted: tuple[str, str, list[int]]) -> None:
    """Kafka answers in an order of its own."""
    dirs = [{"path": path, "topics": [{"name": topic, "partitions": parts}]} for path, topic, parts in wanted]
    answer = talk.connection.ask("AlterReplicaLogDirs", version, {"dirs": dirs})
    if isinstance(answer, dict):
        answer["results"].sort(key=lambda topic: topic["topic_name"])
        for topic in answer["results"]:
            topic["partitions"].sort(key=lambda one: one["partition_index"])
    talk.say(label, answer)


@case("AlterReplicaLogDirs")
def where_there_is_one_directory(talk: Talk, version: int) -> None:
    topic = _some(talk)
    (here,) = paths(talk)
    _alter(talk, "where it is", version, (here, topic.name, [0, 1]))
    for name, path in {
        "unknown": "/no/such/directory",
        "empty": "",
        "relative": "data",
        "with a slash": here + "/",
        "not normal": here + "/../" + here.rsplit("/", 1)[1],
        "root": "/",
    }.items():
        _alter(talk, name, version, (path, topic.name, [0, 7]))
    _alter(talk, "unknown partitions", version, (here, topic.name, [0, 3, -1, 2147483647]))
    _alter(talk, "unknown topic", version, (here, f"{topic.name}-not", [0]))
    _alter(talk, "bad name", version, (here, "a/b", [0]))
    _alter(talk, "no name", version, (here, "", [0]))
    _alter(talk, "no partitions", version, (here, topic.name, []))
    _alter(talk, "no directories", version)
    _alter(talk, "the last word counts", version, ("/nowhere", topic.name, [0]), (here, topic.name, [0]))
    _alter(talk, "the last word counts, wrong", version, (here, topic.name, [0]), ("/nowhere", topic.name, [0]))
    for length in (212, 213, 249):
        name = f"{version}-".ljust(length, "x")
        _alter(talk, f"a name of {length}", version, (here, name, [0, 10]))
