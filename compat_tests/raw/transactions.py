"""Producers, markers and readers of transactions, by single requests: what both brokers are told and asked."""

from __future__ import annotations

import struct
from typing import Any

from compat_tests.raw.batches import Batch, Rec
from compat_tests.raw.talk import Talk, Topic, produce_body

TRANSACTIONAL = 0x10
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


def batch(producer_id: int, epoch: int, sequence: int, count: int = 1, *, plain: bool = False, size: int = 1) -> bytes:
    """`count` records of a producer; `plain`: outside of a transaction."""
    records = tuple(Rec(b"k%d" % producer_id, b"%d" % (sequence + n) * size) for n in range(count))
    attributes = 0 if plain else TRANSACTIONAL
    return Batch(
        records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, attributes=attributes
    ).encode()


class Story:
    """One talk about one topic, whose steps have numbers."""

    def __init__(self, talk: Talk, partitions: int = 1, configs: dict[str, str] | None = None) -> None:
        self.talk = talk
        self.topic: Topic = talk.topic(partitions, configs)
        self.version = 11  # of Produce: the last one that asks whether a partition was added
        self._step = 0

    @classmethod
    def of(cls, talk: Talk, topic: Topic) -> Story:
        """One that goes on with a topic."""
        story = cls.__new__(cls)
        story.talk, story.topic, story.version, story._step = talk, topic, 11, 0
        talk.symbol(topic.topic_id.hex(), f"id of {topic.name}")
        return story

    def label(self, what: str) -> str:
        self._step += 1
        return f"{self._step:02d} {what}"

    def put(self, what: str, records: bytes, *, partition: int = 0, transactional_id: str | None = "tx") -> None:
        body = produce_body(self.topic, records, partition=partition, transactional_id=transactional_id)
        self.talk.ask(self.label(what), "Produce", self.version, body)

    def end(
        self,
        what: str,
        producer_id: int,
        epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int = 0,
        version: int = 1,
        transaction_version: int = 0,
        partitions: tuple[int, ...] = (0,),
    ) -> None:
        marker = {
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "transaction_result": commit,
            "topics": [{"name": self.topic.name, "partition_indexes": list(partitions)}],
            "coordinator_epoch": coordinator_epoch,
            "transaction_version": transaction_version,
        }
        answer = self.talk.connection.ask("WriteTxnMarkers", version, {"markers": [marker]})
        self.talk.say(self.label(what), ordered(answer))

    def producers(self, what: str = "producers") -> None:
        asked = {"name": self.topic.name, "partition_indexes": [0]}
        answer = self.talk.connection.ask("DescribeProducers", 0, {"topics": [asked]})
        assert isinstance(answer, dict), answer
        for one in answer["topics"][0]["partitions"][0]["active_producers"]:
            one["last_timestamp"] = _then(one["last_timestamp"])
        answer["topics"][0]["partitions"][0]["active_producers"].sort(key=lambda one: one["producer_id"])
        self.talk.say(self.label(what), answer)

    def read(self, what: str, isolation: int, offset: int = 0, version: int = 12, most: int = 1 << 20) -> None:
        part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": most}
        asked = {"topic": self.topic.name, "topic_id": self.topic.topic_id, "partitions": [part]}
        body = {"max_wait_ms": 0, "isolation_level": isolation, "max_bytes": 50 << 20, "topics": [asked]}
        answer = self.talk.connection.ask("Fetch", version, body)
        assert isinstance(answer, dict), answer
        for one in answer["responses"][0]["partitions"]:
            one["records"] = batches_of(bytes.fromhex(one["records"]))
        self.talk.say(self.label(what), answer)

    def offsets(self, what: str = "offsets") -> None:
        for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
            for when in (-1, -2):
                asked = {"name": self.topic.name, "partitions": [{"timestamp": when}]}
                body = {"replica_id": -1, "isolation_level": isolation, "topics": [asked]}
                answer = self.talk.connection.ask("ListOffsets", 7, body)
                assert isinstance(answer, dict), answer
                for one in answer["topics"][0]["partitions"]:
                    one["timestamp"] = _then(one["timestamp"])
                self.talk.say(self.label(f"{what}, isolation {isolation}, {when}"), answer)

    def everything(self, end: int) -> None:
        """What readers of both kinds get from every offset on."""
        for offset in range(end + 1):
            for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
                self.read(f"from {offset}, isolation {isolation}", isolation, offset)
        self.offsets()
        self.producers()


def _then(timestamp: int) -> Any:
    return "now" if timestamp > 1_750_000_000_000 else timestamp


def ordered(answer: Any) -> Any:
    """Kafka gathers producers and topics in hash maps: their order says nothing."""
    if isinstance(answer, dict):
        answer["markers"].sort(key=lambda one: one["producer_id"])
        for marker in answer["markers"]:
            marker["topics"].sort(key=lambda one: one["name"])
            for topic in marker["topics"]:
                topic["partitions"].sort(key=lambda one: one["partition_index"])
    return answer


def batches_of(data: bytes) -> list[dict[str, Any]]:
    """Every field but checksum and time, which differ between two runs, and of a marker its record."""
    found = []
    at = 0
    while at + 61 <= len(data):
        offset, length = struct.unpack_from(">qi", data, at)
        if at + 12 + length > len(data):
            break  # Apache cuts the last one where the limit is
        epoch, magic, _, attributes, delta, _, _, producer, producer_epoch, sequence, count = struct.unpack_from(
            ">ibIhiqqqhii", data, at + 12
        )
        body = data[at + 61 : at + 12 + length]
        found.append(
            {
                "base_offset": offset,
                "size": length,
                "leader_epoch": epoch,
                "magic": magic,
                "attributes": attributes,
                "last_offset_delta": delta,
                "producer": [producer, producer_epoch, sequence],
                "count": count,
                "records": body.hex(),
            }
        )
        at += 12 + length
    return found
