"""Structured streaming over both brokers. Spark keeps its offsets in its checkpoint: no group is needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.client import ProduceOptions, TopicPlan
from compat_tests.confluent import ConfluentClient
from compat_tests.harness import Broker
from compat_tests.plugin import Compare
from compat_tests.scenarios.records import sample_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def _stream(spark: SparkSession, broker: Broker, topic: str) -> DataFrame:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    return reader.option("subscribe", topic).option("startingOffsets", "earliest").load()


def _run(frame: DataFrame, out: Path, checkpoint: Path) -> None:
    """All there is now, then the query ends."""
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start(str(out))
    assert query.awaitTermination(120)


def resumed_from_its_checkpoint(spark: SparkSession, broker: Broker, topic: str, place: Path) -> Any:
    counts = []
    with ConfluentClient(broker.bootstrap) as client:
        client.create_topic(topic, TopicPlan())
        for _ in range(2):
            client.produce(topic, sample_records(150), ProduceOptions(codec="zstd"))
            _run(_stream(spark, broker, topic).select("offset", "key", "value"), place / "out", place / "checkpoint")
            counts.append(spark.read.parquet(str(place / "out")).count())
    offsets = [row["offset"] for row in spark.read.parquet(str(place / "out")).orderBy("offset").collect()]
    assert offsets == list(range(300))
    return counts


def from_topic_to_topic(spark: SparkSession, broker: Broker, topic: str, place: Path) -> Any:
    sent = sample_records(100)
    with ConfluentClient(broker.bootstrap) as client:
        client.create_topic(topic, TopicPlan())
        client.create_topic(f"{topic}-out", TopicPlan())
        client.produce(topic, sent, ProduceOptions())
        writer = _stream(spark, broker, topic).select("key", "value").writeStream.format("kafka")
        writer = writer.option("kafka.bootstrap.servers", broker.bootstrap).option("topic", f"{topic}-out")
        query = writer.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        received = client.consume(f"{topic}-out", 0, 0, len(sent))
    assert [(r.key, r.value) for r in received] == [(r.key, r.value) for r in sent]
    return len(received)


STREAMING: dict[str, Callable[[Any, Broker, str, Path], Any]] = {
    "a stream resumed from its checkpoint": resumed_from_its_checkpoint,
    "a stream from topic to topic": from_topic_to_topic,
}


@pytest.mark.parametrize("scenario", STREAMING)
def test_a_stream_sees_no_difference(
    *,
    request: pytest.FixtureRequest,
    scenario: str,
    topic: str,
    comparing: Compare,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    request.node.compat_row = ("spark", scenario)
    comparing("spark", scenario, lambda broker: STREAMING[scenario](spark, broker, topic, tmp_path / broker.name))
