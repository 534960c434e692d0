"""One JVM serves every scenario of a run: it is started by the first call and warm from then on."""

from __future__ import annotations

import base64
import json
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from compat_tests.client import (
    Client,
    ClientError,
    ProduceOptions,
    Received,
    Record,
    TopicPlan,
)
from compat_tests.oracle.jars import KAFKA_VERSION, java, kafka_class_path

_SOURCE = Path(__file__).with_name("JavaClient.java")


class _Leash:
    """The process behind all JavaClients."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def ask(self, command: dict[str, Any]) -> Any:
        with self._lock:
            if self._process is None:
                self._process = subprocess.Popen(
                    [
                        java(),
                        "-Xmx512M",
                        "-XX:+UseSerialGC",
                        "-Dlog4j2.level=OFF",
                        "-cp",
                        kafka_class_path(),
                        str(_SOURCE),
                    ],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        if not line:
            raise AssertionError("the Java client ended")
        answer = json.loads(line)
        if "error" in answer:
            raise ClientError(answer["error"], answer["text"])
        return answer["ok"]

    def stop(self) -> None:
        if self._process is not None:
            self._process.communicate()  # closes its stdin, which is its signal to end
            self._process = None


_leash = _Leash()


def stop_java_client() -> None:
    _leash.stop()


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


class JavaClient(Client):
    name = "java"
    version = KAFKA_VERSION

    def _ask(self, op: str, **values: Any) -> Any:
        return _leash.ask({"op": op, "bootstrap": self.bootstrap, **values})

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
                _text(record.key),
                _text(record.value),
                record.timestamp_ms,
                record.partition,
                [[name, _text(value)] for name, value in record.headers],
            ]
            for record in records
        ]
        offsets: list[int] = self._ask("produce", topic=topic, settings=settings, records=told)
        return offsets

    @staticmethod
    def _received(told: list[list[Any]]) -> list[Received]:
        return [
            Received(offset, _bytes(key), _bytes(value), tuple((name, _bytes(held)) for name, held in headers), when)
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
