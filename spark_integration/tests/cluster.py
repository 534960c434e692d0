"""A Spark standalone cluster on this machine: a master and its workers, each a process, from pyspark's own classes."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from compat_tests.until import until

_MASTER, _WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
_AT = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"
_APPLICATION = re.compile(r"Registered app (\S+) with ID")
START_SECONDS = 180.0


def applications(directory: Path) -> list[str]:
    """Returns the names of the applications that ran on the cluster of this directory."""
    return _APPLICATION.findall((directory / "master.log").read_text())


@contextmanager
def standalone(directory: Path, workers: int = 2) -> Iterator[str]:
    """The master's address, when all workers are there."""
    directory.mkdir(parents=True, exist_ok=True)
    running: list[subprocess.Popen[bytes]] = []

    def spark_class(log: Path, *command: str) -> None:
        home = Path(pyspark.__file__).parent
        environment = os.environ | {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        with open(log, "wb") as out:
            called = [str(home / "bin/spark-class"), *command, "--host", "127.0.0.1", "--webui-port", "0"]
            running.append(subprocess.Popen(called, env=environment, stdout=out, stderr=out))

    try:
        master = directory / "master.log"
        spark_class(master, _MASTER, "--port", "0")
        until(lambda: _AT.search(master.read_text()) is not None, START_SECONDS)
        found = _AT.search(master.read_text())
        assert found is not None
        logs = [directory / f"worker-{number}.log" for number in range(workers)]
        for log in logs:
            work = str(log.with_suffix(""))
            spark_class(log, _WORKER, "--cores", "1", "--memory", "1g", "--work-dir", work, found[1])
        until(lambda: all(_REGISTERED in log.read_text() for log in logs), START_SECONDS)
        yield found[1]
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait()
