"""Streaming queries that keep state, with the time of the records as the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat_tests.client import Record
from compat_tests.scenarios.records import FIRST_MS
from compat_tests.spark.stage import Stage, numbered, ranges, scenario

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def _at(second: int, key: str, value: str = "") -> Record:
    return Record(key=key.encode(), value=value.encode(), timestamp_ms=FIRST_MS + second * 1000)


def _timed(frame: DataFrame, late: str = "10 seconds") -> DataFrame:
    texts = frame.selectExpr("cast(key as string) as key", "cast(value as string) as value", "timestamp")
    return texts.withWatermark("timestamp", late)


def _sorted(frame: DataFrame) -> list[Any]:
    return sorted([str(cell) for cell in row] for row in frame.collect())


@scenario
def windows_closed_by_a_watermark(stage: Stage) -> Any:
    """A window is told once, when the watermark has passed it; what comes for it later is dropped."""
    from pyspark.sql import functions as sql

    stage.create(partitions=2)
    counted = _timed(stage.stream()).groupBy(sql.window("timestamp", "20 seconds"), "key").count()
    shaped = counted.selectExpr("cast(window.start as long) - 1700000000 as start", "key", "count")
    stage.send([_at(second, f"k{second % 2}") for second in (0, 1, 2, 21, 22, 45)])
    stage.collect_stream(shaped)
    first = _sorted(stage.collected())
    stage.send([_at(3, "k0"), _at(46, "k0"), _at(90, "k1")])  # the first is too late
    stage.collect_stream(shaped)
    second = _sorted(stage.collected())
    assert first == [["0", "k0", "2"], ["0", "k1", "1"]]
    assert second == [*first, *([start, key, "1"] for start in ("20", "40") for key in ("k0", "k1"))]
    return [first, second]


@scenario
def duplicates_dropped_within_a_watermark(stage: Stage) -> Any:
    stage.create()
    unique = _timed(stage.stream()).dropDuplicatesWithinWatermark(["key"])
    stage.send([_at(second, f"id{second % 5}", str(second)) for second in range(10)])
    stage.collect_stream(unique)
    stage.send([_at(second, f"id{second % 7}", str(second)) for second in range(10, 17)])
    stage.collect_stream(unique)
    found = _sorted(stage.collected().select("key", "value"))
    assert found == [[f"id{n}", str(n if n < 5 else n + 7)] for n in range(7)]
    return found


@scenario
def a_stream_joined_with_a_table(stage: Stage) -> Any:
    """The table is another topic, read as a batch."""
    users = f"{stage.topic}-users"
    stage.create(stage.topic, users)
    stage.send([_at(0, f"k{n}", f"user {n}") for n in range(3)], users)
    stage.send(numbered(range(20)))
    table = stage.batch(subscribe=users).selectExpr("key", "cast(value as string) as user")
    joined = stage.stream().join(table, "key").selectExpr("cast(value as string) as value", "user")
    stage.collect_stream(joined)
    found = sorted([int(value), user] for value, user in stage.collected().collect())
    assert found == [[n, f"user {n % 5}"] for n in range(20) if n % 5 < 3]
    return found


@scenario
def two_streams_joined(stage: Stage) -> Any:
    """Clicks find the views of the same key up to ten seconds before them, also those of an earlier batch."""
    from pyspark.sql import functions as sql

    views, clicks = f"{stage.topic}-views", f"{stage.topic}-clicks"
    stage.create(views, clicks)
    left = _timed(stage.stream(subscribe=views)).toDF("viewed", "view", "at").alias("v")
    right = _timed(stage.stream(subscribe=clicks)).toDF("clicked", "click", "when").alias("c")
    near = sql.expr("viewed = clicked and when between at and at + interval 10 seconds")
    pairs = left.join(right, near).select("viewed", "view", "click")
    stage.send([_at(n, f"k{n}", f"view {n}") for n in range(10)], views)
    stage.send([_at(n + 5, f"k{n}", f"click {n}") for n in range(3)], clicks)
    told = [sorted(ranges(stage.collect_stream(pairs)), key=str)]
    stage.send([_at(n + 8, f"k{n}", f"click {n}") for n in range(3, 6)], clicks)
    stage.send([_at(n + 11, f"k{n}", f"click {n}") for n in range(6, 8)], clicks)  # too long after their views
    told.append(sorted(ranges(stage.collect_stream(pairs)), key=str))
    found = _sorted(stage.collected())
    assert found == [[f"k{n}", f"view {n}", f"click {n}"] for n in range(6)]
    return [told, found]


@scenario
def running_totals(stage: Stage) -> Any:
    """Into a topic, an update for each key that a batch has changed: the last one of each key counts."""
    out = f"{stage.topic}-totals"
    stage.create(stage.topic, out)
    totals = stage.stream().selectExpr("key", "cast(cast(value as string) as long) as n").groupBy("key").sum("n")
    records = totals.selectExpr("key", "cast(`sum(n)` as string) as value").writeStream.outputMode("update")
    for turn in range(2):
        stage.send(numbered(range(turn * 20, turn * 20 + 20)))
        stage.now(stage.to_kafka(records, topic=out))
    received = stage.client.consume(out, 0, 0, stage.end_of(out))
    last = {(r.key or b"").decode(): int(r.value or b"") for r in received}
    assert last == {f"k{k}": sum(range(k, 40, 5)) for k in range(5)}
    return [len(received), last]
