"""Where every record of the input went: one fate each, and none lost.

A record that failed came back, perhaps often; its last appearance in the input decides. If the events that passed the
de-duplication have it, they say what became of it. If not, it must be a copy of an event that they have, or it is lost.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from spark_integration.pipeline import ingest, kafka, schema
from spark_integration.pipeline.events import Totals
from spark_integration.pipeline.fates import COUNTED, RETRY
from spark_integration.pipeline.settings import Settings
from spark_integration.pipeline.store import Store


@dataclass(frozen=True)
class Balance:
    """Of records. `counted` at the first try, `retried` counted later; `waiting` in retry; `lost` must be 0, and so
    must `twice`, the events that were counted more than once."""

    input: int
    counted: int
    duplicate: int
    late: int
    retried: int
    dead: int
    waiting: int
    lost: int
    twice: int

    @property
    def valid(self) -> int:
        return self.counted + self.duplicate + self.late

    @property
    def exact(self) -> bool:
        return self.lost == self.twice == 0 and self.valid + self.retried + self.dead + self.waiting == self.input


def balance(spark: SparkSession, settings: Settings) -> Balance:
    events = Store(spark, settings).events().persist()
    try:
        everything = {"startingOffsets": "earliest", "endingOffsets": "latest"}
        records = schema.validated(ingest.between(spark, settings, everything), settings)
        last = records.groupBy("origin").agg(
            fn.max_by(fn.struct("partition", "offset", "position", "event_id"), fn.struct("arrived", "offset")).alias(
                "last"
            )
        )
        kept = events.select("partition", "offset", "fate")
        owned = events.where("event_id is not null").select("event_id").distinct().withColumn("owned", fn.lit(True))
        told = (
            last.select("origin", "last.*").join(kept, ["partition", "offset"], "left").join(owned, "event_id", "left")
        )
        recovered = (fn.col("fate") == COUNTED) & (fn.col("origin") != fn.col("position"))
        fate = (
            fn.when(recovered, "retried")
            .when(fn.col("fate") == RETRY, "waiting")
            .when(fn.col("fate").isNotNull(), fn.col("fate"))
            .when(fn.col("owned"), "duplicate")
            .otherwise("lost")
        )
        counts = {
            row["fate"]: row["count"] for row in told.select(fate.alias("fate")).groupBy("fate").count().collect()
        }
        counted = events.where(fn.col("fate") == COUNTED)
        twice = counted.groupBy("event_id").count().where("count > 1").count()
        names = ("counted", "duplicate", "late", "retried", "dead", "waiting", "lost")
        fates = {name: counts.get(name, 0) for name in names}
        return Balance(input=sum(counts.values()), twice=twice, **fates)
    finally:
        events.unpersist()


def parquet_totals(totals: DataFrame) -> Totals:
    return {(row["window_start_ms"], row["page"]): (row["events"], row["quantity"]) for row in totals.collect()}


def topic_totals(settings: Settings) -> Totals:
    """The last value of each key, as a compacted topic means it."""
    found = (json.loads(record.value or b"{}") for record in kafka.read_all(settings, settings.totals_topic))
    return {(total["window_start_ms"], total["page"]): (total["events"], total["quantity"]) for total in found}
