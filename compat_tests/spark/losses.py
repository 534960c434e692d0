"""Records that are gone before they were read: by DeleteRecords, by retention, with a topic deleted and made anew; and
records that were never there. With failOnDataLoss the query must end, without it goes on with what there is."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from compat_tests.client import WAIT_SECONDS, Record
from compat_tests.spark.stage import Stage, numbered, ranges, refusal, rows, scenario, values
from compat_tests.until import until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOST = r"Could not read records in offset \[\d+, \d+\)"
_SEGMENT_BYTES = "1048576"  # Kafka allows no smaller one
_BLOCK_BYTES = 600_000


@scenario
def records_deleted_under_a_batch(stage: Stage) -> Any:
    stage.create()
    stage.send(numbered(range(100)))
    stage.delete_before(80)
    start = json.dumps({stage.topic: {"0": 50}})
    assert values(stage.batch()) == [*range(80, 100)]
    assert values(stage.batch(startingOffsets=start, failOnDataLoss="false")) == [*range(80, 100)]
    return refusal(stage.batch(startingOffsets=start).collect, _LOST)


@scenario
def all_records_deleted_under_a_batch(stage: Stage) -> Any:
    stage.create()
    stage.send(numbered(range(100)))
    stage.delete_before(100)
    bounds = {
        "startingOffsets": json.dumps({stage.topic: {"0": 10}}),
        "endingOffsets": json.dumps({stage.topic: {"0": 60}}),
    }
    assert values(stage.batch()) == []
    assert values(stage.batch(**bounds, failOnDataLoss="false")) == []
    return refusal(stage.batch(**bounds).collect, _LOST)


@scenario
def records_deleted_under_a_stream(stage: Stage) -> Any:
    stage.create()
    stage.send(numbered(range(50)))
    told = [ranges(stage.collect_stream(stage.stream()))]
    stage.send(numbered(range(50, 100)))
    stage.delete_before(80)
    refused = refusal(lambda: stage.collect_stream(stage.stream()), _LOST)
    told.append(ranges(stage.collect_stream(stage.stream(failOnDataLoss="false"))))
    assert values(stage.collected()) == [*range(50), *range(80, 100)]
    return [told, refused]


@scenario
def records_deleted_behind_a_stream(stage: Stage) -> Any:
    """What it has read may go: nothing is lost, and the query goes on."""
    stage.create(partitions=2)
    name = f"deleted_{stage.broker.name}"
    writer = stage.stream(maxOffsetsPerTrigger="20").writeStream.format("memory").queryName(name)
    query = stage.checkpointed(writer).trigger(processingTime="50 milliseconds").start()
    try:
        stage.send(numbered(range(40)))
        query.processAllAvailable()
        stage.send(numbered(range(100, 110), partition=1))
        stage.delete_before(40)
        stage.send(numbered(range(40, 60)))
        query.processAllAvailable()
        found = rows(stage.spark.table(name))
    finally:
        query.stop()
    assert [row[:2] for row in found] == [[0, n] for n in range(60)] + [[1, n] for n in range(10)]
    return found


def _blocks(numbers: Iterable[int], *, now: bool) -> list[Record]:
    """Numbered records that fill a segment each: of this hour, or of 2023."""
    at = int(time.time() * 1000) if now else None
    return [
        replace(record, value=b"%s%*s" % (record.value, _BLOCK_BYTES, b""), timestamp_ms=at or record.timestamp_ms)
        for record in numbered(numbers)
    ]


def _retain(stage: Stage, first: int, topic: str | None = None, **settings: str) -> None:
    """Gives a topic a retention, and waits until it begins at that offset."""
    client, name = stage.client, topic or stage.topic
    client.alter_configs(name, {key.replace("_", "."): value for key, value in settings.items()})
    until(lambda: client.list_offset(name, 0, -2) == first, WAIT_SECONDS)


@scenario
def segments_too_old_under_a_batch(stage: Stage) -> Any:
    """retention.ms: what is older than a day goes."""
    stage.create(segment_bytes=_SEGMENT_BYTES)
    stage.send([*_blocks(range(4), now=False), *_blocks(range(4, 6), now=True)])
    start = json.dumps({stage.topic: {"0": 1}})
    assert values(stage.batch(startingOffsets=start)) == [1, 2, 3, 4, 5]
    _retain(stage, 4, retention_ms="86400000")
    assert values(stage.batch()) == [4, 5]
    assert values(stage.batch(startingOffsets=start, failOnDataLoss="false")) == [4, 5]
    return refusal(stage.batch(startingOffsets=start).collect, _LOST)


@scenario
def segments_too_many_under_a_stream(stage: Stage) -> Any:
    """retention.bytes: of six segments the last two are kept."""
    stage.create(segment_bytes=_SEGMENT_BYTES)
    stage.send(_blocks(range(2), now=True))
    told = [ranges(stage.collect_stream(stage.stream()))]
    stage.send(_blocks(range(2, 6), now=True))
    _retain(stage, 4, retention_bytes=str(2 * _BLOCK_BYTES))
    refused = refusal(lambda: stage.collect_stream(stage.stream()), _LOST)
    told.append(ranges(stage.collect_stream(stage.stream(failOnDataLoss="false"))))
    assert values(stage.collected()) == [0, 1, 4, 5]
    return [told, refused]


@scenario
def segments_gone_in_the_middle_of_a_stream(stage: Stage) -> Any:
    """A batch has its offsets and not yet its records when they go; later others go that were read."""
    stage.create(segment_bytes=_SEGMENT_BYTES)
    strict = f"{stage.topic}-strict"
    stage.create(strict, segment_bytes=_SEGMENT_BYTES)
    seen: dict[str, list[list[int]]] = {stage.topic: [], strict: []}

    def run(topic: str, **options: str) -> None:
        def read(batch: DataFrame, number: int) -> None:
            if number == 0:
                _retain(stage, 3, topic, retention_bytes=str(5 * _BLOCK_BYTES))
            seen[topic].append(values(batch))
            if number == 1:
                _retain(stage, 4, topic, retention_bytes=str(4 * _BLOCK_BYTES))

        stage.send(_blocks(range(8), now=True), topic)
        frame = stage.stream(subscribe=topic, maxOffsetsPerTrigger="2", **options)
        stage.now(frame.writeStream.foreachBatch(read), topic)

    run(stage.topic, failOnDataLoss="false")
    assert seen[stage.topic] == [[], [3], [4, 5], [6, 7]], seen
    refused = refusal(lambda: run(strict), _LOST)
    assert seen[strict] == [], seen
    return refused


@scenario
def an_end_beyond_the_last_record(stage: Stage) -> Any:
    """Spark waits for what may still come, as long as it is told to wait for a poll; two minutes if it is not told."""
    stage.create()
    stage.send(numbered(range(100)))
    bounds = {
        "startingOffsets": json.dumps({stage.topic: {"0": 90}}),
        "endingOffsets": json.dumps({stage.topic: {"0": 200}}),
        "kafkaConsumer__pollTimeoutMs": "1000",  # long enough for what is there, on a busy machine too
    }
    assert values(stage.batch(**bounds, failOnDataLoss="false")) == [*range(90, 100)]
    return refusal(stage.batch(**bounds).collect, _LOST)


def _anew(stage: Stage, partitions: int, count: int) -> None:
    stage.client.delete_topic(stage.topic)
    until(lambda: stage.topic not in stage.client.list_topics(), WAIT_SECONDS)
    stage.create(partitions=partitions)
    until(lambda: stage.topic in stage.client.list_topics(), WAIT_SECONDS)
    stage.send(numbered(range(1000, 1000 + count)))


@scenario
def a_topic_made_anew_with_fewer_records(stage: Stage) -> Any:
    """A stream that goes on skips what the new topic had meanwhile: its offsets were seen, under the old name."""
    stage.create()
    stage.send(numbered(range(50)))
    told = [ranges(stage.collect_stream(stage.stream()))]
    _anew(stage, 1, 10)
    refused = refusal(lambda: stage.collect_stream(stage.stream()), "offset was changed from 50 to 10")
    for first in (2000, 3000):
        stage.send(numbered(range(first, first + 5)))
        told.append(ranges(stage.collect_stream(stage.stream(failOnDataLoss="false"))))
    assert values(stage.collected()) == [*range(50), *range(2000, 2005), *range(3000, 3005)]
    return [told, refused]


@scenario
def a_topic_made_anew_with_fewer_partitions(stage: Stage) -> Any:
    stage.create(partitions=2)
    stage.send([*numbered(range(10)), *numbered(range(10), partition=1)])
    told = [ranges(stage.collect_stream(stage.stream()))]
    _anew(stage, 1, 30)
    refused = refusal(lambda: stage.collect_stream(stage.stream()), "-1\\) have been deleted")
    told.append(ranges(stage.collect_stream(stage.stream(failOnDataLoss="false"))))
    assert values(stage.collected()) == sorted([*range(10), *range(10), *range(1010, 1030)])
    return [told, refused]
