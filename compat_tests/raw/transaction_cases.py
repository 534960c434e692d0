"""WriteTxnMarkers and DescribeProducers on the wire, without a transaction that a coordinator knows of."""

from __future__ import annotations

from typing import Any

from compat_tests.raw.batches import Batch, Rec
from compat_tests.raw.cases import case
from compat_tests.raw.talk import Talk
from compat_tests.raw.transactions import Story, batch, ordered


def _marker(topics: list[tuple[str, list[int]]], producer_id: int = 900, epoch: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "transaction_result": True,
        "coordinator_epoch": 0,
        "topics": [{"name": name, "partition_indexes": indexes} for name, indexes in topics],
        **more,
    }


def _write(talk: Talk, label: str, version: int, *markers: dict[str, Any]) -> None:
    talk.say(label, ordered(talk.connection.ask("WriteTxnMarkers", version, {"markers": list(markers)})))


@case("WriteTxnMarkers")
def markers_without_a_transaction(talk: Talk, version: int) -> None:
    story = Story(talk, partitions=2)
    name = story.topic.name
    _write(talk, "none", version)
    _write(talk, "no partitions", version, _marker([]))
    _write(talk, "one", version, _marker([(name, [0])]))
    _write(talk, "two partitions", version, _marker([(name, [0, 1])], transaction_result=False))
    _write(talk, "unknown topic", version, _marker([("no-such-topic", [0])]))
    _write(talk, "unknown partition", version, _marker([(name, [0, 7])]))
    _write(talk, "two producers", version, _marker([(name, [0])], 901), _marker([(name, [1])], 902))
    _write(talk, "one producer twice", version, _marker([(name, [0])], 903), _marker([(name, [1])], 903))
    _write(talk, "the same twice", version, _marker([(name, [0])], 904), _marker([(name, [0])], 904))
    story.producers()
    for isolation in (0, 1):
        story.read(f"log, isolation {isolation}", isolation)


@case("WriteTxnMarkers")
def epochs_of_markers(talk: Talk, version: int) -> None:
    """Each is judged by the epoch and the coordinator's epoch that came before it."""
    story = Story(talk)
    name = story.topic.name
    for number, (epoch, coordinator, transaction_version) in enumerate(
        [
            (3, 5, 0),
            (3, 5, 0),
            (2, 5, 0),
            (3, 4, 0),
            (3, 5, 1),
            (3, 5, 2),
            (4, 5, 2),
            (4, 5, 2),
            (5, 4, 2),
            (5, 6, 2),
            (4, 7, 2),
            (5, 6, 1),
            (6, 6, 127),
            (6, 6, -1),
            (32767, 6, 2),
            (32767, 6, 2),
            (0, 2147483647, 0),
            (-1, 6, 0),
        ]
    ):
        marker = _marker([(name, [0])], epoch=epoch, coordinator_epoch=coordinator)
        marker["transaction_version"] = transaction_version
        _write(talk, f"{number}: {epoch}, {coordinator}, {transaction_version}", version, marker)
        story.producers(f"after {number}")
    story.read("log", 0)


@case("WriteTxnMarkers")
def strange_producers(talk: Talk, version: int) -> None:
    story = Story(talk)
    for producer_id in (0, -1, -2, 9223372036854775807):
        _write(talk, f"producer {producer_id}", version, _marker([(story.topic.name, [0])], producer_id))
        story.producers(f"after {producer_id}")
    story.read("log", 1)


@case("WriteTxnMarkers")
def a_producer_goes_on_after_markers(talk: Talk, version: int) -> None:
    """An idempotent one: a marker moves its epoch, and with a new epoch its sequence begins again."""
    story = Story(talk)
    topic = story.topic
    story.put("first", batch(900, 0, 5, plain=True))
    _write(talk, "same epoch", version, _marker([(topic.name, [0])]))
    story.put("goes on", batch(900, 0, 6, plain=True))
    story.put("again", batch(900, 0, 6, plain=True))
    _write(talk, "next epoch", version, _marker([(topic.name, [0])], epoch=1))
    story.put("old epoch, repeated", batch(900, 0, 6, plain=True))
    story.put("old epoch", batch(900, 0, 7, plain=True))
    story.put("new epoch, not from 0", batch(900, 1, 7, plain=True))
    story.put("new epoch", batch(900, 1, 0, plain=True))
    story.producers()
    story.read("log", 1)


@case("WriteTxnMarkers")
def into_a_topic_with_append_time(talk: Talk, version: int) -> None:
    story = Story(talk, configs={"message.timestamp.type": "LogAppendTime"})
    _write(talk, "one", version, _marker([(story.topic.name, [0])]))
    story.read("log", 1)
    compacted = Story(talk, configs={"cleanup.policy": "compact"})
    _write(talk, "compacted", version, _marker([(compacted.topic.name, [0])]))
    compacted.read("log of the compacted", 1)


@case("WriteTxnMarkers")
def without_enough_replicas(talk: Talk, version: int) -> None:
    story = Story(talk, configs={"min.insync.replicas": "2"})
    _write(talk, "one", version, _marker([(story.topic.name, [0])]))
    story.offsets()


@case("DescribeProducers")
def producers_of_partitions(talk: Talk, version: int) -> None:
    topic = talk.topic(partitions=3)
    for producer_id, epoch, sequence in ((5, 0, 3), (6, 2, 0), (7, 0, 2147483647)):
        records = (Rec(b"k", b"v"), Rec(b"k", b"w", 7))
        one = Batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        talk.append(topic, one.encode(), partition=1)

    def ask(label: str, *topics: tuple[str, list[int]]) -> None:
        body = {"topics": [{"name": name, "partition_indexes": indexes} for name, indexes in topics]}
        answer = talk.connection.ask("DescribeProducers", version, body)
        assert isinstance(answer, dict), answer
        for one in answer["topics"]:
            for part in one["partitions"]:
                part["active_producers"].sort(key=lambda each: each["producer_id"])
        talk.say(label, answer)

    ask("nothing")
    ask("no partitions", (topic.name, []))
    ask("all", (topic.name, [0, 1, 2]))
    ask("unknown partitions", (topic.name, [3, -1]))
    ask("unknown topic", ("no-such-topic", [0]))
    ask("no name", ("", [0]))
    ask("a name that cannot be", ("no/such/topic", [0]))
    ask("twice", (topic.name, [1, 1]))
    ask("the topic twice", (topic.name, [1]), (topic.name, [0]))
