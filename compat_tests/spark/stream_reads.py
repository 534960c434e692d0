"""spark.readStream: where a stream begins, how it is cut into batches, and where it goes on."""

from __future__ import annotations

import json
from typing import Any

from compat_tests.client import WAIT_SECONDS
from compat_tests.scenarios.records import FIRST_MS
from compat_tests.spark.stage import Stage, numbered, ranges, rows, scenario, values
from compat_tests.until import until


@scenario
def a_stream_resumed_from_its_checkpoint(stage: Stage) -> Any:
    stage.create(partitions=2)
    told = []
    for turn in range(3):
        for partition in range(2):
            stage.send(numbered(range(turn * 50, turn * 50 + 50), partition), codec="zstd")
        told += ranges(stage.collect_stream(stage.stream()))
    assert ranges(stage.collect_stream(stage.stream())) == []
    found = rows(stage.collected())
    assert [row[:2] for row in found] == [[partition, n] for partition in range(2) for n in range(150)]
    return [told, found]


@scenario
def batches_of_bounded_size(stage: Stage) -> Any:
    stage.create(partitions=2)
    stage.send([*numbered(range(100), 0), *numbered(range(20), 1)])
    told = ranges(stage.collect_stream(stage.stream(maxOffsetsPerTrigger="30")))
    assert len(told) > 3
    assert all(count <= 31 for *_, count in told)
    assert values(stage.collected()) == sorted([*range(100), *range(20)])
    return told


@scenario
def a_stream_from_given_offsets(stage: Stage) -> Any:
    stage.create(partitions=3)
    stage.send([record for partition in range(3) for record in numbered(range(30), partition)])
    start = json.dumps({stage.topic: {"0": 25, "1": -2, "2": -1}})
    told = ranges(stage.collect_stream(stage.stream(startingOffsets=start)))
    assert values(stage.collected()) == sorted([*range(25, 30), *range(30)])
    return told


@scenario
def a_stream_from_a_time(stage: Stage) -> Any:
    """A partition without a record so late begins at its end, where the strategy says so."""
    stage.create(partitions=2)
    stage.send([*numbered(range(30), 0), *numbered(range(5), 1)])
    frame = stage.stream(startingTimestamp=str(FIRST_MS + 20_000), startingOffsetsByTimestampStrategy="latest")
    told = ranges(stage.collect_stream(frame))
    assert values(stage.collected()) == [*range(20, 30)]
    each = {"0": FIRST_MS + 28_000, "1": FIRST_MS + 3_500}
    frame = stage.stream(startingOffsetsByTimestamp=json.dumps({stage.topic: each}))
    told += ranges(stage.collect_stream(frame, "each"))
    assert values(stage.collected("each")) == [4, 28, 29]
    return told


@scenario
def a_stream_of_assigned_partitions(stage: Stage) -> Any:
    stage.create(partitions=3)
    stage.send([record for partition in range(3) for record in numbered(range(10), partition)])
    told = ranges(stage.collect_stream(stage.stream(assign=json.dumps({stage.topic: [1]}))))
    assert {row[0] for row in rows(stage.collected())} == {1}
    return told


@scenario
def a_stream_finds_a_topic_by_its_pattern(stage: Stage) -> Any:
    """One that is created later is read from its first record, though the stream began at the end."""
    first, second = f"{stage.topic}-a", f"{stage.topic}-b"
    stage.create(first)
    stage.send(numbered(range(5)), first)
    source = {"subscribePattern": f"{stage.topic}-.", "startingOffsets": "latest"}
    told = [ranges(stage.collect_stream(stage.stream(**source)))]
    stage.create(second)
    stage.send(numbered(range(5, 9)), first)
    stage.send(numbered(range(100, 107)), second)
    told.append(ranges(stage.collect_stream(stage.stream(**source))))
    assert values(stage.collected()) == [*range(5, 9), *range(100, 107)]
    return told


