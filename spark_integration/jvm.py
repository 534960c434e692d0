"""Starts the JVM of a local session without Spark's banner: what is left on its stderr are errors.

Spark reports its own log profile, the hostname and missing native libraries before a setting of the session can lower
the log level, so the level is in a log4j2 file that the JVM reads first. Java reports the incubator module that Spark
asks for before log4j2 exists, and has no option against it: that line is dropped from the JVM's stderr.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from pyspark import SparkConf

LOG_FILE = Path(__file__).with_name("log4j2.properties")
BANNER = b"WARNING: Using incubator modules: jdk.incubator.vector"
_DRAIN_SECONDS = 10.0


def quiet_settings() -> dict[str, str]:
    """Returns the settings that make Spark log errors only; a log4j2.properties of the user's own is left in force."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started the JVM
        return {"spark.log.level": "ERROR"}
    if _is_running() or _configured():
        return {}
    # Prepended to spark.driver.extraJavaOptions, which stays the caller's.
    return {"spark.driver.defaultJavaOptions": f"-Dlog4j2.configurationFile={LOG_FILE.as_uri()}"}


def submitted_settings() -> dict[str, str]:
    """Returns the settings that spark-submit was called with, its master among them; empty if it was not used."""
    from pyspark import SparkConf, SparkContext

    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()  # a SparkConf is empty until the process is connected to its JVM
    return dict(SparkConf().getAll())


def start(conf: SparkConf) -> None:
    """Starts the JVM that the next SparkContext of this process uses; without effect if there is one already.

    Raises PySparkRuntimeError if the JVM ends at once; its reason is on stderr by then.
    """
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    if _is_running():
        return
    reading, writing = os.pipe()
    copier = threading.Thread(target=copy_errors, args=(os.fdopen(reading, "rb"), 2), name="spark-stderr", daemon=True)
    copier.start()
    try:
        gateway = launch_gateway(conf, {"stderr": writing})  # type: ignore[no-untyped-call]
    except BaseException:
        os.close(writing)
        copier.join(_DRAIN_SECONDS)
        raise
    os.close(writing)
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def copy_errors(lines: BinaryIO, to: int) -> None:
    """Copies the JVM's stderr to a descriptor, line by line, until it ends; drops Java's banner."""
    with lines:
        for line in without_banner(lines):
            os.write(to, line)


def without_banner(lines: Iterable[bytes]) -> Iterable[bytes]:
    """Returns the lines other than Java's notice of the incubator module that Spark uses."""
    return (line for line in lines if line.strip() != BANNER)


def _is_running() -> bool:
    """Returns whether this process already has a JVM, of an earlier session or of spark-submit."""
    from pyspark import SparkContext

    return SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ


def _configured() -> bool:
    """Returns whether Spark finds a log4j2.properties in its configuration directory."""
    directories = (os.environ.get("SPARK_CONF_DIR"), os.path.join(os.environ.get("SPARK_HOME", ""), "conf"))
    return any((Path(one) / "log4j2.properties").exists() for one in directories if one)
