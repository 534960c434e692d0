"""A local SparkSession with the Kafka connector, quiet and quick to start; and, in the same call, a broker for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kbroker import Broker
from spark_integration.connector import connector_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# With one of these the caller brings the connector himself, and nothing is fetched.
_BROUGHT = ("spark.jars", "spark.jars.packages")


def session(
    name: str = "kbroker", *, master: str = "local[2]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The session; `settings` are Spark's own and win over these. One that is running already is taken as it is."""
    from pyspark.sql import SparkSession

    given = dict(settings or {})
    brought = any(key in given for key in _BROUGHT)
    chosen = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "ERROR",
        **({} if brought else {"spark.jars": ",".join(str(jar) for jar in connector_jars())}),
        **given,
    }
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


@contextmanager
def local(
    name: str = "kbroker",
    *,
    master: str = "local[2]",
    settings: Mapping[str, str] | None = None,
    config: Mapping[str, object] | None = None,
) -> Iterator[tuple[SparkSession, Broker]]:
    """A broker in this process and a session beside it; both are gone afterwards, topics included.

    >>> with local() as (spark, broker):
    ...     spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap_servers)

    `config` takes Kafka's settings for the broker. A session that was running before goes on running.
    """
    from pyspark.sql import SparkSession

    with Broker(config=config) as broker:
        was_running = SparkSession.getActiveSession() is not None
        spark = session(name, master=master, settings=settings)
        try:
            yield spark, broker
        finally:
            if not was_running:
                spark.stop()
