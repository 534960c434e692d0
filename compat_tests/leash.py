"""A client of another language on a leash: a process that takes one JSON command a line and gives one JSON answer.

One process serves every scenario of a run: the first call starts it, and it is warm from then on. Bytes travel as
base64 text, null as null; an error as {"error": Kafka's code, "text": words}.
"""

from __future__ import annotations

import base64
import json
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from compat_tests.client import Client, ClientError, ProduceOptions, Received, Record, TopicPlan


class Leash:
    """The process behind all clients of one kind. `command` may build what it names; it raises MissingToolError."""

    def __init__(self, name: str, command: Callable[[], list[str]]) -> None:
        self._name = name
        self._command = command
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        _leashes.append(self)

    def start(self) -> None:
        with self._lock:
            self._started()

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(self._command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self._process

    def ask(self, command: dict[str, Any]) -> Any:
        with self._lock:
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(command) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        if not line:
            raise AssertionError(f"the {self._name} client ended")
        answer = json.loads(line)
        if "error" in answer:
            raise ClientError(answer["error"], answer["text"])
        return answer["ok"]

    def stop(self) -> None:
        if self._process is not None:
            self._process.communicate()  # closes its stdin, which is its signal to end
            self._process = None


_leashes: list[Leash] = []


def stop_leashed_clients() -> None:
    for leash in _leashes:
        leash.stop()


def text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def raw(told: str | None) -> bytes | None:
    return None if told is None else base64.b64decode(told)


class LeashedClient(Client):
    leash: ClassVar[Leash]

    def _ask(self, op: str, **values: Any) -> Any:
        return self.leash.ask({"op": op, "bootstrap": self.bootstrap, **values})

    def produce(self, topic: str, records: Sequence[Record], options: ProduceOptions) -> list[int]:
        settings = {
            "acks": "all" if options.acks == -1 else str(options.acks),
            "compression.type": options.codec,
            "enable.idempotence": "true" if options.idempotent else "false",
            "batch.size": str(options.batch_bytes),
            "max.request.size": str(options.max_request_bytes),
        }
        told = [
            [
                text(record.key),
                text(record.value),
                record.timestamp_ms,
                record.partition,
                [[name, text(value)] for name, value in record.headers],
            ]
            for record in records
        ]
        offsets: list[int] = self._ask("produce", topic=topic, settings=settings, records=told)
        return offsets

    @staticmethod
    def _received(told: list[list[Any]]) -> list[Received]:
        return [
            Received(offset, raw(key), raw(value), tuple((name, raw(held)) for name, held in headers), when)
            for offset, key, value, headers, when in told
        ]

    def consume(
        self, topic: str, partition: int, offset: int, count: int, *, committed: bool = False
    ) -> list[Received]:
        return self._received(
            self._ask("consume", topic=topic, partition=partition, offset=offset, count=count, committed=committed)
        )

    def consume_while(self, topic: str, count: int, produce: Callable[[], None]) -> list[Received]:
        self._ask("watch", topic=topic, count=count)
        produce()
        return self._received(self._ask("watched"))

    def create_topic(self, name: str, plan: TopicPlan) -> None:
        self._ask(
            "create_topic",
            topic=name,
            partitions=plan.partitions,
            replication_factor=plan.replication_factor,
            configs=plan.configs,
            validate_only=plan.validate_only,
        )

    def delete_topic(self, name: str) -> None:
        self._ask("delete_topic", topic=name)

    def create_partitions(self, name: str, total: int) -> None:
        self._ask("create_partitions", topic=name, total=total)

    def describe_topic(self, name: str) -> dict[str, Any]:
        partitions = self._ask("describe_topic", topic=name)
        return {"partitions": {int(index): told for index, told in partitions.items()}}

    def list_topics(self) -> list[str]:
        return sorted(self._ask("list_topics"))

    def describe_configs(self, name: str) -> dict[str, str | None]:
        configs: dict[str, str | None] = self._ask("describe_configs", topic=name)
        return configs

    def alter_configs(self, name: str, settings: dict[str, str]) -> None:
        self._ask("alter_configs", topic=name, configs=settings)

    def describe_cluster(self) -> dict[str, Any]:
        cluster: dict[str, Any] = self._ask("describe_cluster")
        return cluster

    def list_offset(self, topic: str, partition: int, timestamp: int) -> int:
        return int(self._ask("list_offset", topic=topic, partition=partition, timestamp=timestamp))
