"""Puts generated traffic into the input topic, acknowledged to the last record."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from spark_integration.pipeline import kafka
from spark_integration.pipeline.events import Sent
from spark_integration.pipeline.settings import Settings
from spark_integration.pipeline.sink import Outgoing, send


def send_all(settings: Settings, records: Iterable[Sent], tell: Callable[[int], None] = lambda count: None) -> int:
    """How many; `tell` hears of each thousand."""
    producer, count = kafka.producer(settings), 0
    for count, record in enumerate(records, 1):
        send(producer, Outgoing(settings.input_topic, record.key, record.value))
        if count % 1000 == 0:
            tell(1000)
    left = producer.flush(settings.patience_s)
    if left:
        raise TimeoutError(f"{left} of {count} events were not acknowledged in {settings.patience_s:.0f} s")
    tell(count % 1000)
    return count