@scenario
def partitions_added_between_two_runs(stage: Stage) -> Any:
    stage.create(partitions=1)
    stage.send(numbered(range(20)))
    told = [ranges(stage.collect_stream(stage.stream()))]
    stage.client.create_partitions(stage.topic, 3)
    until(lambda: len(stage.client.describe_topic(stage.topic)["partitions"]) == 3, WAIT_SECONDS)
    for partition in range(3):
        stage.send(numbered(range(100, 110), partition))
    told.append(ranges(stage.collect_stream(stage.stream())))
    assert values(stage.collected()) == [*range(20), *sorted([*range(100, 110)] * 3)]
    return told


@scenario
def partitions_added_in_mid_stream(stage: Stage) -> Any:
    """The query runs all the time; what it has seen is what it had to see when it says that it has seen all."""
    stage.create(partitions=1)
    writer = stage.stream().writeStream.format("memory").queryName(f"added_{stage.broker.name}")
    query = stage.checkpointed(writer).trigger(processingTime="100 milliseconds").start()
    try:
        stage.send(numbered(range(20)))
        query.processAllAvailable()
        before = values(stage.spark.table(f"added_{stage.broker.name}"))
        stage.client.create_partitions(stage.topic, 2)
        until(lambda: len(stage.client.describe_topic(stage.topic)["partitions"]) == 2, WAIT_SECONDS)
        stage.send(numbered(range(100, 110), partition=1))
        query.processAllAvailable()
        after = rows(stage.spark.table(f"added_{stage.broker.name}"))
    finally:
        query.stop()
    assert before == [*range(20)]
    assert [row[:2] for row in after] == [[0, n] for n in range(20)] + [[1, n] for n in range(10)]
    return after


@scenario
def a_stream_that_waits_for_records(stage: Stage) -> Any:
    """From the end, in batches by the clock, with records of a later time each time."""
    stage.create(partitions=2)
    stage.send(numbered(range(10)))
    name = f"waits_{stage.broker.name}"
    writer = stage.stream(startingOffsets="latest").writeStream.format("memory").queryName(name)
    query = stage.checkpointed(writer).trigger(processingTime="50 milliseconds").start()
    seen = []
    try:
        query.processAllAvailable()  # it has looked where the end is
        for turn in range(1, 4):
            stage.send(numbered(range(turn * 10, turn * 10 + 5), partition=turn % 2))
            query.processAllAvailable()
            seen.append(values(stage.spark.table(name)))
    finally:
        query.stop()
    assert seen[-1] == [*range(10, 15), *range(20, 25), *range(30, 35)]
    return seen


@scenario
def a_continuous_stream(stage: Stage) -> Any:
    """Record by record, without batches: the tasks stay at the broker."""
    out = f"{stage.topic}-out"
    stage.create(stage.topic, out)
    stage.send(numbered(range(20)))
    writer = stage.to_kafka(stage.stream().select("key", "value").writeStream, topic=out)
    query = stage.checkpointed(writer).trigger(continuous="500 milliseconds").start()
    try:
        until(lambda: stage.end_of(out) >= 20, 4 * WAIT_SECONDS)
        stage.send(numbered(range(20, 50)))
        until(lambda: stage.end_of(out) >= 50, 4 * WAIT_SECONDS)
    finally:
        query.stop()
    received = stage.client.consume(out, 0, 0, 50)
    assert [int(r.value or b"") for r in received] == [*range(50)]
    return [[repr(r.key), repr(r.value)] for r in received]


@scenario
def a_stream_split_over_many_tasks(stage: Stage) -> Any:
    stage.create(partitions=2)
    stage.send([*numbered(range(60), 0), *numbered(range(60), 1)])
    told = [
        ranges(stage.collect_stream(stage.stream(minPartitions="6"), "least")),
        ranges(stage.collect_stream(stage.stream(maxRecordsPerPartition="25"), "most")),
    ]
    for name in ("least", "most"):
        assert values(stage.collected(name)) == sorted([*range(60)] * 2)
    return told
