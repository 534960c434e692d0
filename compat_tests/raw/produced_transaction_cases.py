"""Produce into transactions that a coordinator knows of: added before, added by producing, fenced, over or unknown."""

from __future__ import annotations

from typing import Any

from compat_tests.client import WAIT_SECONDS
from compat_tests.raw.batches import Batch, Rec
from compat_tests.raw.cases import case
from compat_tests.raw.talk import Talk, Topic, produce_body
from compat_tests.raw.transactional_cases import Producer
from compat_tests.raw.transactions import batch, batches_of
from compat_tests.until import until

RETRIED = (51, 19)  # while the end before is still being written


class Writer:
    """A producer with a coordinator, and a topic to write to."""

    def __init__(self, talk: Talk, version: int, partitions: int = 2) -> None:
        self.talk = talk
        self.version = version
        self.topic: Topic = talk.topic(partitions)
        self.producer = Producer(talk)

    def body(self, *parts: tuple[int, bytes], transactional_id: str | None = None) -> dict[str, Any]:
        body = produce_body(
            self.topic,
            parts[0][1],
            partition=parts[0][0],
            transactional_id=transactional_id or self.producer.transactional_id,
        )
        for index, records in parts[1:]:
            body["topic_data"][0]["partition_data"].append({"index": index, "records": records})
        return body

    def put(self, label: str, *parts: tuple[int, bytes], transactional_id: str | None = None) -> None:
        answer = self.talk.connection.ask("Produce", self.version, self.body(*parts, transactional_id=transactional_id))
        if isinstance(answer, dict):
            answer["responses"][0]["partition_responses"].sort(key=lambda one: one["index"])
        self.talk.say(label, answer)

    def batch(
        self, sequence: int, *, epoch: int | None = None, producer: int | None = None, plain: bool = False
    ) -> bytes:
        return batch(
            self.producer.producer_id if producer is None else producer,
            self.producer.epoch if epoch is None else epoch,
            sequence,
            plain=plain,
        )

    def log(self, label: str, isolation: int = 1) -> None:
        """What a reader gets of both partitions, without the producer's number, which is each broker's own."""
        parts = [{"partition": p, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for p in (0, 1)]
        asked = {"topic": self.topic.name, "topic_id": self.topic.topic_id, "partitions": parts}
        body = {"max_wait_ms": 0, "isolation_level": isolation, "max_bytes": 50 << 20, "topics": [asked]}
        answer = self.talk.quietly("Fetch", 12, body)
        for one in answer["responses"][0]["partitions"]:
            one["records"] = [
                {**each, "producer": each["producer"][1:], "records": "", "size": 0}
                for each in batches_of(bytes.fromhex(one["records"]))
            ]
            for each in one["aborted_transactions"] or []:
                each["producer_id"] = "it"
        self.talk.say(label, answer)


@case("Produce")
def into_a_transaction_that_does_not_know_the_partition(talk: Talk, version: int) -> None:
    writer = Writer(talk, version)
    writer.put("nothing was added", (0, writer.batch(0)))
    writer.put("again", (0, writer.batch(0)))
    if version < 12:
        writer.producer.begin(writer.topic)
    writer.put("one of them was", (0, writer.batch(0 if version < 12 else 1)), (1, writer.batch(0)))
    writer.put("goes on", (0, writer.batch(1 if version < 12 else 2)))
    writer.log("while it is open", 0)
    writer.log("committed, while it is open")
    writer.producer.describe("open")
    writer.producer.end(True, 5 if version >= 12 else 3)
    writer.log("committed")
    writer.put("after the end", (0, writer.batch(9)))


@case("Produce")
def by_someone_whom_the_coordinator_does_not_know(talk: Talk, version: int) -> None:
    writer = Writer(talk, version)
    producer = writer.producer
    producer.begin(writer.topic)
    writer.put("another producer id", (0, writer.batch(0, producer=producer.producer_id + 100_000)))
    writer.put("an epoch above", (0, writer.batch(0, epoch=producer.epoch + 1)))
    writer.put("an unknown id", (0, writer.batch(0)), transactional_id=f"{producer.transactional_id}-not")
    writer.put("two producers", (0, writer.batch(0)), (1, writer.batch(0, producer=producer.producer_id + 1)))
    writer.put("two epochs", (0, writer.batch(0)), (1, writer.batch(0, epoch=producer.epoch + 1)))
    writer.put("a plain one beside it", (0, writer.batch(0)), (1, writer.batch(0, plain=True)))
    writer.put("a plain one inside", (0, writer.batch(1, plain=True)))
    nobody = Batch((Rec(),), attributes=0x10).encode()
    writer.put("nobody's", (1, nobody))
    writer.log("log", 0)


@case("Produce")
def after_a_fence(talk: Talk, version: int) -> None:
    writer = Writer(talk, version)
    producer = writer.producer
    producer.begin(writer.topic)
    writer.put("begins", (0, writer.batch(0)))
    old = producer.epoch
    producer.init()
    producer.rest()
    writer.put("the old one goes on", (0, writer.batch(1, epoch=old)))
    writer.put("the old one elsewhere", (1, writer.batch(0, epoch=old)))
    writer.put("its first batch again", (0, writer.batch(0, epoch=old)))
    if version < 12:
        producer.begin(writer.topic)
    writer.put("the new one, not from 0", (0, writer.batch(1)))
    writer.put("the new one", (0, writer.batch(0)))
    producer.end(False, 5 if version >= 12 else 3)
    writer.log("log")


@case("Produce")
def transaction_after_transaction(talk: Talk, version: int) -> None:
    """Ends that bump the epoch and ends that do not, with batches sent again in between."""
    writer = Writer(talk, version)
    producer = writer.producer
    newer = version >= 12
    sequence = 0
    for turn, commit in enumerate((True, False, False, True)):
        if not newer:
            producer.begin(writer.topic)
        else:
            sequence = 0

        def put(label: str = f"{turn} begins", number: int = sequence) -> bool:
            answer = talk.quietly("Produce", version, writer.body((0, writer.batch(number))))
            code = answer["responses"][0]["partition_responses"][0]["error_code"]
            if code in RETRIED:
                return False
            talk.say(label, answer)
            return True

        until(put, WAIT_SECONDS)
        writer.put(f"{turn}, again", (0, writer.batch(sequence)))
        writer.put(f"{turn} goes on", (0, writer.batch(sequence + 1)))
        before = producer.epoch
        producer.end(commit, 5 if newer else 3)
        talk.say(f"{turn}, bumped", producer.epoch - before)
        writer.put(f"{turn}, again after the end", (0, writer.batch(sequence + 1, epoch=before)))
        sequence += 2
    writer.log("log")
    writer.log("everything", 0)


@case("Produce", versions=[11])
def a_sequence_number_given_to_another_record(talk: Talk, version: int) -> None:
    """As librdkafka does when it aborts before it has heard of a record: the next one is taken for that one."""
    writer = Writer(talk, version)
    producer = writer.producer
    producer.begin(writer.topic)
    writer.put("its answer is lost", (0, writer.batch(0)))
    producer.end(False, 3)
    producer.begin(writer.topic)
    other = Batch(
        (Rec(b"other", b"record"),),
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=0,
        attributes=0x10,
    )
    writer.put("another one", (0, other.encode()))
    producer.end(True, 3)
    writer.log("log")
    writer.log("everything", 0)
