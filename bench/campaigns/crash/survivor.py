"""A real client: librdkafka's idempotent producer, which sends what was not answered again when the broker is back."""

from __future__ import annotations

import random
import threading
import time
from functools import partial

from confluent_kafka import KafkaError, Message, Producer

from bench.campaigns.crash.ledger import Broken, Shelf, named
from kbroker._core.record.records import Record


class Survivor(threading.Thread):
    def __init__(self, bootstrap: str, shelves: list[Shelf], who: str, chance: random.Random) -> None:
        super().__init__(daemon=True)
        self._shelves, self._who, self._chance = shelves, who, chance
        self._ended = threading.Event()
        self._broken: BaseException | None = None
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "max.in.flight": 1,  # a restarted broker knows the last batch; older ones only since its last roll
                "linger.ms": chance.randrange(5),
                "compression.type": chance.choice(("none", "lz4", "zstd", "gzip", "snappy")),
                "queue.buffering.max.messages": 300,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 60,
                "retry.backoff.ms": 20,
                "log_level": 0,
                "error_cb": self._on_error,
            }
        )

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._broken = Broken(f"librdkafka gave up: {error}")

    def _on_delivery(self, shelf: Shelf, record: Record, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is not None or offset is None:
            return
        try:
            shelf.acknowledge([record], offset)
        except Broken as problem:
            self._broken = problem

    def run(self) -> None:
        serial = 0
        while not self._ended.is_set():
            shelf = self._chance.choice(self._shelves)
            serial += 1
            name = f"{self._who}:{serial}"
            value = self._chance.randbytes(self._chance.randrange(200))
            record = named(name, None, value, int(time.time() * 1000))
            shelf.send([record])
            while not self._ended.is_set():
                try:
                    self._producer.produce(
                        shelf.topic.name,
                        value,
                        partition=shelf.partition,
                        headers=list(record.headers),
                        timestamp=record.timestamp,
                        on_delivery=partial(self._on_delivery, shelf, record),
                    )
                    break
                except BufferError:
                    self._producer.poll(0.02)
            self._producer.poll(0.01)

    def check(self) -> None:
        if self._broken is not None:
            raise self._broken

    def end(self) -> None:
        """What is unanswered is forgotten: it may or may not be in the log."""
        self._ended.set()
        self.join()
        self._producer.purge()
        self._producer.poll(0)
        self.check()
