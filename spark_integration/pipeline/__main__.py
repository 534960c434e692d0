"""`python -m spark_integration.pipeline …`: every part of the pipeline as a command."""

from __future__ import annotations

import importlib
import json
import socket
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from spark_integration.pipeline import report
from spark_integration.pipeline.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NUMBERS = {field.name: field.default for field in fields(Settings) if isinstance(field.default, int)}
console = Console()


def opened(master: str | None, conf: dict[str, str]) -> SparkSession:
    """Returns a session on this master; without one, on spark-submit's with its settings, or else on a local one."""
    from spark_integration.jvm import submitted_settings
    from spark_integration.session import session

    submitted = submitted_settings()
    chosen = master or submitted.get("spark.master", "local[2]")
    reachable = {"spark.driver.host": socket.getfqdn(), "spark.driver.bindAddress": "0.0.0.0"}
    settings = ({} if chosen.startswith("local") else reachable) | submitted | conf
    return session("pipeline", master=chosen, settings=settings)


class Context:
    def __init__(self, settings: Settings, master: str | None, conf: dict[str, str]) -> None:
        self.settings, self._master, self._conf = settings, master, conf

    @contextmanager
    def spark(self) -> Iterator[SparkSession]:
        running = opened(self._master, self._conf)
        try:
            yield running
        finally:
            running.stop()


def numbers(command: Any) -> Any:
    """An option for each number of the settings."""
    for name, default in reversed(_NUMBERS.items()):
        command = click.option(f"--{name.replace('_', '-')}", type=int, default=default, show_default=True)(command)
    return command


@click.group()
@click.option("--bootstrap", default="127.0.0.1:9092", show_default=True)
@click.option("--warehouse", default="pipeline-data", show_default=True, help="A directory that all executors reach.")
@click.option("--name", default="clicks", show_default=True, help="The input topic; other topics are named after it.")
@click.option("--master", help="Spark's master.  [default: spark-submit's, or local[2]]")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; repeatable.")
@numbers
@click.pass_context
def main(
    ctx: click.Context,
    /,
    *,
    bootstrap: str,
    warehouse: str,
    name: str,
    master: str | None,
    conf: tuple[str, ...],
    **sizes: int,
) -> None:
    """Click-stream events through Spark, exactly once."""
    place = warehouse if "://" in warehouse else str(Path(warehouse).resolve())
    pairs = dict(pair.split("=", 1) for pair in conf)
    ctx.obj = Context(Settings(bootstrap, place, name, **sizes), master, pairs)


@main.command()
@click.pass_obj
def topics(context: Context) -> None:
    """Create the topics of the pipeline."""
    from spark_integration.pipeline.kafka import create_topics

    create_topics(context.settings)


@main.command()
@click.argument("page", nargs=-1)
@click.option("--generated", type=click.Choice(["pages", "soon", "never"]), multiple=True)
@click.pass_obj
def pages(context: Context, page: tuple[str, ...], generated: tuple[str, ...]) -> None:
    """Tell the catalogue of pages."""
    from spark_integration.pipeline import events
    from spark_integration.pipeline.catalogue import publish

    made = {"pages": events.PAGES, "soon": events.SOON, "never": events.NEVER}
    publish(context.settings, [*page, *(one for name in generated for one in made[name])])


