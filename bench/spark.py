"""Spark reads a topic as a batch, from kbroker and Apache Kafka in turn: rows a second, and what they cost the broker.

    make race-spark            ROUNDS=… (5)

One local session with two threads reads four partitions from end to end and adds up the lengths of the values, so that
every record is looked at. It is by far the slowest of the three: read the broker's CPU before rows per second.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from bench import report
from bench.bars import SPARK_READS
from bench.outcome import Race
from bench.race import APACHE, MILLION, RESULTS, interleave, rows_of
from bench.servers import SETTINGS, ApacheServer, KbrokerServer, Server
from bench.works.measure import Figures, Meter, Work, fill, make_topic
from spark_integration import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 4
WARM_ROUNDS = 2

TEXT = """\
## Spark

Written by `make race-spark`, last for commit {commit} at {at}. Medians of {rounds} rounds, in turn.

{table}
- A session `local[{threads}]` of Spark {spark} reads {partitions} partitions from the first record to the last and adds
  up the lengths of the values. **Rows** are a million, sent before in batches of 64 KiB without compression, and lie in
  the page cache. {warm} rounds before those that count warm Spark and Apache Kafka.
- **CPU** is the broker's. The session takes both cores of the machine for itself, and the broker has to come between:
  the less it needs, the more rows a second.
"""


def read(spark: SparkSession, record_bytes: int, records: int) -> Work:
    """The topic is filled once; every round reads it from its first record."""
    filled: dict[int, str] = {}

    def work(server: Server) -> Figures:
        if server.pid not in filled:
            filled[server.pid] = make_topic(server, PARTITIONS)
            for partition in range(PARTITIONS):
                fill(server, filled[server.pid], record_bytes, records // PARTITIONS, partition)
            os.sync()  # else the disk would write it back in somebody's turn
        source = spark.read.format("kafka").option("kafka.bootstrap.servers", server.bootstrap)
        frame = source.option("subscribe", filled[server.pid]).load()
        with Meter(server) as meter:
            ((rows, size),) = frame.selectExpr("count(*)", "sum(length(value))").collect()
        assert rows >= records, f"{rows:,} of {records:,} rows"
        assert size >= rows * record_bytes * 0.9, f"{size:,} bytes in {rows:,} rows"
        return {"rows/s": rows / meter.wall, "CPU s per million": meter.cpu / rows * MILLION}

    return work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=MILLION, help="with another number nothing is written")
    parser.add_argument("--threads", type=int, default=2, help="of Spark; with another number nothing is written")
    asked = parser.parse_args()
    spark = session("race", master=f"local[{asked.threads}]")
    servers: list[Server] = []
    print(report.HEADING)
    rows = []
    try:
        servers += [KbrokerServer(config=SETTINGS)]
        servers += [ApacheServer()]
        for name, record_bytes in SPARK_READS.items():
            work = read(spark, record_bytes, asked.records)
            turns: dict[str, Callable[[], Figures]] = {
                who: partial(work, server) for who, server in zip(("kbroker", APACHE), servers, strict=True)
            }
            interleave(turns, WARM_ROUNDS)
            seen = interleave(turns, asked.rounds)
            for row in rows_of(name, APACHE, seen["kbroker"], seen[APACHE]):
                print(report.line(row), flush=True)
                rows.append(row)
        version = spark.version
    finally:
        spark.stop()
        for server in servers:
            server.stop()
    if asked.records == MILLION and asked.threads == 2:
        race = Race.of(rows, rounds=asked.rounds, warm_minutes=0)
        print(f"kept in {race.keep(RESULTS, 'spark')}")
        report.put_section("spark", section(race, version, asked.threads))


def section(race: Race, version: str, threads: int) -> str:
    return TEXT.format(
        commit=race.commit,
        at=race.at,
        rounds=race.rounds,
        table=report.table(APACHE, race.rows),
        threads=threads,
        spark=version,
        partitions=PARTITIONS,
        warm=WARM_ROUNDS,
    )


if __name__ == "__main__":
    main()
