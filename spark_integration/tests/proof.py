"""`make pipeline-proof`: everything that is claimed, on many events, while Spark and the broker are killed.

The driver is killed with -9 in mid-write, again when a batch was kept and not yet committed, and once more after the
broker was killed and started again under it; the fourth one finishes. Then the dead letters are repaired and replayed,
the whole is replayed into another output, and the same events go through a standalone cluster.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from compat_tests.kbroker_server import KBroker
from spark_integration.pipeline import audit, dead_letters, events, replay, skew, windows
from spark_integration.pipeline.catalogue import publish
from spark_integration.pipeline.fates import COUNTED
from spark_integration.pipeline.run import Pipeline
from spark_integration.pipeline.settings import Settings
from spark_integration.pipeline.store import Store
from spark_integration.session import session
from spark_integration.tests.cluster import applications, standalone
from spark_integration.tests.trial import QUICK, Trial, free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

console = Console()


class Figures:
    """What was shown, as it is shown; kept as JSON in the end."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}
        self._start = time.monotonic()

    def tell(self, name: str, value: object) -> None:
        self.kept[name] = value
        console.print(f"{time.monotonic() - self._start:6.0f} s  {name}: {value}", highlight=False, soft_wrap=True)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        with console.status(name):
            yield
        console.print(f"{time.monotonic() - self._start:6.0f} s  {name}", highlight=False)


def live(trial: Trial, figures: Figures) -> None:
    """Three kills of Spark and one of the broker, while events come."""
    share = trial.count // 4
    trial.feed(share)
    with trial.driver() as driver, figures.step("Spark killed with -9 in mid-write"):
        trial.wait(driver, lambda: trial.kept() >= 1 and trial.in_mid_write())
    trial.feed(share)
    with trial.driver() as driver, figures.step("Spark killed with -9, a batch kept and not committed"):
        before = trial.kept()
        trial.wait(driver, lambda: trial.kept() > before and trial.kept_but_not_committed())
    trial.feed(share)
    with trial.driver() as driver:
        with figures.step("the broker killed with -9, and started again"):
            before = trial.kept()
            trial.wait(driver, lambda: trial.kept() > before and trial.in_mid_write())
            trial.restart_broker()
        with figures.step("Spark went on; killed with -9"):
            before = trial.kept()
            trial.wait(driver, lambda: trial.kept() > before)
    trial.feed(trial.count)
    with trial.driver() as driver, figures.step("nothing left to do"):
        trial.finish(driver)


def check(spark: SparkSession, trial: Trial, *, repaired: bool) -> dict[str, int]:
    """Every record has one fate, and all totals are exact, in Parquet and in the topic."""
    truth = trial.truth
    totals, fates = (truth.repaired, truth.fates_repaired) if repaired else (truth.first, truth.fates_first)
    found = audit.balance(spark, trial.settings)
    assert found.exact, found
    assert found.valid + found.retried + found.dead == found.input == trial.count, found
    assert (found.duplicate, found.late, found.dead) == (fates["duplicate"], fates["late"], fates["dead"]), (
        found,
        fates,
    )
    assert found.counted + found.retried == fates["counted"] + fates["retried"], (found, fates)  # as soon as it comes
    assert found.retried > 0, found
    assert audit.parquet_totals(Store(spark, trial.settings).totals()) == totals
    assert audit.topic_totals(trial.settings) == totals
    return asdict(found)


def repair(spark: SparkSession, trial: Trial) -> dead_letters.Replayed:
    """The cause is gone: the catalogue knows the pages, a repair the bugs. The dead letters go through once more."""
    publish(trial.settings, events.NEVER)
    done = dead_letters.replay(trial.settings, trial.folder / "dead-letters.jsonl", events.repair)
    assert dead_letters.waiting(trial.settings) == 0
    pipeline = Pipeline(spark, trial.settings, trial.folder).start()
    try:
        pipeline.drain()
    finally:
        pipeline.stop()
    assert dead_letters.waiting(trial.settings) == 0
    return done


def check_replay(spark: SparkSession, trial: Trial) -> None:
    out = f"{trial.settings.warehouse}-again"
    replay.replay(spark, trial.settings, replay.EVERYTHING, out)
    assert audit.parquet_totals(spark.read.parquet(f"{out}/windows")) == trial.truth.repaired


def check_salted(spark: SparkSession, trial: Trial) -> None:
    counted = Store(spark, trial.settings).events().where(f"fate = '{COUNTED}'")
    salted = windows.totals(counted, replace(trial.settings, salt=8))
    assert audit.parquet_totals(salted) == trial.truth.repaired


def on_one_machine(trial: Trial, figures: Figures) -> None:
    trial.prepare()
    live(trial, figures)
    spark = session("proof", settings=QUICK)
    try:
        figures.tell("balance", check(spark, trial, repaired=False))
        figures.tell("totals, exact in Parquet and in the topic", len(trial.truth.first))
        figures.tell("records that were retried, each delay at least doubled", trial.check_backoff())
        figures.tell("dead letters", dead_letters.waiting(trial.settings))
        figures.tell("dead letters replayed", asdict(repair(spark, trial)))
        figures.tell("balance after the repair", check(spark, trial, repaired=True))
        with figures.step("a replay equals the original"):
            check_replay(spark, trial)
        with figures.step("salted totals equal the original"):
            check_salted(spark, trial)
        found = skew.report(spark, trial.settings)
        figures.tell("the fullest partition, beside a fair share", round(found.hottest, 2))
        figures.tell("salts", found.salts())
    finally:
        spark.stop()


def on_a_cluster(trial: Trial, figures: Figures, directory: Path) -> None:
    trial.prepare()
    trial.feed(trial.count)
    with figures.step("submitted to a standalone cluster of a master and two workers"), standalone(directory) as master:
        conf = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": QUICK["spark.driver.extraJavaOptions"],
        }
        with trial.driver(conf, master) as driver:
            trial.finish(driver)
    assert len(applications(directory)) == 1, "the driver did not run on the cluster"
    spark = session("proof", settings=QUICK)
    try:
        figures.tell("balance on the cluster", check(spark, trial, repaired=False))
    finally:
        spark.stop()


@click.command()
@click.option("--events", "count", default=100_000, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--per-batch", default=10_000, show_default=True)
@click.option("--directory", type=click.Path(path_type=Path), default=Path("build/pipeline-proof"), show_default=True)
@click.option("--only", type=click.Choice(["local", "cluster"]), help="One of the two parts.")
def main(*, count: int, seed: int, per_batch: int, directory: Path, only: str | None) -> None:
    """Prove the pipeline."""
    place = directory.resolve() / time.strftime("%Y%m%d-%H%M%S")
    place.mkdir(parents=True)
    figures = Figures()
    with KBroker(place / "broker", port=free_port()) as broker:
        for name in ("local", "cluster"):
            if only not in (None, name):
                continue
            settings = Settings(broker.bootstrap, str(place / name / "warehouse"), name, per_batch=per_batch)
            (place / name).mkdir()
            trial = Trial(place / name, settings, broker, count=count, seed=seed)
            if name == "local":
                on_one_machine(trial, figures)
            else:
                on_a_cluster(trial, figures, place / "spark")
    (place / "figures.json").write_text(json.dumps(figures.kept, indent=2))
    console.print(f"all shown; figures and pictures are in {place}")


if __name__ == "__main__":
    main()
