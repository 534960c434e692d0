"""A consumer's process that does its work in a file and dies, by kill -9 of itself, at the moment it was told.

    python -m compat_tests.groups.worker '{"client": …, "mode": …, …}'

Work on a record is one line in the ledger, written at once. Modes of the first life:

    commit first     commits, dies, would work            at most once
    work first       works, dies, would commit            at least once
    between ticks    auto-commit; dies some records after a tick
    tick at work     auto-commit; a tick comes while a record is worked on, and it dies before the work is done
    finish           the second life: works on what is there, commits, leaves
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

DIES_AT = 12  # the value of the record at which it dies
TICK_AT = 7  # the last one before the tick that is waited for
TICK_MS = 1000
_PATIENCE_SECONDS = 60
_SESSION_MS = 6_000


class Client(Protocol):
    """One partition, one record at a time."""

    def take(self) -> int: ...
    def commit(self) -> None: ...
    def committed(self) -> int: ...
    def close(self) -> None: ...


class Confluent:
    def __init__(self, told: dict[str, Any]) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self._here = [TopicPartition(told["topic"], 0)]
        classic = told["protocol"] == "classic"
        self._consumer = Consumer(
            {
                "bootstrap.servers": told["bootstrap"],
                "group.id": told["group"],
                "group.protocol": told["protocol"],
                "auto.offset.reset": "earliest",
                "enable.auto.commit": told["auto"],
                "auto.commit.interval.ms": TICK_MS,
                **({"session.timeout.ms": _SESSION_MS, "heartbeat.interval.ms": 200} if classic else {}),
                **({"group.instance.id": told["instance"]} if told["instance"] else {}),
            }
        )
        self._consumer.subscribe([told["topic"]])

    def take(self) -> int:
        record = self._consumer.poll(_PATIENCE_SECONDS)
        assert record is not None
        assert record.error() is None, record.error()
        return int(record.value() or b"")

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def committed(self) -> int:
        offset = self._consumer.committed(self._here, _PATIENCE_SECONDS)[0].offset
        return max(offset or 0, 0)

    def close(self) -> None:
        self._consumer.close()


class KafkaPython:
    def __init__(self, told: dict[str, Any]) -> None:
        from kafka import KafkaConsumer, TopicPartition

        self._here = TopicPartition(told["topic"], 0)
        self._consumer = KafkaConsumer(
            told["topic"],
            bootstrap_servers=told["bootstrap"],
            group_id=told["group"],
            group_instance_id=told["instance"],
            auto_offset_reset="earliest",
            enable_auto_commit=told["auto"],
            auto_commit_interval_ms=TICK_MS,
            session_timeout_ms=_SESSION_MS,
            heartbeat_interval_ms=200,
            max_poll_records=1,
        )

    def take(self) -> int:
        return int(next(self._consumer).value)

    def commit(self) -> None:
        self._consumer.commit()

    def committed(self) -> int:
        """Its ticks come within polls: one that can bring nothing."""
        self._consumer.pause(self._here)
        self._consumer.poll(timeout_ms=20)
        self._consumer.resume(self._here)
        return self._consumer.committed(self._here) or 0

    def close(self) -> None:
        self._consumer.close()


class Aiokafka:
    def __init__(self, told: dict[str, Any]) -> None:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        self._here = TopicPartition(told["topic"], 0)
        self._loop = asyncio.new_event_loop()

        async def begun() -> Any:
            consumer = AIOKafkaConsumer(
                told["topic"],
                bootstrap_servers=told["bootstrap"],
                group_id=told["group"],
                group_instance_id=told["instance"],
                auto_offset_reset="earliest",
                enable_auto_commit=told["auto"],
                auto_commit_interval_ms=TICK_MS,
                session_timeout_ms=_SESSION_MS,
                heartbeat_interval_ms=200,
            )
            await consumer.start()
            return consumer

        self._consumer = self._loop.run_until_complete(begun())

    def take(self) -> int:
        return int(self._loop.run_until_complete(self._consumer.getone()).value)

    def commit(self) -> None:
        self._loop.run_until_complete(self._consumer.commit())

    def committed(self) -> int:
        return self._loop.run_until_complete(self._consumer.committed(self._here)) or 0

    def close(self) -> None:
        self._loop.run_until_complete(self._consumer.stop())


CLIENTS: dict[str, Callable[[dict[str, Any]], Client]] = {
    "confluent-kafka": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
}


class Worker:
    def __init__(self, told: dict[str, Any]) -> None:
        self._mode, self._last = told["mode"], told["last"]
        self._ledger = os.open(told["ledger"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._client = CLIENTS[told["client"]](told)

    def run(self) -> None:
        value = -1
        while value < self._last:
            value = self._client.take()
            self._handle(value)
        self._client.close()

    def _handle(self, value: int) -> None:
        dies = value == DIES_AT
        match self._mode:
            case "commit first":
                self._client.commit()
                if dies:
                    _die()
                self._work(value)
            case "work first":
                self._work(value)
                if dies:
                    _die()
                self._client.commit()
            case "between ticks":
                self._work(value)
                if value == TICK_AT:
                    self._await_tick(value + 1)
                if dies:
                    _die()
            case "tick at work":
                if dies:
                    self._await_tick(value + 1)
                    _die()
                self._work(value)
            case "finish":
                self._work(value)
                if value == self._last:
                    self._client.commit()

    def _work(self, value: int) -> None:
        os.write(self._ledger, b"%d\n" % value)

    def _await_tick(self, offset: int) -> None:
        until = time.monotonic() + _PATIENCE_SECONDS
        while self._client.committed() != offset:
            assert time.monotonic() < until, f"no tick has committed {offset}"


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    Worker(json.loads(sys.argv[1])).run()
