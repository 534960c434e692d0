"""The steps of `make pipeline`, each a row of its table; `pipeline audit` and `pipeline dead-letters` print theirs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from spark_integration.pipeline import audit as audits
from spark_integration.pipeline import events, kafka, report
from spark_integration.pipeline import skew as skewed
from spark_integration.pipeline.catalogue import publish
from spark_integration.pipeline.ingest import ERROR
from spark_integration.pipeline.run import Pipeline
from spark_integration.pipeline.send import send_all
from spark_integration.pipeline.settings import Settings
from spark_integration.pipeline.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def prepare(table: report.Report, settings: Settings, count: int, seed: int = 1) -> events.Truth:
    """Creates the topics and sends pages and events; returns the totals that must come out."""
    with table.step("create topics") as step:
        kafka.create_topics(settings)
        topics = (settings.retry_topic, settings.dead_topic, settings.totals_topic, settings.pages_topic)
        step.meaning = f"{settings.input_topic} with {settings.partitions} partitions; {', '.join(topics)}"
    with table.step("publish pages") as step:
        pages = [*events.PAGES, *events.SOON]
        publish(settings, pages)
        step.records, step.meaning = len(pages), f"sent to {settings.pages_topic}: the pages that events may name"
    truth = events.Truth(settings.window_ms)
    with table.step("generate events") as step:
        sent = 0

        def advance(more: int) -> None:
            nonlocal sent
            sent += more
            step.show(sent, count)

        made = events.stream(count, seed, kafka.now_ms(), truth)
        step.records = send_all(settings, made, advance)
        step.meaning = f"sent to {settings.input_topic}; some are copies, late, malformed or of unknown pages"
    return truth


def run(table: report.Report, settings: Settings, spark: SparkSession, folder: Path) -> None:
    """Runs the pipeline until nothing is left to do."""
    with table.step("run") as step:
        pipeline = Pipeline(spark, settings, folder).start()
        try:
            pipeline.drain(step.show)
        finally:
            pipeline.stop()
        store = Store(spark, settings)
        manifests = [store.manifest(batch) for batch in store.batches()]
        step.records = sum(sum(one.fates.values()) for one in manifests if one is not None)
        step.meaning = f"processed in {len(manifests)} batches: no copies, a retried record once per attempt"


def audit(table: report.Report, settings: Settings, spark: SparkSession, expected: events.Totals | None) -> bool:
    """Prints the fate of every record and compares the totals; returns whether all of it is exact."""
    with table.step("audit") as step:
        found = audits.balance(spark, settings)
        step.records, step.meaning = found.input, "records of the input; each has one of these fates:"
        step.rows = report.books(found, settings)
    with table.step("compare totals") as step:
        kept = audits.parquet_totals(Store(spark, settings).totals())
        published = audits.topic_totals(settings)
        equal = kept == published and expected in (None, kept)
        step.records = len(published)
        places = f"in Parquet and in {settings.totals_topic}" + ("" if expected is None else " and as generated")
        step.meaning = f"totals per window and page: {'the same' if equal else 'NOT THE SAME'} {places}"
    return equal and found.exact


def dead_letters(table: report.Report, settings: Settings) -> None:
    """Prints how many dead letters each error has."""
    with table.step("dead letters") as step:
        letters = kafka.read_all(settings, settings.dead_topic)
        step.rows = report.dead_by_error(letter.headers[ERROR] for letter in letters)
        step.records = sum(row.records or 0 for row in step.rows)
        step.meaning = f"records in {settings.dead_topic}, by error:"


def skew(table: report.Report, settings: Settings, spark: SparkSession) -> None:
    """Prints how evenly the records are spread over the partitions."""
    with table.step("skew") as step:
        found = skewed.report(spark, settings)
        step.records, step.meaning = found.records, report.skew_summary(found)
