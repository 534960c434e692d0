"""The pages there are: reference data in a compacted topic, which may learn of a page after its first events came.

A page is a key; a tombstone takes it away. The driver keeps what it has read and reads on at each batch.
"""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import TopicPartition

from spark_integration.pipeline import kafka
from spark_integration.pipeline.settings import Settings


def publish(settings: Settings, pages: Iterable[str]) -> None:
    producer = kafka.producer(settings)
    for page in pages:
        producer.produce(settings.pages_topic, key=page, value=b"{}")
    left = producer.flush(kafka.SECONDS)
    if left:
        raise TimeoutError(f"{left} pages were not acknowledged in {kafka.SECONDS:.0f} s")


class Catalogue:
    def __init__(self, settings: Settings) -> None:
        self._topic = settings.pages_topic
        self._consumer = kafka.consumer(settings, f"{settings.name}.catalogue")
        self._next: dict[int, int] = {}
        self._pages: set[str] = set()

    def pages(self) -> list[str]:
        """All that were published before this call."""
        ends = kafka.end_offsets(self._consumer, self._topic)
        start = [TopicPartition(self._topic, number, self._next.get(number, 0)) for number in ends]
        for record in kafka.read_between(self._consumer, start, ends):
            page = (record.key or b"").decode()
            if record.value is None:
                self._pages.discard(page)
            else:
                self._pages.add(page)
        self._next = ends
        return sorted(self._pages)

    def close(self) -> None:
        self._consumer.close()
