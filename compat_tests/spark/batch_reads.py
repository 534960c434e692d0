"""spark.read: which records, from where to where, in how many tasks."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from compat_tests.client import CODECS
from compat_tests.scenarios.records import FIRST_MS, sample_records
from compat_tests.spark.stage import Stage, numbered, refusal, rows, scenario, values

_COLUMNS = ("topic", "partition", "offset", "key", "value", "headers", "timestamp", "timestampType")


def _three_partitions(stage: Stage, count: int = 40) -> None:
    stage.create(partitions=3)
    stage.send([record for partition in range(3) for record in numbered(range(count), partition)])


@scenario
def every_record_in_every_codec(stage: Stage) -> Any:
    stage.create(partitions=3)
    sent = [replace(record, partition=partition) for partition in range(3) for record in sample_records(100)]
    for codec in CODECS:
        stage.send(sent, codec=codec)
    read = stage.batch().orderBy("partition", "offset").select(*_COLUMNS).collect()
    assert [(row["partition"], row["offset"]) for row in read] == [(p, n) for p in range(3) for n in range(500)]
    for row in read:
        record = sent[row["partition"] * 100 + row["offset"] % 100]
        headers = [(header.key, bytes(header.value)) for header in row["headers"] or ()]
        assert (row["key"], row["value"]) == (record.key, record.value)
        assert headers == list(record.headers)
        assert row["timestamp"].timestamp() * 1000 == record.timestamp_ms
    return [repr(row) for row in read]


@scenario
def between_offsets(stage: Stage) -> Any:
    _three_partitions(stage)
    start = json.dumps({stage.topic: {"0": 10, "1": -2, "2": 39}})
    end = json.dumps({stage.topic: {"0": 20, "1": 7, "2": -1}})
    read = rows(stage.batch(startingOffsets=start, endingOffsets=end))
    wanted = [(0, n) for n in range(10, 20)] + [(1, n) for n in range(7)] + [(2, 39)]
    assert [(partition, offset) for partition, offset, *_ in read] == wanted
    return read


@scenario
def between_times(stage: Stage) -> Any:
    _three_partitions(stage)
    bounds = {"startingTimestamp": str(FIRST_MS + 5_000), "endingTimestamp": str(FIRST_MS + 9_000)}
    read = rows(stage.batch(**bounds))
    assert [row[1] for row in read] == [5, 6, 7, 8] * 3
    return read


@scenario
def between_times_of_each_partition(stage: Stage) -> Any:
    """An end after the last record is the end of the partition."""
    _three_partitions(stage)
    start = {"0": FIRST_MS + 30_000, "1": FIRST_MS + 1, "2": FIRST_MS}
    end = {"0": FIRST_MS + 90_000, "1": FIRST_MS + 4_000, "2": FIRST_MS + 1}
    read = rows(
        stage.batch(
            startingOffsetsByTimestamp=json.dumps({stage.topic: start}),
            endingOffsetsByTimestamp=json.dumps({stage.topic: end}),
        )
    )
    assert [row[:2] for row in read] == [[0, n] for n in range(30, 40)] + [[1, n] for n in (1, 2, 3)] + [[2, 0]]
    return read


@scenario
def a_start_after_the_last_record(stage: Stage) -> Any:
    """By default that is an error; a strategy makes it the end."""
    _three_partitions(stage)
    late = str(FIRST_MS + 3_600_000)
    frame = stage.batch(startingTimestamp=late, startingOffsetsByTimestampStrategy="latest")
    assert frame.count() == 0
    strict = stage.batch(startingTimestamp=late, startingOffsetsByTimestampStrategy="error")
    return refusal(strict.count, "No offset matched from request")


@scenario
def topics_by_pattern(stage: Stage) -> Any:
    names = [f"{stage.topic}-{suffix}" for suffix in ("a", "b", "other")]
    stage.create(*names)
    for name in names:
        stage.send(numbered(range(10)), name)
    counted = stage.batch(subscribePattern=f"{stage.topic}-[ab]").groupBy("topic").count().collect()
    found = sorted([row["topic"], row["count"]] for row in counted)
    assert found == [[names[0], 10], [names[1], 10]]
    return found


@scenario
def topics_by_name(stage: Stage) -> Any:
    names = [f"{stage.topic}-{suffix}" for suffix in ("a", "b")]
    stage.create(*names, partitions=2)
    stage.send(numbered(range(10)), names[0])
    stage.send(numbered(range(20), partition=1), names[1])
    read = stage.batch(subscribe=",".join(names)).groupBy("topic", "partition").count().collect()
    found = sorted(list(row) for row in read)
    assert found == [[names[0], 0, 10], [names[1], 1, 20]]
    return found


@scenario
def partitions_that_are_assigned(stage: Stage) -> Any:
    _three_partitions(stage)
    read = rows(stage.batch(assign=json.dumps({stage.topic: [0, 2]})))
    assert [row[0] for row in read] == [0] * 40 + [2] * 40
    return read


@scenario
def a_partition_split_over_many_tasks(stage: Stage) -> Any:
    _three_partitions(stage)
    frame = stage.batch(minPartitions="12")
    tasks = frame.rdd.getNumPartitions()
    assert tasks == 12
    assert values(frame) == sorted([*range(40)] * 3)
    return [tasks, rows(frame)]


@scenario
def tasks_of_bounded_size(stage: Stage) -> Any:
    """Between offsets that are given: ends that are still to be looked up are not split."""
    _three_partitions(stage)
    start, end = (json.dumps({stage.topic: dict.fromkeys("012", offset)}) for offset in (0, 40))
    frame = stage.batch(startingOffsets=start, endingOffsets=end, maxRecordsPerPartition="9")
    tasks = frame.selectExpr("spark_partition_id() as task").groupBy("task").count().collect()
    sizes = sorted(row["count"] for row in tasks)
    assert (sum(sizes), max(sizes)) == (120, 8), sizes
    return sizes


@scenario
def offsets_by_a_consumer(stage: Stage) -> Any:
    """The older way to look up offsets: a consumer joins a group for it."""
    _three_partitions(stage)
    setting = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    stage.spark.conf.set(setting, "true")
    try:
        start = json.dumps({stage.topic: {"0": 3, "1": -2, "2": 40}})
        read = rows(stage.batch(startingOffsets=start, groupIdPrefix=f"{stage.topic}-group"))
        timed = rows(stage.batch(startingTimestamp=str(FIRST_MS + 38_000)))
    finally:
        stage.spark.conf.unset(setting)
    assert [row[:2] for row in read] == [[0, n] for n in range(3, 40)] + [[1, n] for n in range(40)]
    assert [row[1] for row in timed] == [38, 39] * 3
    return [read, timed]


@scenario
def an_empty_topic(stage: Stage) -> Any:
    stage.create(partitions=2)
    frame = stage.batch()
    assert frame.count() == 0
    return frame.schema.simpleString()


@scenario
def a_topic_that_does_not_exist(stage: Stage) -> Any:
    """It is not created by being looked for."""
    told = refusal(stage.batch().count, "UnknownTopicOrPartitionException")
    assert stage.topic not in stage.client.list_topics()
    return told


@scenario
def two_topics_joined(stage: Stage) -> Any:
    other = f"{stage.topic}-other"
    stage.create(stage.topic, other, partitions=2)
    stage.send([*numbered(range(5), 0), *numbered(range(5, 10), 1)])
    stage.send(numbered(range(5, 15)), other)
    left, right = stage.batch(), stage.batch(subscribe=other)
    joined = left.join(right, left["value"] == right["value"])
    chosen = joined.select(left["key"], left["value"], left["offset"], right["offset"])
    found = sorted([bytes(key).decode(), int(bytes(value)), one, two] for key, value, one, two in chosen.collect())
    assert found == [[f"k{n % 5}", n, n - 5, n - 5] for n in range(5, 10)]
    return found
