"""Everything a pipeline is told, and the names that follow from it. Times are milliseconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """`warehouse` is any directory that the driver and every executor reach under this name (a Hadoop path)."""

    bootstrap: str
    warehouse: str
    name: str = "clicks"
    partitions: int = 4
    window_ms: int = 300_000
    lateness_ms: int = 7_200_000  # an event that reached Kafka later than this after it happened is late, not counted
    horizon_ms: int = 3_600_000  # a copy that reaches Kafka within this after the first one is dropped
    future_ms: int = 300_000  # how far a producer's clock may be ahead
    attempts: int = 5  # tries of what may get better by waiting: a page the catalogue does not know yet
    malformed_attempts: int = 1  # tries of what does not get better by waiting
    backoff_ms: int = 1_000  # before the second try; then twice as long each time
    salt: int = 1  # into how many parts the first stage of the aggregation cuts a key
    per_batch: int = 20_000
    trigger_ms: int = 500  # a batch starts so long after the last one did, or when that one ends
    patience_s: float = 120.0  # how long a broker that does not answer is waited for

    @property
    def input_topic(self) -> str:
        return self.name

    @property
    def retry_topic(self) -> str:
        return f"{self.name}.retry"

    @property
    def dead_topic(self) -> str:
        return f"{self.name}.dead"

    @property
    def totals_topic(self) -> str:
        return f"{self.name}.totals"

    @property
    def pages_topic(self) -> str:
        return f"{self.name}.pages"

    @property
    def group(self) -> str:
        """The consumer group under which Kafka's tools see what was processed, and what lags."""
        return f"{self.name}.pipeline"

    @property
    def checkpoint(self) -> str:
        return f"{self.warehouse}/checkpoint"
