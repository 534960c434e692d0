"""Where a scenario plays: a session, one broker, a topic name and a folder of its own; and what scenarios often do."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.client import WAIT_SECONDS, Codec, ProduceOptions, Record, TopicPlan
from compat_tests.confluent import ConfluentClient
from compat_tests.harness import Broker
from compat_tests.scenarios.records import FIRST_MS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_QUERY_SECONDS = 240  # an upper bound; a query ends when it has read what there is
_RECORD = ("partition", "offset", "key", "value")

Outcome = Any
Scenario = Callable[["Stage"], Outcome]
SCENARIOS: dict[str, Scenario] = {}


def scenario(run: Scenario) -> Scenario:
    """Registers a function under its name. It asserts what must hold on any broker and returns JSON values."""
    SCENARIOS[run.__name__.replace("_", " ")] = run
    return run


def numbered(numbers: Iterable[int], partition: int = 0) -> list[Record]:
    """Record n: key k0 to k4, value n, n seconds after a fixed moment."""
    return [
        Record(key=b"k%d" % (n % 5), value=b"%d" % n, timestamp_ms=FIRST_MS + n * 1000, partition=partition)
        for n in numbers
    ]


@dataclass(frozen=True)
class Stage:
    spark: SparkSession
    broker: Broker
    topic: str
    place: Path

    @property
    def client(self) -> ConfluentClient:
        return ConfluentClient(self.broker.bootstrap)

    # -- topics and records
    def create(self, *names: str, partitions: int = 1, **configs: str) -> None:
        """The scenario's own topic, or others."""
        settings = {name.replace("_", "."): value for name, value in configs.items()}
        for name in names or (self.topic,):
            self.client.create_topic(name, TopicPlan(partitions=partitions, configs=settings))

    def send(self, records: Sequence[Record], topic: str | None = None, codec: Codec = "none") -> None:
        self.client.produce(topic or self.topic, records, ProduceOptions(codec=codec))

    def delete_before(self, offset: int, partition: int = 0) -> None:
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 0})
        (deleted,) = admin.delete_records([TopicPartition(self.topic, partition, offset)]).values()
        assert deleted.result(WAIT_SECONDS).low_watermark == offset

    def end_of(self, topic: str, partition: int = 0) -> int:
        return self.client.list_offset(topic, partition, -1)

    # -- reading
    def batch(self, **options: str) -> DataFrame:
        return self._source(self.spark.read, options)

    def stream(self, **options: str) -> DataFrame:
        """From the beginning, unless told otherwise."""
        begin = {} if any(name.startswith("starting") for name in options) else {"startingOffsets": "earliest"}
        return self._source(self.spark.readStream, {**begin, **options})

    def _source(self, reader: Any, options: dict[str, str]) -> DataFrame:
        named = options.keys() & {"subscribe", "subscribePattern", "assign"}
        chosen = {"includeHeaders": "true", **({} if named else {"subscribe": self.topic}), **options}
        source = reader.format("kafka").option("kafka.bootstrap.servers", self.broker.bootstrap)
        # Options with dots are the client's; as keywords they have two underscores for one.
        frame: DataFrame = source.options(**{name.replace("__", "."): value for name, value in chosen.items()}).load()
        return frame

    # -- writing
    def to_kafka(self, writer: Any, **options: str) -> Any:
        named = {name.replace("__", "."): value for name, value in options.items()}
        return writer.format("kafka").option("kafka.bootstrap.servers", self.broker.bootstrap).options(**named)

    def save(self, frame: DataFrame, **options: str) -> None:
        self.to_kafka(frame.write, **options).save()

    # -- queries
    def checkpointed(self, writer: DataStreamWriter, name: str = "checkpoint") -> DataStreamWriter:
        return writer.option("checkpointLocation", str(self.place / name))

    def now(self, writer: DataStreamWriter, name: str = "checkpoint") -> list[dict[str, Any]]:
        """Runs a query over all there is now, and returns what it told of each batch."""
        return ended(self.checkpointed(writer, name).trigger(availableNow=True).start())

    def collect_stream(self, frame: DataFrame, name: str = "out") -> list[dict[str, Any]]:
        """What there is now is added to files, exactly once; `collected` has them."""
        files = frame.writeStream.format("parquet").option("path", str(self.place / name))
        return self.now(files, f"{name}-checkpoint")

    def collected(self, name: str = "out") -> DataFrame:
        return self.spark.read.parquet(str(self.place / name))


def ended(query: StreamingQuery) -> list[dict[str, Any]]:
    assert query.awaitTermination(_QUERY_SECONDS), "the query goes on and on"
    return [json.loads(progress.json) for progress in query.recentProgress]


def ranges(progress: list[dict[str, Any]]) -> list[Any]:
    """From where to where each batch went, and how many rows it had; batches without rows are left out."""
    return [
        [source["startOffset"], source["endOffset"], source["numInputRows"]]
        for batch in progress
        for source in batch["sources"]
        if source["numInputRows"]
    ]


def rows(frame: DataFrame, *columns: str) -> list[list[Any]]:
    """Sorted by partition and offset, bytes as text."""
    names = columns or _RECORD
    ordered = frame.orderBy("partition", "offset").select(*names)
    return [[_text(row[name]) for name in names] for row in ordered.collect()]


def _text(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode()
    return value if isinstance(value, (int, str)) or value is None else repr(value)


def values(frame: DataFrame) -> list[int]:
    """The numbers in the values of numbered records, sorted."""
    return sorted(int(bytes(row["value"])) for row in frame.select("value").collect())


def refusal(work: Callable[[], object], words: str) -> Any:
    """What of the reason why Spark cannot go on matches the pattern `words`; it must be there."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    with pytest.raises((PySparkException, Py4JJavaError), match=words) as told:
        work()
    return re.findall(words, str(told.value))[0]
