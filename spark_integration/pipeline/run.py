"""The running pipeline: one streaming query, the pump of the retries, and the listener.

For each batch, in this order, each step found done when the batch runs again:
    1. the records are judged and kept, Parquet first and the manifest last (`store`);
    2. what failed and which totals changed goes to Kafka, in one transaction with the batch's number (`sink`),
       read back from the Parquet of step 1;
    3. Spark commits the batch in its checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_integration.pipeline import fates, ingest, kafka, schema, windows
from spark_integration.pipeline.catalogue import Catalogue
from spark_integration.pipeline.files import Files
from spark_integration.pipeline.progress import Progress
from spark_integration.pipeline.retry import Pump, outgoing
from spark_integration.pipeline.settings import Settings
from spark_integration.pipeline.sink import ExactSink, Outgoing
from spark_integration.pipeline.store import Manifest, Store

Tell = Callable[[int, int], None]
LOOK_SECONDS = 0.5


class Pipeline:
    """Runs from `start` to `stop`; `drain` waits until nothing is left to do, `watch` for as long as it goes well."""

    def __init__(self, spark: SparkSession, settings: Settings, folder: Path) -> None:
        self._spark, self._settings = spark, settings
        self._store, self._sink = Store(spark, settings), ExactSink(settings)
        self._catalogue, self._progress = Catalogue(settings), Progress(settings, folder)
        self._pump = Pump(settings)
        self._consumer = self._pump.group_consumer()
        self._query: StreamingQuery | None = None

    def start(self) -> Pipeline:
        # A batch without records would only let the watermark catch up; the next one with records does it too.
        self._spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        self._spark.streams.addListener(self._progress)
        records = schema.validated(ingest.live(self._spark, self._settings), self._settings)
        writer = windows.deduplicated(records, self._settings).writeStream.foreachBatch(self.process)
        writer = writer.queryName(self._settings.name).option("checkpointLocation", self._settings.checkpoint)
        self._query = writer.trigger(processingTime=f"{self._settings.trigger_ms} milliseconds").start()
        self._pump.start()
        return self

    def process(self, passed: DataFrame, batch: int) -> None:
        pages = kafka.patiently(self._settings, self._catalogue.pages)
        kept = self._store.keep(batch, fates.decided(passed, pages, self._settings))
        self._sink.write(batch, lambda: self._leaving(kept))

    def processed(self) -> dict[str, dict[str, int]]:
        """Up to where the input is done with, by Spark's checkpoint."""
        files, root = Files(self._spark), self._settings.checkpoint
        numbers = [int(name) for name in files.names(f"{root}/commits") if name.isdigit()]
        if not numbers:
            return {}
        found: dict[str, dict[str, int]] = json.loads(files.read(f"{root}/offsets/{max(numbers)}").splitlines()[-1])
        return found

    def drain(self, tell: Tell = lambda done, end: None) -> None:
        """Until the input is processed and nothing waits to be retried. `tell` hears offsets done, and to do."""
        while not kafka.patiently(self._settings, lambda: self._drained(tell)):
            self._check(LOOK_SECONDS)

    def watch(self, tell: Tell = lambda done, end: None) -> None:
        while True:
            kafka.patiently(self._settings, lambda: self._look(tell))
            self._check(LOOK_SECONDS)

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()
            self._pump.stop()
            self._spark.streams.removeListener(self._progress)
        self._progress.commit(self.processed())
        for closing in (self._sink, self._catalogue, self._progress, self._consumer):
            closing.close()

    def _leaving(self, manifest: Manifest) -> Iterator[Outgoing]:
        now_ms = kafka.now_ms()
        for failed in self._store.failed(manifest):
            yield outgoing(failed, now_ms, self._settings)
        for total in self._store.touched(manifest):
            key = f"{total['page']}@{total['window_start_ms']}"
            value = json.dumps(total | {"batch": manifest.batch})
            yield Outgoing(self._settings.totals_topic, key.encode(), value.encode())

    def _check(self, seconds: float) -> None:
        """Waits for the end of the query, which is none of a run that goes well; what ended it is raised."""
        assert self._query is not None
        if self._query.awaitTermination(seconds):  # type: ignore[arg-type]
            raise RuntimeError("the query was stopped from elsewhere")
        if not self._pump.running:
            raise RuntimeError("the retries have ended: another run of this pipeline has taken over")

    def _look(self, tell: Tell) -> tuple[dict[int, int], bool]:
        ends = kafka.end_offsets(self._consumer, self._settings.input_topic)
        done = {int(p): at for p, at in self.processed().get(self._settings.input_topic, {}).items()}
        tell(sum(done.values()), sum(ends.values()))
        return ends, all(done.get(number, 0) >= end for number, end in ends.items())

    def _drained(self, tell: Tell) -> bool:
        """Records go round: input, retry, input. If the input was done with, then nothing waited in retry, and
        still nothing has come to the input, then nothing was on its way at the moment in between."""
        ends, done = self._look(tell)
        if not done or not self._pump.drained(self._consumer):
            return False
        return kafka.end_offsets(self._consumer, self._settings.input_topic) == ends
