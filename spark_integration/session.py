"""A local SparkSession with the Kafka connector, quiet and quick to start; and, in the same call, a broker for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kbroker import Broker
from spark_integration import jvm
from spark_integration.connector import connector_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# With one of these the caller brings the connector himself, and nothing is fetched.
_BROUGHT = ("spark.jars", "spark.jars.packages")


def session(
    name: str = "kbroker", *, master: str = "local[2]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Returns a session that logs errors only; `settings` are Spark's own and take precedence over the defaults here.

    A session that is already running in this process is returned as it is.
    """
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    given = dict(settings or {})
    brought = any(key in given for key in _BROUGHT)
    chosen = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        **jvm.quiet_settings(),
        **({} if brought else {"spark.jars": ",".join(str(jar) for jar in connector_jars())}),
        **given,
    }
    conf = SparkConf().setAppName(name).setMaster(master).setAll(list(chosen.items()))
    jvm.start(conf)
    return SparkSession.builder.config(conf=conf).getOrCreate()


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
