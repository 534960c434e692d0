"""What an event must be. Validation is a pure function of the record: a batch that runs again decides the same again.

Without Python on the executors: the checks are Spark's own expressions, so that any cluster runs them as it is.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.types import LongType, StringType, StructField, StructType

from spark_integration.pipeline.settings import Settings

EVENT = StructType(
    [
        StructField("event_id", StringType()),
        StructField("page", StringType()),
        StructField("user", StringType()),
        StructField("action", StringType()),
        StructField("quantity", LongType()),
        StructField("at", LongType()),
        StructField("_corrupt", StringType()),
    ]
)
ACTIONS = ("view", "click", "buy")
_FIELDS = [name for name in EVENT.fieldNames() if name != "_corrupt"]


def validated(records: DataFrame, settings: Settings) -> DataFrame:
    """The records with the event's fields, an `error` where there is one, and a `verdict`: good, late or bad.

    Late is decided by the record alone, by when it happened and when it first reached Kafka, and not by how far some
    watermark had come in the meantime: live, run again or replayed, it is late or it is not.
    """
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
    parsed = records.withColumn("event", fn.from_json(fn.col("value").cast("string"), EVENT, options))
    named = parsed.select("*", *(fn.col(f"event.{name}").alias(name) for name in EVENT.fieldNames())).drop("event")
    late = fn.col("first_seen_ms") - fn.col("at") > settings.lateness_ms
    checked = named.withColumn("error", _error(settings)).drop("_corrupt")
    verdict = fn.when(fn.col("error").isNotNull(), "bad").when(late, "late").otherwise("good")
    return checked.withColumn("verdict", verdict)


def _error(settings: Settings) -> Column:
    missing = fn.array_join(
        fn.array_compact(fn.array(*(fn.when(fn.col(name).isNull(), fn.lit(name)) for name in _FIELDS))), ", "
    )
    return (
        fn.when(
            (missing != "") & (missing != ", ".join(_FIELDS)),
            fn.concat(fn.lit("missing or of a wrong type: "), missing),
        )
        .when((missing != "") | fn.col("_corrupt").isNotNull(), fn.lit("not a JSON object"))
        .when(fn.col("event_id") == "", fn.lit("event_id: empty"))
        .when(~fn.col("action").isin(*ACTIONS), fn.concat(fn.lit("action: not known: "), fn.col("action")))
        .when(fn.col("quantity") < 0, fn.lit("quantity: below 0"))
        .when(fn.col("at") > fn.col("first_seen_ms") + settings.future_ms, fn.lit("at: in the future"))
    )
