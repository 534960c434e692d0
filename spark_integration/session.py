"""A local SparkSession with the Kafka connector, quiet and quick to start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_integration.connector import connector_coordinates, connector_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(name: str = "kbroker", *, master: str = "local[2]", settings: dict[str, str] | None = None) -> SparkSession:
    """The session; `settings` are Spark's own and win over these."""
    from pyspark.sql import SparkSession

    jars = connector_jars()
    connector = (
        {"spark.jars.packages": connector_coordinates()}
        if jars is None
        else {"spark.jars": ",".join(str(jar) for jar in jars)}
    )
    chosen = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "ERROR",
        **connector,
        **(settings or {}),
    }
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
