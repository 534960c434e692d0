"""Hot partitions: which keys make which partition hot, and into how many parts such a key should be cut.

Kafka keeps a key in one partition, so one hot key makes one hot partition, whatever the number of partitions. A salted
key `key:N` lies in up to that many. Order within the key is given up for it; totals are not: see `windows.totals`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from spark_integration.pipeline import ingest
from spark_integration.pipeline.settings import Settings

HOT = 0.5  # of what a partition would hold if all held the same


@dataclass(frozen=True)
class Skew:
    """Shares are of all records. `hottest` is the fullest partition beside one that holds its fair share."""

    records: int
    partitions: dict[int, float]
    keys: list[tuple[str, int, float]]  # key, the partition of most of it, share; the hottest first

    @property
    def hottest(self) -> float:
        return max(self.partitions.values(), default=0.0) * len(self.partitions)

    def salts(self) -> dict[str, int]:
        """Into how many parts each hot key should be cut: twice what would just do, as parts may fall together."""
        fair = 1 / max(len(self.partitions), 1)
        return {key: math.ceil(2 * share / fair) + 1 for key, _, share in self.keys if share > HOT * fair}


def report(spark: SparkSession, settings: Settings, top: int = 20) -> Skew:
    everything = {"startingOffsets": "earliest", "endingOffsets": "latest"}
    records = ingest.between(spark, settings, everything).select("partition", fn.col("key").cast("string").alias("key"))
    cells = records.groupBy("partition", "key").count().persist()
    try:
        sizes = {
            row["partition"]: row["n"] for row in cells.groupBy("partition").agg(fn.sum("count").alias("n")).collect()
        }
        total = sum(sizes.values())
        by_key = cells.groupBy("key").agg(
            fn.sum("count").alias("n"), fn.max_by("partition", "count").alias("partition")
        )
        rows = by_key.orderBy(fn.desc("n"), "key").limit(top).collect()
    finally:
        cells.unpersist()
    shares = {number: sizes.get(number, 0) / max(total, 1) for number in range(settings.partitions)}
    return Skew(total, shares, [(row["key"] or "", row["partition"], row["n"] / total) for row in rows])


def salted(salts: dict[str, int]) -> Callable[[str, int], str]:
    """For producers: the key of a hot page's event number so and so is `page:N`, every other page's is the page."""

    def key_of(page: str, number: int) -> str:
        return f"{page}:{number % salts[page]}" if page in salts else page

    return key_of
