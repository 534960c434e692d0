"""Records of the input topic, live or between two bounds, with what their headers say of earlier tries.

A record that failed comes back to the input with its history in headers: where it first stood (`origin`) and when,
how often it was tried, and whether it had passed the de-duplication already (`admitted`). A fresh one has none.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from spark_integration.pipeline.settings import Settings

ORIGIN, FIRST_SEEN, ATTEMPT, ADMITTED = "kb.origin", "kb.first-seen", "kb.attempt", "kb.admitted"
DUE, ERROR = "kb.due", "kb.error"


def options(settings: Settings) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": settings.bootstrap,
        "subscribe": settings.input_topic,
        "includeHeaders": "true",
        "kafka.max.poll.records": "10000",  # with each poll Spark also asks twice where the partition begins and ends
        "kafka.isolation.level": "read_committed",  # what comes back from retry comes by transactions
    }


def live(spark: SparkSession, settings: Settings) -> DataFrame:
    reader = spark.readStream.format("kafka").options(**options(settings))
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(settings.per_batch))
    return with_history(reader.load())


def between(spark: SparkSession, settings: Settings, bounds: dict[str, str]) -> DataFrame:
    """`bounds` are the source's own options: startingOffsets, endingOffsets, startingTimestamp, endingTimestamp."""
    return with_history(spark.read.format("kafka").options(**options(settings)).options(**bounds).load())


def with_history(raw: DataFrame) -> DataFrame:
    position = fn.concat_ws("/", "topic", "partition", "offset")
    arrived_ms = fn.unix_millis("timestamp")
    return raw.select(
        "partition",
        "offset",
        "key",
        "value",
        fn.col("timestamp").alias("arrived"),
        position.alias("position"),
        fn.coalesce(_header(ORIGIN), position).alias("origin"),
        fn.coalesce(_header(FIRST_SEEN).try_cast("bigint"), arrived_ms).alias("first_seen_ms"),
        fn.coalesce(_header(ATTEMPT).try_cast("int"), fn.lit(0)).alias("attempt"),
        fn.coalesce(_header(ADMITTED) == "1", fn.lit(False)).alias("admitted"),
    )


def _header(name: str) -> Column:
    return fn.expr(f"cast(get(filter(headers, h -> h.key = '{name}'), 0).value as string)")
