"""Spark's batch source and sink over kbroker and over Apache Kafka: the same rows, unchanged."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.client import CODECS, ProduceOptions, TopicPlan
from compat_tests.confluent import ConfluentClient
from compat_tests.harness import Broker
from compat_tests.plugin import Compare
from compat_tests.scenarios.records import sample_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS = ("partition", "offset", "key", "value", "headers", "timestamp")


def _fill(broker: Broker, topic: str, *, partitions: int = 3) -> None:
    with ConfluentClient(broker.bootstrap) as client:
        client.create_topic(topic, TopicPlan(partitions=partitions))
        for partition in range(partitions):
            for codec in CODECS:
                sent = [_on(record, partition) for record in sample_records(100)]
                client.produce(topic, sent, ProduceOptions(codec=codec))


def _on(record: Any, partition: int) -> Any:
    return replace(record, partition=partition)


def _read(spark: SparkSession, broker: Broker, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap).option("subscribe", topic)
    return reader.option("includeHeaders", "true").options(**options).load()


def _rows(frame: DataFrame) -> list[list[str]]:
    ordered = frame.orderBy("partition", "offset").select(*_COLUMNS).collect()
    return [[repr(row[name]) for name in _COLUMNS] for row in ordered]


def everything(spark: SparkSession, broker: Broker, topic: str) -> Any:
    _fill(broker, topic)
    rows = _rows(_read(spark, broker, topic))
    assert len(rows) == 1500
    return rows


def between_offsets(spark: SparkSession, broker: Broker, topic: str) -> Any:
    _fill(broker, topic)
    start = json.dumps({topic: {"0": 10, "1": -2, "2": 499}})
    end = json.dumps({topic: {"0": 20, "1": 7, "2": -1}})
    rows = _rows(_read(spark, broker, topic, startingOffsets=start, endingOffsets=end))
    assert len(rows) == 10 + 7 + 1
    return rows


def between_times(spark: SparkSession, broker: Broker, topic: str) -> Any:
    _fill(broker, topic, partitions=1)
    bounds = {"startingTimestamp": "1700000000500", "endingTimestamp": "1700000000900"}
    return _rows(_read(spark, broker, topic, **bounds))


def split_over_many_tasks(spark: SparkSession, broker: Broker, topic: str) -> Any:
    _fill(broker, topic)
    frame = _read(spark, broker, topic, minPartitions="12")
    return {"tasks": frame.rdd.getNumPartitions(), "rows": _rows(frame)}


def by_pattern(spark: SparkSession, broker: Broker, topic: str) -> Any:
    for name in ("-a", "-b"):
        _fill(broker, topic + name, partitions=1)
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    frame = reader.option("subscribePattern", f"{topic}-.*").load()
    return sorted((row["topic"], row["count"]) for row in frame.groupBy("topic").count().collect())


def written_and_read_back(spark: SparkSession, broker: Broker, topic: str) -> Any:
    sent = sample_records(200)
    rows = [(r.key, r.value, 0) for r in sent]
    frame = spark.createDataFrame(rows, "key binary, value binary, partition int").coalesce(1)
    with ConfluentClient(broker.bootstrap) as client:
        client.create_topic(topic, TopicPlan())
        writer = frame.write.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
        writer.option("topic", topic).option("kafka.compression.type", "lz4").save()
        received = client.consume(topic, 0, 0, len(sent))
    assert [(r.key, r.value) for r in received] == [(r.key, r.value) for r in sent]
    read = _read(spark, broker, topic).orderBy("offset").select("key", "value").collect()
    assert [(None if k is None else bytes(k), None if v is None else bytes(v)) for k, v in read] == [
        row[:2] for row in rows
    ]
    return len(received)


def aggregated_into_another_topic(spark: SparkSession, broker: Broker, topic: str) -> Any:
    """A small pipeline: read, group, write, read what was written."""
    _fill(broker, topic)
    with ConfluentClient(broker.bootstrap) as client:
        client.create_topic(f"{topic}-counts", TopicPlan(partitions=2))
    counted = _read(spark, broker, topic).groupBy("key").count()
    out = counted.selectExpr("key", "cast(count as string) as value").write.format("kafka")
    out.option("kafka.bootstrap.servers", broker.bootstrap).option("topic", f"{topic}-counts").save()
    rows = (
        _read(spark, broker, f"{topic}-counts").selectExpr("cast(key as string) k", "cast(value as string) v").collect()
    )
    return sorted((str(row["k"]), row["v"]) for row in rows)


SPARK_SCENARIOS: dict[str, Callable[[Any, Broker, str], Any]] = {
    run.__name__.replace("_", " "): run
    for run in (
        everything,
        between_offsets,
        between_times,
        split_over_many_tasks,
        by_pattern,
        written_and_read_back,
        aggregated_into_another_topic,
    )
}


@pytest.mark.parametrize("scenario", SPARK_SCENARIOS)
def test_spark_sees_no_difference(
    request: pytest.FixtureRequest, scenario: str, topic: str, comparing: Compare, spark: SparkSession
) -> None:
    request.node.compat_row = ("spark", scenario)
    comparing("spark", scenario, lambda broker: SPARK_SCENARIOS[scenario](spark, broker, topic))
