"""A pipeline on trial: its broker, its traffic with known totals, and drivers that are killed at chosen moments."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from itertools import islice, pairwise
from pathlib import Path
from typing import IO

import pyspark
from confluent_kafka import TopicPartition

from compat_tests.kbroker_server import KBroker
from compat_tests.until import until
from spark_integration.connector import connector_jars
from spark_integration.pipeline import events, kafka
from spark_integration.pipeline.catalogue import publish
from spark_integration.pipeline.ingest import ATTEMPT, DUE, ORIGIN
from spark_integration.pipeline.retry import delay_ms
from spark_integration.pipeline.send import send_all
from spark_integration.pipeline.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
# A run of a minute or two is over before the JVM's best compiler has paid for itself, and Spark's own likewise.
QUICK_SQL = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
QUICK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    **QUICK_SQL,
}
LIMIT_SECONDS = 900.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def arguments(settings: Settings) -> list[str]:
    """The command line that says the same."""
    given = {field.name: getattr(settings, field.name) for field in fields(settings) if field.type in ("str", "int")}
    return [part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", str(value))]


class Driver:
    """`run --drain` in a process group of its own, JVM and all: local, or submitted to a master."""

    def __init__(
        self, settings: Settings, folder: Path, log: IO[str], *, conf: dict[str, str], master: str | None
    ) -> None:
        told = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
        if master is None:
            command = [sys.executable, "-m", "spark_integration.pipeline", *told]
        else:
            home, jars = Path(pyspark.__file__).parent, ",".join(str(jar) for jar in connector_jars() or ())
            command = [str(home / "bin/spark-submit"), "--master", master, "--jars", jars, *told]
            command.append(str(ROOT / "spark_integration/submit.py"))
        command += [*arguments(settings), "run", "--drain", "--folder", str(folder)]
        environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
        )

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def code(self) -> int | None:
        return self._process.returncode


class Trial:
    """`warehouse` must be local: the moments of the kills are read off its files."""

    def __init__(self, directory: Path, settings: Settings, broker: KBroker, *, count: int, seed: int) -> None:
        self.settings, self.broker, self.folder = settings, broker, directory / "run"
        self.count, self.truth = count, events.Truth(settings.window_ms)
        self.start_ms = kafka.now_ms()
        self.last_fed_ms: list[int] = []  # by the clock that the broker has too: when each feed was over
        self.log = directory / "driver.log"
        self._warehouse = Path(settings.warehouse)
        self._traffic = events.stream(count, seed, self.start_ms, self.truth)
        self._consumer = kafka.consumer(settings, f"{settings.name}.trial")
        self._soon = False

    def prepare(self) -> None:
        kafka.create_topics(self.settings)
        publish(self.settings, events.PAGES)

    def feed(self, count: int) -> int:
        """So many more of the events."""
        sent = send_all(self.settings, islice(self._traffic, count))
        self.last_fed_ms.append(kafka.now_ms())
        return sent

    @contextmanager
    def driver(self, conf: dict[str, str] | None = None, master: str | None = None) -> Iterator[Driver]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.log, "a") as log:
            driver = Driver(self.settings, self.folder, log, conf=QUICK | (conf or {}), master=master)
            try:
                yield driver
            finally:
                if not driver.ended():
                    driver.kill()

    def wait(self, driver: Driver, moment: Callable[[], bool]) -> None:
        """Until the moment has come. The catalogue learns of the pages that come soon when their first events have
        failed twice."""

        def come() -> bool:
            self._tell_soon()
            if moment():
                return True
            if driver.ended():
                raise AssertionError(f"the driver ended with {driver.code}:\n{self.log.read_text()[-3000:]}")
            return False

        until(come, LIMIT_SECONDS)

    def finish(self, driver: Driver) -> None:
        """Until there is nothing left to do."""
        self.wait(driver, lambda: driver.ended() and driver.code == 0)

    def kept(self) -> int:
        """How many batches count."""
        return len(list(self._warehouse.glob("manifests/*.json")))

    def in_mid_write(self) -> bool:
        """A batch's Parquet is being written, its manifest is not there."""
        newest = self._newest("events/batch=*")
        return newest >= 0 and not (self._warehouse / f"manifests/{newest}.json").exists()

    def kept_but_not_committed(self) -> bool:
        """A batch counts, Spark does not know it yet: it will run again."""
        newest = self._newest("manifests/*.json")
        return newest >= 0 and not (self._warehouse / f"checkpoint/commits/{newest}").exists()

    def restart_broker(self) -> None:
        """Killed, and there again."""
        self.broker.kill()
        self.broker.start()

    def retried(self) -> dict[str, list[kafka.Record]]:
        """What went through the retry topic, by origin, in the order of the attempts."""
        found: dict[str, list[kafka.Record]] = defaultdict(list)
        for record in kafka.read_all(self.settings, self.settings.retry_topic):
            found[record.headers[ORIGIN]].append(record)
        return {origin: sorted(records, key=attempt_of) for origin, records in found.items()}

    def check_backoff(self) -> int:
        """Every next try is due at least its own, doubled, delay after the one before; how many were tried again."""
        retried = self.retried()
        for records in retried.values():
            assert [attempt_of(record) for record in records] == list(range(1, len(records) + 1)), records
            for before, after in pairwise(records):
                least = delay_ms(attempt_of(after), self.settings)
                assert int(after.headers[DUE]) - int(before.headers[DUE]) >= least, (before, after)
        return len(retried)

    def _tell_soon(self) -> None:
        if self._soon or not self.broker.alive():
            return
        twice = TopicPartition(self.settings.retry_topic, 1)
        _, failed_twice = kafka.patiently(self.settings, lambda: kafka.bounds(self._consumer, twice))
        if failed_twice:
            publish(self.settings, events.SOON)
            self._soon = True

    def _newest(self, pattern: str) -> int:
        names = (path.name.removeprefix("batch=").removesuffix(".json") for path in self._warehouse.glob(pattern))
        return max((int(name) for name in names if name.isdigit()), default=-1)


def attempt_of(record: kafka.Record) -> int:
    return int(record.headers[ATTEMPT])