@main.command()
@click.option("--events", "count", default=100_000, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--start-ms", type=int, help="The end of the twenty minutes of traffic.  [default: now]")
@click.option("--truth", type=click.Path(path_type=Path), help="Where to write what must come out.")
@click.option("--salt", "salts", multiple=True, metavar="PAGE=N", help="Cut a hot page's key into N; repeatable.")
@click.pass_obj
def generate(
    context: Context, *, count: int, seed: int, start_ms: int | None, truth: Path | None, salts: tuple[str, ...]
) -> None:
    """Put generated events into the input topic."""
    from spark_integration.pipeline import events, kafka, skew
    from spark_integration.pipeline.send import send_all

    known = events.Truth(context.settings.window_ms)
    cut = {page: int(parts) for page, _, parts in (pair.rpartition("=") for pair in salts)}
    made = events.stream(count, seed, start_ms or kafka.now_ms(), known, skew.salted(cut))
    with report.bars(console) as progress:
        task = progress.add_task("sent", total=count)
        sent = send_all(context.settings, made, lambda more: progress.advance(task, more))
    console.print(f"{sent:,} events sent to {context.settings.input_topic}", highlight=False)
    if truth is not None:
        truth.write_text(known.to_json())


@main.command()
@click.option("--drain", is_flag=True, help="End when nothing is left to do.")
@click.option("--folder", type=click.Path(path_type=Path), default=Path("pipeline-run"), show_default=True)
@click.pass_obj
def run(context: Context, drain: bool, folder: Path) -> None:
    """Run the pipeline; metrics and the picture go to the folder."""
    from spark_integration.pipeline.run import Pipeline

    with context.spark() as spark, report.bars(console) as progress:
        task = progress.add_task("offsets")
        pipeline = Pipeline(spark, context.settings, folder).start()
        try:
            (pipeline.drain if drain else pipeline.watch)(
                lambda done, end: progress.update(task, completed=done, total=end)
            )
        except KeyboardInterrupt:
            console.print("stopped; the next run goes on here")
        finally:
            pipeline.stop()


@main.command()
@click.option("--truth", type=click.Path(exists=True, path_type=Path), help="Compare the totals with these.")
@click.option("--repaired", is_flag=True, help="With what they are after the repair of the dead letters.")
@click.pass_obj
def audit(context: Context, truth: Path | None, repaired: bool) -> None:
    """Print the fate of every record; ends with 1 if one is lost, counted twice, or a total is off."""
    from spark_integration.pipeline import steps
    from spark_integration.pipeline.events import Truth

    expected = None
    if truth is not None:
        known = Truth.from_json(truth.read_text())
        expected = known.repaired if repaired else known.first
    with context.spark() as spark, closing(report.Report(console)) as table:
        exact = steps.audit(table, context.settings, spark, expected)
    sys.exit(0 if exact else 1)


@main.command()
@click.option("--top", default=10, show_default=True)
@click.pass_obj
def skew(context: Context, top: int) -> None:
    """Which keys make which partition hot, and into how many parts to cut them."""
    from spark_integration.pipeline import skew as skewed

    with context.spark() as spark:
        found = skewed.report(spark, context.settings, top)
    console.print(f"{found.records:,} records; {report.skew_summary(found)}", highlight=False)
    table = Table("partition", "share of all records")
    for number, share in found.partitions.items():
        table.add_row(str(number), f"{share:.1%}")
    console.print(table)
    keys, salts = Table("key", "partition", "share of all records", "salt"), found.salts()
    for key, partition, share in found.keys:
        keys.add_row(key, str(partition), f"{share:.1%}", str(salts.get(key, "")))
    console.print(keys)
    console.print(
        "partition: of most of the key's records. salt: into how many keys (key:0, key:1, …) to cut a hot key."
    )


@main.command()
@click.option("--out", required=True, help="The output's own directory.")
@click.option("--from-offsets", metavar="JSON", help='{"partition": first offset}')
@click.option("--to-offsets", metavar="JSON", help='{"partition": first offset not wanted}')
@click.option("--from-ms", type=int)
@click.option("--to-ms", type=int)
@click.pass_obj
def replay(
    context: Context,
    *,
    out: str,
    from_offsets: str | None,
    to_offsets: str | None,
    from_ms: int | None,
    to_ms: int | None,
) -> None:
    """Run a range again, by offsets or by time of arrival, into an output of its own."""
    from spark_integration.pipeline import replay as again

    if from_ms is not None and to_ms is not None:
        bounds = again.by_time(from_ms, to_ms)
    elif from_offsets is not None and to_offsets is not None:
        start, end = ({int(p): at for p, at in json.loads(text).items()} for text in (from_offsets, to_offsets))
        bounds = again.by_offset(context.settings, start, end)
    else:
        bounds = again.EVERYTHING
    with context.spark() as spark:
        place = out if "://" in out else str(Path(out).resolve())
        console.print(again.replay(spark, context.settings, bounds, place))


@main.command("dead-letters")
@click.option("--replay", "again", is_flag=True, help="Take them all back to the input.")
@click.option("--repair", metavar="MODULE:FUNCTION", help="bytes -> bytes, or None for what goes to the archive.")
@click.option("--archive", type=click.Path(path_type=Path), default=Path("dead-letters.jsonl"), show_default=True)
@click.pass_obj
def dead_letters(context: Context, again: bool, repair: str | None, archive: Path) -> None:
    """Show the dead letters by their error, or replay them."""
    from spark_integration.pipeline import dead_letters as dead
    from spark_integration.pipeline import steps

    if again:
        module, _, function = (repair or "").partition(":")
        mend = getattr(importlib.import_module(module), function) if repair else None
        done = dead.replay(context.settings, archive, mend)
        console.print(f"{done.sent:,} back to the input, {done.archived:,} to {archive}")
        return
    with closing(report.Report(console)) as table:
        steps.dead_letters(table, context.settings)


@main.command()
def jars() -> None:
    """The connector's jars, for spark-submit --jars."""
    from spark_integration.connector import connector_jars

    click.echo(",".join(str(jar) for jar in connector_jars() or ()))


if __name__ == "__main__":
    main()
