"""Lag and throughput: each batch's progress becomes a line, a metric, a committed offset and a point of a picture.

In the run's folder `progress.jsonl` grows over all restarts, `metrics.prom` is what Prometheus reads from a text file,
and `progress.svg` is the picture. The offsets are committed to the pipeline's consumer group, so that Kafka's own tools
see its lag. Spark does not read them: the checkpoint alone says where it goes on.
"""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from datetime import datetime
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from spark_integration.pipeline import kafka
from spark_integration.pipeline.picture import draw
from spark_integration.pipeline.settings import Settings

DRAWN_MOST = 2_000  # the last so many batches
METRICS = {
    "input_rows": "rows read by the last batch",
    "input_rate": "rows per second that came in",
    "processing_rate": "rows per second that were processed",
    "lag": "rows in the input topic behind the last batch",
    "batch_ms": "milliseconds that the last batch took",
    "state_rows": "event ids that the de-duplication remembers",
    "duplicates": "copies that the last batch dropped",
    "dropped_by_watermark": "rows that came too late for the de-duplication; other than 0 calls for a wider horizon",
}


def line_of(progress: dict[str, Any]) -> dict[str, float | None]:
    """Returns what is kept of Spark's report of a batch.

    A batch that runs again has no lag, because Spark does not look up the end of the topic for it. The first batch
    after a start has no input rate: Spark reports 0, because there is no earlier batch to measure from.
    """
    source, states = progress["sources"][0], progress.get("stateOperators", [])
    latest = source.get("latestOffset")
    customs = [state.get("customMetrics", {}) for state in states]
    return {
        "at": datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp(),
        "batch": progress["batchId"],
        "input_rows": progress.get("numInputRows", 0),
        "input_rate": _input_rate(progress.get("numInputRows", 0), source),
        "processing_rate": float(source.get("processedRowsPerSecond") or 0),
        "lag": None if latest is None else _sum(latest) - _sum(source.get("endOffset")),
        "batch_ms": progress.get("batchDuration", 0),
        "state_rows": sum(state.get("numRowsTotal", 0) for state in states),
        "duplicates": sum(custom.get("numDroppedDuplicateRows", 0) for custom in customs),
        "dropped_by_watermark": sum(state.get("numRowsDroppedByWatermark", 0) for state in states),
    }


def _input_rate(rows: int, source: dict[str, Any]) -> float | None:
    rate = float(source.get("inputRowsPerSecond") or 0)
    return None if rows and not rate else rate


def offsets_of(position: Any) -> dict[str, dict[str, int]]:
    """Spark gives positions as JSON, or as the text of it."""
    found: dict[str, dict[str, int]] = json.loads(position) if isinstance(position, str) else position or {}
    return found


def _sum(position: Any) -> int:
    return sum(offset for partitions in offsets_of(position).values() for offset in partitions.values())


class Progress(StreamingQueryListener):
    """One per run."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._settings, self._folder = settings, folder
        self._consumer, self._closed = kafka.consumer(settings, settings.group), False
        self._lock = threading.Lock()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's name)
        self._append({"started": datetime.fromisoformat(event.timestamp.replace("Z", "+00:00")).timestamp()})

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress: dict[str, Any] = json.loads(event.progress.json)
        line = line_of(progress)
        self._append(line)
        _replace(self._folder / "metrics.prom", _exposition(line, self._settings.name))
        self.draw()
        self.commit(offsets_of(progress["sources"][0].get("endOffset")))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing came: nothing to tell."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """The lines are there already."""

    def commit(self, offsets: dict[str, dict[str, int]]) -> None:
        """For those who look at the lag; with a broker away, the next batch's commit says it all."""
        ends = [TopicPartition(topic, int(p), at) for topic, found in offsets.items() for p, at in found.items()]
        with self._lock:
            if not ends or self._closed:
                return
            try:
                self._consumer.commit(offsets=ends, asynchronous=False)
            except KafkaException as failed:
                self._append({"not_committed": str(failed)})

    def draw(self) -> None:
        with open(self._folder / "progress.jsonl") as file:
            lines = [json.loads(line) for line in deque(file, maxlen=DRAWN_MOST)]
        _replace(self._folder / "progress.svg", draw(lines, self._settings.name))

    def close(self) -> None:
        """Spark may still be on its way to tell of a last batch: that one commits nothing."""
        with self._lock:
            self._closed = True
            self._consumer.close()

    def _append(self, line: dict[str, Any]) -> None:
        with open(self._folder / "progress.jsonl", "a") as file:
            file.write(json.dumps(line) + "\n")


def _exposition(line: dict[str, float | None], name: str) -> str:
    parts = []
    for metric, meaning in METRICS.items():
        full, value = f"spark_pipeline_{metric}", line[metric]
        if value is not None:
            parts += [f"# HELP {full} {meaning}", f"# TYPE {full} gauge", f'{full}{{pipeline="{name}"}} {value:g}']
    return "\n".join(parts) + "\n"


def _replace(path: Path, text: str) -> None:
    beside = path.with_suffix(".tmp")
    beside.write_text(text)
    os.replace(beside, path)
