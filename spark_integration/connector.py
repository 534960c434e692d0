"""Spark's Kafka connector, of the version of the installed pyspark, fetched once by Maven coordinates.

Spark can fetch it itself (`spark.jars.packages`), at the price of a resolution on every start and of a resolver that
knows nothing of the user's Maven settings. So Maven fetches, into a cache; without Maven, Spark's own way is taken.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from importlib.metadata import version as installed_version
from pathlib import Path

_POM = Path(__file__).with_name("pom.xml")
_PROVIDED = ("scala-library", "slf4j-api", "spark-tags", "hadoop-client", "snappy-java", "lz4-java", "zstd-jni")


class ConnectorError(Exception):
    """The connector could not be brought."""


def spark_version() -> str:
    return installed_version("pyspark")


def connector_versions() -> list[str]:
    """Spark's own version, then the first release of its line: a repository may lag behind on patch releases, and
    within a line the connector's inner interfaces do not change."""
    exact = spark_version()
    first = ".".join([*exact.split(".")[:2], "0"])
    return list(dict.fromkeys((exact, first)))


def connector_coordinates(version: str | None = None) -> str:
    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version or spark_version()}"


def _cache() -> Path:
    xdg = os.environ.get("XDG_CACHE_HOME")
    return Path(xdg) / "kbroker" if xdg else Path(__file__).resolve().parents[1] / ".cache"


def connector_jars() -> list[Path] | None:
    """The connector's jars without those that pyspark has already; None when there is no Maven to fetch them."""
    target = _cache() / f"spark-kafka-{spark_version()}"
    if not (target / ".complete").exists():
        maven = shutil.which("mvn")
        if maven is None:
            return None
        _fetch(maven, target)
    return sorted(jar for jar in target.glob("*.jar") if not jar.name.startswith(_PROVIDED))


def _fetch(maven: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.parent / f"{target.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of two sessions that start at once, one fetches
        if (target / ".complete").exists():
            return
        failures = []
        for version in connector_versions():
            shutil.rmtree(target, ignore_errors=True)
            command = [maven, "-q", "-B", "-f", str(_POM), "dependency:copy-dependencies", "-DincludeScope=runtime"]
            command += [f"-DoutputDirectory={target}", f"-Dspark.version={version}"]
            fetched = subprocess.run(command, capture_output=True, text=True, check=False)
            if fetched.returncode == 0:
                (target / ".complete").write_text(version)
                return
            failures.append(f"{connector_coordinates(version)}: {fetched.stdout.strip()[:300]}")
        raise ConnectorError("mvn could not bring " + "; ".join(failures))
