"""Thousands of events through the whole pipeline, Spark killed with -9 on the way: the totals are exact."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compat_tests.kbroker_server import KBroker
from spark_integration.pipeline import Settings, audit, events, kafka
from spark_integration.pipeline import replay as again
from spark_integration.pipeline import skew as skewed
from spark_integration.pipeline.catalogue import publish
from spark_integration.pipeline.fates import COUNTED, EVENTS
from spark_integration.pipeline.run import Pipeline
from spark_integration.pipeline.send import send_all
from spark_integration.pipeline.store import Store
from spark_integration.tests import proof
from spark_integration.tests.trial import QUICK_SQL, Trial, free_port

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = 4_000
pytestmark = pytest.mark.timeout(900)  # two JVMs and some twenty batches, on a machine that may be busy


@pytest.fixture(scope="module")
def trial(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    """Half of the events came when the driver was killed, a batch kept and not committed; another one finished."""
    directory = tmp_path_factory.mktemp("pipeline")
    for name, value in QUICK_SQL.items():
        spark.conf.set(name, value)
    with KBroker(directory / "broker", port=free_port()) as broker:
        settings = Settings(broker.bootstrap, str(directory / "warehouse"), per_batch=COUNT, attempts=3, backoff_ms=100)
        trial = Trial(directory, settings, broker, count=COUNT, seed=7)
        trial.prepare()
        trial.feed(COUNT // 2)
        with trial.driver() as driver:
            trial.wait(driver, trial.kept_but_not_committed)
        publish(settings, events.SOON)
        trial.feed(COUNT)
        pipeline = Pipeline(spark, settings, trial.folder).start()
        try:
            pipeline.drain()
        finally:
            pipeline.stop()
        yield trial
    for name in QUICK_SQL:
        spark.conf.unset(name)


def test_totals_are_exact_though_spark_was_killed(spark: SparkSession, trial: Trial) -> None:
    assert trial.folder.joinpath("progress.jsonl").read_text().count("started") >= 2
    proof.check(spark, trial, repaired=False)


def test_the_driver_prints_no_banner_of_spark(trial: Trial) -> None:
    said = trial.log.read_text()
    assert not re.search(r"WARN|log4j|log level|incubator", said), said


def test_ordinary_tools_see_no_lag_after_it_ended(trial: Trial) -> None:
    client = kafka.consumer(trial.settings, trial.settings.group)
    try:
        done = kafka.committed(client, kafka.partitions_of(client, trial.settings.input_topic))
        assert done == kafka.end_offsets(client, trial.settings.input_topic)
    finally:
        client.close()


def test_what_failed_was_retried_after_delays_that_grow(trial: Trial) -> None:
    assert trial.check_backoff() > 0


def test_good_records_are_counted_while_failed_ones_wait(trial: Trial) -> None:
    """The first batch had both: it counted the ones, whatever has become of the others."""
    fates = json.loads(Path(trial.settings.warehouse, "manifests/0.json").read_text())["fates"]
    assert fates["retry"] > 0
    assert fates["counted"] > COUNT // 3


def test_a_range_that_runs_again_by_offset_or_time_equals_the_original(
    spark: SparkSession, trial: Trial, tmp_path: Path
) -> None:
    """The range is what came before the driver was killed. What was live is not touched."""
    settings, warehouse = trial.settings, Path(trial.settings.warehouse)
    before = {path: path.stat().st_mtime_ns for path in warehouse.rglob("*")}
    events_there = Store(spark, settings).events().where(f"first_seen_ms <= {trial.last_fed_ms[0]}")
    original = _counted(events_there)
    assert len(original) > COUNT // 3
    ends = json.loads((warehouse / "checkpoint/offsets/0").read_text().splitlines()[-1])[settings.input_topic]
    by_offset = again.by_offset(settings, dict.fromkeys(map(int, ends), -2), {int(p): at for p, at in ends.items()})
    for name, bounds in (("offset", by_offset), ("time", again.by_time(trial.start_ms, trial.last_fed_ms[0] + 1))):
        again.replay(spark, settings, bounds, str(tmp_path / name))
        assert _counted(spark.read.schema(EVENTS).parquet(str(tmp_path / name / "events"))) == original
    assert {path: path.stat().st_mtime_ns for path in warehouse.rglob("*")} == before


def _counted(records: DataFrame) -> list[str]:
    return sorted(row["event_id"] for row in records.where(f"fate = '{COUNTED}'").select("event_id").collect())


def test_dead_letters_are_counted_after_repair_and_a_replay_equals_it_all(spark: SparkSession, trial: Trial) -> None:
    done = proof.repair(spark, trial)
    assert done.archived > 0
    assert done.sent + done.archived == trial.truth.fates_first["dead"]
    proof.check(spark, trial, repaired=True)
    proof.check_replay(spark, trial)
    proof.check_salted(spark, trial)


def test_salted_keys_cool_the_hottest_partition_and_give_the_same_totals(
    spark: SparkSession, trial: Trial, tmp_path: Path
) -> None:
    plain = skewed.report(spark, trial.settings)
    assert plain.keys[0][0] == "/page/0"
    assert plain.salts()["/page/0"] > 1
    settings = replace(trial.settings, name="salted")
    kafka.create_topics(settings)
    publish(settings, events.PAGES + events.SOON)
    truth = events.Truth(settings.window_ms)
    send_all(settings, events.stream(COUNT, 7, trial.start_ms, truth, skewed.salted(plain.salts())))
    assert skewed.report(spark, settings).hottest < plain.hottest
    again.replay(spark, settings, again.EVERYTHING, str(tmp_path))
    assert audit.parquet_totals(spark.read.parquet(str(tmp_path / "windows"))) == truth.first == trial.truth.first
