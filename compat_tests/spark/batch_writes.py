"""frame.write: which records reach which topic, and what cannot be sent."""

from __future__ import annotations

from typing import Any

from compat_tests.client import CODECS, Received
from compat_tests.scenarios.records import sample_records
from compat_tests.spark.stage import Stage, numbered, refusal, rows, scenario


def shown(received: list[Received]) -> list[Any]:
    """Without the time, which is that of the writing."""
    return [[r.offset, repr(r.key), repr(r.value), repr(r.headers)] for r in received]


@scenario
def records_written_and_read_back(stage: Stage) -> Any:
    """Keys and values, null ones too, in the order of the frame."""
    sent = [(record.key, record.value) for record in sample_records(200)]
    stage.create()
    stage.save(stage.spark.createDataFrame(sent, "key binary, value binary").coalesce(1), topic=stage.topic)
    received = stage.client.consume(stage.topic, 0, 0, len(sent))
    assert [(r.key, r.value) for r in received] == sent
    read = stage.batch().orderBy("offset").select("key", "value").collect()
    assert [(row["key"], row["value"]) for row in read] == sent
    return shown(received)


@scenario
def every_codec_written(stage: Stage) -> Any:
    stage.create()
    sent = [(str(n), f"value {n} " * 50) for n in range(100)]
    frame = stage.spark.createDataFrame(sent, "key string, value string").coalesce(1)
    for codec in CODECS:
        stage.save(frame, topic=stage.topic, kafka__compression__type=codec)
    received = stage.client.consume(stage.topic, 0, 0, 100 * len(CODECS))
    assert [(r.key, r.value) for r in received] == [(k.encode(), v.encode()) for k, v in sent] * len(CODECS)
    return [r.offset for r in received]


@scenario
def partition_headers_and_topic_as_columns(stage: Stage) -> Any:
    names = [f"{stage.topic}-{suffix}" for suffix in ("a", "b")]
    stage.create(*names, partitions=2)
    schema = "topic string, partition int, key string, value string, headers array<struct<key: string, value: binary>>"
    sent = [
        (names[n % 2], n // 2 % 2, f"k{n}", f"v{n}", [("n", b"%d" % n), ("empty", b""), ("n", b"again")][: n % 4])
        for n in range(40)
    ]
    stage.save(stage.spark.createDataFrame(sent, schema).coalesce(1))
    found = {}
    for name in names:
        for partition in range(2):
            wanted = [row for row in sent if row[:2] == (name, partition)]
            received = stage.client.consume(name, partition, 0, len(wanted))
            assert [(r.key, r.value, list(r.headers)) for r in received] == [
                (row[2].encode(), row[3].encode(), row[4]) for row in wanted
            ]
            found[f"{name} {partition}"] = shown(received)
    return found


@scenario
def partitions_chosen_by_key(stage: Stage) -> Any:
    """The client chooses by the number of partitions that the broker told it."""
    stage.create(partitions=4)
    sent = [(f"key {n % 20}", str(n)) for n in range(200)]
    stage.save(stage.spark.createDataFrame(sent, "key string, value string").coalesce(1), topic=stage.topic)
    read = rows(stage.batch())
    homes: dict[str, set[int]] = {}
    for partition, _, key, _ in read:
        homes.setdefault(key, set()).add(partition)
    assert all(len(home) == 1 for home in homes.values())
    assert len({partition for partition, *_ in read}) > 1
    return read


@scenario
def written_by_a_producer_without_idempotence(stage: Stage) -> Any:
    stage.create()
    frame = stage.spark.createDataFrame([(str(n),) for n in range(100)], "value string").coalesce(1)
    for acks in ("0", "1"):
        stage.save(frame, topic=stage.topic, kafka__enable__idempotence="false", kafka__acks=acks)
    received = stage.client.consume(stage.topic, 0, 0, 200)
    assert [int(r.value or b"") for r in received] == [*range(100)] * 2
    return shown(received)


@scenario
def a_record_that_is_too_large(stage: Stage) -> Any:
    stage.create(max_message_bytes="10000")
    small = stage.spark.createDataFrame([("x" * 9_000,)], "value string")
    stage.save(small, topic=stage.topic)
    large = stage.spark.createDataFrame([("x" * 11_000,)], "value string")
    told = refusal(lambda: stage.save(large, topic=stage.topic), "RecordTooLargeException")
    assert stage.end_of(stage.topic) == 1
    return told


@scenario
def a_topic_created_by_being_written_to(stage: Stage) -> Any:
    stage.save(stage.spark.createDataFrame([("first",)], "value string"), topic=stage.topic)
    assert [r.value for r in stage.client.consume(stage.topic, 0, 0, 1)] == [b"first"]
    return len(stage.client.describe_topic(stage.topic)["partitions"])


@scenario
def aggregated_into_another_topic(stage: Stage) -> Any:
    """A small pipeline: read, group, write, read what was written."""
    totals = f"{stage.topic}-totals"
    stage.create(partitions=3)
    stage.create(totals, partitions=2)
    stage.send([record for partition in range(3) for record in numbered(range(100), partition)])
    numbers = stage.batch().selectExpr("key", "cast(cast(value as string) as long) as n")
    stage.save(numbers.groupBy("key").sum("n").selectExpr("key", "cast(`sum(n)` as string) as value"), topic=totals)
    read = stage.batch(subscribe=totals).selectExpr("cast(key as string)", "cast(value as string)").collect()
    found = sorted([key, int(value)] for key, value in read)
    assert found == [[f"k{k}", 3 * sum(range(k, 100, 5))] for k in range(5)]
    return found
