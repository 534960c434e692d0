"""Records that are gone before they were read: DeleteRecords, a topic deleted and made anew. Both with failOnDataLoss,
where the query must end, and without, where it goes on with what there is."""

from __future__ import annotations

import json
from typing import Any

from compat_tests.client import WAIT_SECONDS
from compat_tests.spark.stage import Stage, numbered, ranges, refusal, rows, scenario, values
from compat_tests.until import until

_LOST = r"Could not read records in offset \[\d+, \d+\)"


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
