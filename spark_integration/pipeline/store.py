"""The exactly-once file sink: Parquet by batch id, and a manifest per batch that makes it count.

    <warehouse>/events/batch=N/fate=F/*.parquet      every record that passed the de-duplication, and what became of it
    <warehouse>/windows/batch=N/*.parquet            totals per window and page, of this batch alone
    <warehouse>/snapshots/batch=N/*.parquet          now and then: the totals of all batches up to this one
    <warehouse>/manifests/N.json                     written last, whole; what has none does not count

A batch that Spark runs again finds its manifest and changes nothing, or finds none and overwrites what half of it was
there. So what a manifest says was decided once, and everything downstream is derived from it: also when the catalogue
has changed in the meantime.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as fn

from spark_integration.pipeline import windows
from spark_integration.pipeline.fates import COUNTED, DEAD, EVENTS, FATES, RETRY
from spark_integration.pipeline.files import Files
from spark_integration.pipeline.settings import Settings

SNAPSHOT_EVERY = 20


@dataclass(frozen=True)
class Manifest:
    batch: int
    fates: dict[str, int]
    snapshot: bool

    @property
    def has_windows(self) -> bool:
        return self.fates[COUNTED] > 0


class Store:
    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._spark, self._settings, self._files = spark, settings, Files(spark)
        self._root = settings.warehouse

    def manifest(self, batch: int) -> Manifest | None:
        name = f"{self._root}/manifests/{batch}.json"
        return Manifest(**json.loads(self._files.read(name))) if self._files.exists(name) else None

    def batches(self) -> list[int]:
        """Those that count, in their order."""
        names = self._files.names(f"{self._root}/manifests")
        return sorted(int(name.removesuffix(".json")) for name in names if name.endswith(".json"))

    def keep(self, batch: int, decided: DataFrame) -> Manifest:
        """Makes the batch durable, unless it is."""
        kept = self.manifest(batch)
        if kept is not None:
            # Nothing is decided again, but the records must pass: the state of the de-duplication is made by it.
            decided.write.format("noop").mode("overwrite").save()
            return kept
        observed = Observation()
        counts = [fn.count_if(fn.col("fate") == fate).alias(fate) for fate in FATES]
        rows = decided.observe(observed, *counts)
        rows.write.mode("overwrite").partitionBy("fate").parquet(f"{self._root}/events/batch={batch}")
        manifest = Manifest(batch, dict(observed.get), snapshot=batch % SNAPSHOT_EVERY == SNAPSHOT_EVERY - 1)
        if manifest.has_windows:
            counted = self._of_batch(batch).where(fn.col("fate") == COUNTED)
            self._write(windows.totals(counted, self._settings), f"windows/batch={batch}")
        if manifest.snapshot:
            self._write(windows.summed(self._windows(manifest)), f"snapshots/batch={batch}")
        self._files.write_json(f"{self._root}/manifests/{batch}.json", asdict(manifest))
        return manifest

    def failed(self, manifest: Manifest) -> Iterator[dict[str, object]]:
        """The records of a batch that travel on, to the retry topic or to the dead letters."""
        if manifest.fates[RETRY] + manifest.fates[DEAD] > 0:
            yield from _rows(self._of_batch(manifest.batch).where(fn.col("fate").isin(RETRY, DEAD)))

    def touched(self, manifest: Manifest) -> Iterator[dict[str, object]]:
        """The totals as they stand after the batch, of the windows and pages that it changed."""
        if manifest.has_windows:
            own = self._totals_at([f"windows/batch={manifest.batch}"]).select("window_start_ms", "page")
            everything = self._windows(manifest)
            yield from _rows(
                windows.summed(everything.join(fn.broadcast(own), ["window_start_ms", "page"], "left_semi"))
            )

    def totals(self) -> DataFrame:
        """All totals as they stand."""
        batches = self.batches()
        last = self.manifest(batches[-1]) if batches else None
        return windows.summed(self._totals_at([]) if last is None else self._windows(last))

    def events(self) -> DataFrame:
        """Every record that passed the de-duplication, with its batch."""
        last = max(self.batches(), default=-1)
        reader = self._spark.read.schema(f"{EVENTS}, batch bigint")
        return reader.parquet(f"{self._root}/events").where(fn.col("batch") <= last)

    def _of_batch(self, batch: int) -> DataFrame:
        return self._spark.read.schema(EVENTS).parquet(f"{self._root}/events/batch={batch}")

    def _windows(self, last: Manifest) -> DataFrame:
        """Rows that sum to the totals after this batch: the last snapshot before it, and the batches since."""
        paths = [f"windows/batch={last.batch}"] if last.has_windows else []
        for batch in reversed([batch for batch in self.batches() if batch < last.batch]):
            manifest = self.manifest(batch)
            assert manifest is not None
            if manifest.snapshot:
                paths.append(f"snapshots/batch={batch}")
                break
            if manifest.has_windows:
                paths.append(f"windows/batch={batch}")
        return self._totals_at(paths)

    def _totals_at(self, paths: list[str]) -> DataFrame:
        if not paths:
            return self._spark.createDataFrame([], windows.WINDOWS)
        return self._spark.read.schema(windows.WINDOWS).parquet(*(f"{self._root}/{path}" for path in paths))

    def _write(self, totals: DataFrame, path: str) -> None:
        totals.coalesce(1).write.mode("overwrite").parquet(f"{self._root}/{path}")


def _rows(frame: DataFrame) -> Iterator[dict[str, object]]:
    """One partition at a time comes to the driver, and each is a job: of what is small, one."""
    return (row.asDict() for row in frame.coalesce(1).toLocalIterator())
