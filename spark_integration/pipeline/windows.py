"""De-duplication by event id, and totals per window and page.

The state of the de-duplication is Spark's. Its watermark runs on the time of arrival by the broker's clock, and not on
the time of the event: a record that comes back after days in the dead letters is then not dropped for its age, and an
event with a wrong clock does not close the door for all others.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from spark_integration.pipeline.settings import Settings

WINDOWS = "window_start_ms bigint, page string, events bigint, quantity bigint"


def identified(validated: DataFrame) -> DataFrame:
    """What a record is the same as. Only a good one that was not admitted yet stands for its event; every other one
    stands for itself and passes: it is not counted, or it is the one copy that may be."""
    contends = (fn.col("verdict") == "good") & ~fn.col("admitted")
    identity = fn.when(contends, fn.concat(fn.lit("event "), "event_id")).otherwise(
        fn.concat(fn.lit("at "), "position")
    )
    return validated.withColumn("identity", identity)


def deduplicated(validated: DataFrame, settings: Settings) -> DataFrame:
    """Live: the first copy passes, those that arrive within the horizon after it do not."""
    watermarked = identified(validated).withWatermark("arrived", f"{settings.horizon_ms} milliseconds")
    return watermarked.dropDuplicatesWithinWatermark(["identity"]).drop("identity")


def totals(events: DataFrame, settings: Settings) -> DataFrame:
    """Counted events to (window, page): events and quantity.

    With salt the first stage groups by `page:N`, N from the event's id, so that a hot page is the work of many tasks;
    the second stage takes the salt off and adds the few rows that are left.
    """
    at = fn.col("at")
    rows = events.select(
        (at - fn.pmod(at, fn.lit(settings.window_ms))).alias("window_start_ms"), "page", "quantity", "event_id"
    )
    if settings.salt == 1:
        return summed(rows.withColumn("events", fn.lit(1)))
    part = fn.pmod(fn.hash("event_id"), fn.lit(settings.salt)).cast("string")
    salted = rows.withColumn("page", fn.concat_ws(":", "page", part)).repartition("window_start_ms", "page")
    parts = summed(salted.withColumn("events", fn.lit(1)))
    return summed(parts.withColumn("page", fn.regexp_replace("page", ":[0-9]+$", "")))


def summed(rows: DataFrame) -> DataFrame:
    """Rows that have `events` and `quantity`, totals too, to totals."""
    return rows.groupBy("window_start_ms", "page").agg(
        fn.sum("events").alias("events"), fn.sum("quantity").alias("quantity")
    )
