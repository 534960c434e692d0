"""Replay and backfill: a range of the input, by offset or by time, run again into an output of its own.

The live checkpoint, its Parquet, its topics and its consumer group are not touched. Parsing, validation, lateness and
totals are the live pipeline's own; being one batch, it de-duplicates over the whole range. Over everything that the
live pipeline has processed, with the catalogue of now, the totals are the live ones, unless dead letters wait whose
page the catalogue has learnt meanwhile: these the replay counts already. A range that starts between the copies of an
event counts it, as it must: it has seen only that copy.
"""

from __future__ import annotations

import json

from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from spark_integration.pipeline import fates, ingest, schema, windows
from spark_integration.pipeline.catalogue import Catalogue
from spark_integration.pipeline.settings import Settings

EVERYTHING = {"startingOffsets": "earliest", "endingOffsets": "latest"}


def by_offset(settings: Settings, start: dict[int, int], end: dict[int, int]) -> dict[str, str]:
    """Partition to first offset, and to the first one not; -2 is the earliest and -1 the latest, as in Spark."""

    def written(offsets: dict[int, int]) -> str:
        return json.dumps({settings.input_topic: {str(number): at for number, at in offsets.items()}})

    return {"startingOffsets": written(start), "endingOffsets": written(end)}


def by_time(start_ms: int, end_ms: int) -> dict[str, str]:
    """By arrival: from the first record at or after the start to the last before the end."""
    offsets = {"startingTimestamp": str(start_ms), "endingTimestamp": str(end_ms)}
    return offsets | {"startingOffsetsByTimestampStrategy": "latest"}


def replay(spark: SparkSession, settings: Settings, bounds: dict[str, str], out: str) -> dict[str, int]:
    """Writes `<out>/events` and `<out>/windows` anew; the fates, counted."""
    catalogue = Catalogue(settings)
    try:
        pages = catalogue.pages()
    finally:
        catalogue.close()
    records = schema.validated(ingest.between(spark, settings, bounds), settings)
    unique = windows.identified(records.withColumn("admitted", fn.lit(False))).dropDuplicates(["identity"])
    decided = fates.decided(unique, pages, settings)
    decided.write.mode("overwrite").partitionBy("fate").parquet(f"{out}/events")
    events = spark.read.schema(fates.EVENTS).parquet(f"{out}/events")
    totals = windows.totals(events.where(fn.col("fate") == fates.COUNTED), settings)
    totals.coalesce(1).write.mode("overwrite").parquet(f"{out}/windows")
    return {row["fate"]: row["count"] for row in events.groupBy("fate").count().collect()}
