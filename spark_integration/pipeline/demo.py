"""`make pipeline`: generated events through the pipeline on a broker of its own, and one table of what happened."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from kbroker import Broker
from spark_integration.pipeline import report
from spark_integration.pipeline.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@click.command()
@click.option("--events", default=20_000, show_default=True)
@click.option("--master", help="Spark's master.  [default: local[2]]")
@click.option("--directory", type=click.Path(path_type=Path), default=Path("build/pipeline"), show_default=True)
def main(*, events: int, master: str | None, directory: Path) -> None:
    """Run every command of the pipeline once, in one Spark session; ends with 1 if a record or a total is off."""
    from spark_integration.pipeline.__main__ import opened

    place = directory.resolve() / time.strftime("%Y%m%d-%H%M%S")
    place.mkdir(parents=True)
    with Broker(data_dir=place / "broker") as broker:
        settings = Settings(broker.bootstrap_servers, str(place / "warehouse"))
        with closing(report.Report(Console())) as table:
            exact = show(table, settings, place, events, lambda: opened(master, {}))
    click.echo(f"The picture (progress.svg), the metrics and the data are in {place}")
    sys.exit(0 if exact else 1)


def show(
    table: report.Report, settings: Settings, place: Path, count: int, session: Callable[[], SparkSession]
) -> bool:
    """Runs the pipeline to its end and prints a row per step; returns whether the books and the totals are exact."""
    from spark_integration.pipeline import steps

    truth = steps.prepare(table, settings, count)
    (place / "truth.json").write_text(truth.to_json())
    with table.step("start Spark") as step:
        spark = session()
        step.meaning = f"Spark {spark.version} at {spark.sparkContext.master}"
    try:
        steps.run(table, settings, spark, place)
        exact = steps.audit(table, settings, spark, truth.first)
        steps.dead_letters(table, settings)
        steps.skew(table, settings, spark)
    finally:
        spark.stop()
    return exact


if __name__ == "__main__":
    main()
