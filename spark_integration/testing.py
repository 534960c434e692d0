"""For tests of Spark jobs: the fixtures `spark` and `kafka`, and DataFrames into topics and out of them.

In a conftest.py or a test module: pytest_plugins = ["spark_integration.testing"]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

from kbroker import Broker
from spark_integration.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


# A JVM that lives for a test run: what its second compiler would gain is less than what it takes.
_QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session")
def spark_settings() -> Mapping[str, str]:
    """Settings for the session of all tests; define a fixture of this name to have others."""
    return {}


@pytest.fixture(scope="session")
def spark(spark_settings: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One local session for the whole run: a start takes seconds."""
    own = {
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.driver.extraJavaOptions": _QUICK_JVM,
    }
    running = session("tests", settings={**own, **spark_settings})
    yield running
    running.stop()


@pytest.fixture
def kafka() -> Iterator[Broker]:
    """A broker for one test, without topics: a start takes milliseconds."""
    with Broker() as broker:
        yield broker


def to_topic(frame: DataFrame, broker: Broker | str, topic: str, *, key: str | None = None, **options: str) -> None:
    """Writes a frame into a topic, each row as a JSON object; `key` is the column whose text becomes the record's key.

    A frame that has a column `value` goes as it is, with whatever else of Kafka's columns it has (key, headers,
    partition, topic). `options` are those of Spark's sink, `broker` may be bootstrap servers.
    """
    from pyspark.sql import functions as sql

    records = frame
    if "value" not in frame.columns:
        value = sql.to_json(sql.struct(*frame.columns)).alias("value")
        records = frame.select(value) if key is None else frame.select(sql.col(key).cast("string").alias("key"), value)
    sink = records.write.format("kafka").option("kafka.bootstrap.servers", _servers(broker)).option("topic", topic)
    sink.options(**options).save()


def from_topic(
    spark: SparkSession, broker: Broker | str, topic: str, *, schema: StructType | str | None = None, **options: str
) -> DataFrame:
    """All that is in a topic now. With a schema: the columns of its JSON objects; without: Kafka's own, with headers.

    `options` are those of Spark's source: `startingOffsets`, `kafka.isolation.level` and so on.
    """
    from pyspark.sql import functions as sql

    source = spark.read.format("kafka").option("kafka.bootstrap.servers", _servers(broker)).option("subscribe", topic)
    records = source.option("includeHeaders", "true").options(**options).load()
    if schema is None:
        return records
    return records.select(sql.from_json(records.value.cast("string"), schema).alias("row")).select("row.*")


def _servers(broker: Broker | str) -> str:
    return broker if isinstance(broker, str) else broker.bootstrap_servers
