"""What becomes of a record that passed the de-duplication: counted, late, to be retried, or dead.

    verdict   page in the catalogue   tries left   fate
    good      yes                     -            counted
    good      no                      yes / no     retry / dead
    bad       -                       yes / no     retry / dead
    late      -                       -            late: kept and counted apart, in no total

The catalogue is asked here, after the de-duplication. A copy that failed here was admitted, says so in its headers, and
passes when it comes back; the other copies of its event stay out.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from spark_integration.pipeline.settings import Settings

COUNTED, LATE, RETRY, DEAD = FATES = ("counted", "late", "retry", "dead")
# The durable form. A record's own bytes are kept only where it travels on.
EVENTS = (
    "partition int, offset bigint, origin string, first_seen_ms bigint, attempt int, admitted boolean, "
    "event_id string, page string, user string, action string, quantity bigint, at bigint, "
    "error string, key binary, value binary, fate string"
)


def decided(passed: DataFrame, pages: list[str], settings: Settings) -> DataFrame:
    """`attempt` becomes the number of failed tries, this one included."""
    good, late = fn.col("verdict") == "good", fn.col("verdict") == "late"
    known = fn.col("page").isin(pages) if pages else fn.lit(False)
    error = fn.when(good & ~known, fn.concat(fn.lit("page: not in the catalogue: "), "page")).otherwise(fn.col("error"))
    failed = fn.col("error").isNotNull()
    limit = fn.when(good, settings.attempts).otherwise(settings.malformed_attempts)
    fate = fn.when(late, LATE).when(~failed, COUNTED).when(fn.col("attempt") < limit, RETRY).otherwise(DEAD)
    travels = fn.col("fate").isin(RETRY, DEAD)
    judged = passed.withColumn("error", error).withColumn("admitted", good)
    tried = judged.withColumn("attempt", fn.col("attempt") + fn.when(failed, 1).otherwise(0)).withColumn("fate", fate)
    names = [column.split()[0] for column in EVENTS.split(", ")]
    kept = tried.withColumn("key", fn.when(travels, fn.col("key"))).withColumn(
        "value", fn.when(travels, fn.col("value"))
    )
    return kept.select(*names)
