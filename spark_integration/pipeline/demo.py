"""`make pipeline`: generated events through the pipeline, on a broker of its own, to the last one; then its books."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import click

from kbroker import Broker


@click.command()
@click.option("--events", default=20_000, show_default=True)
@click.option("--master", help="Spark's master.  [default: local[2]]")
@click.option("--directory", type=click.Path(path_type=Path), default=Path("build/pipeline"), show_default=True)
def main(*, events: int, master: str | None, directory: Path) -> None:
    """The commands one after the other, as one would type them."""
    place = directory.resolve() / time.strftime("%Y%m%d-%H%M%S")
    place.mkdir(parents=True)
    with Broker(data_dir=place / "broker") as broker:
        common = ["--bootstrap", broker.bootstrap_servers, "--warehouse", str(place / "warehouse")]
        common += ["--master", master] if master else []
        for command in (
            ["topics"],
            ["pages", "--generated", "pages", "--generated", "soon"],
            ["generate", "--events", str(events), "--truth", str(place / "truth.json")],
            ["run", "--drain", "--folder", str(place)],
            ["audit", "--truth", str(place / "truth.json")],
            ["dead-letters"],
            ["skew"],
        ):
            click.secho(f"$ pipeline {' '.join(command)}", bold=True)
            subprocess.run([sys.executable, "-m", "spark_integration.pipeline", *common, *command], check=True)
    click.echo(f"picture, metrics and data are in {place}")


if __name__ == "__main__":
    main()
