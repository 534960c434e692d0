"""One conversation with one broker: what is asked, what is answered, and the answer without what may differ."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from compat_tests.client import WAIT_SECONDS
from compat_tests.raw.connection import Connection
from compat_tests.until import until

_TEXTS = ("error_message", "documentation")
_ZERO_ID = "00" * 16


@dataclass(frozen=True)
class Topic:
    name: str
    topic_id: bytes


class Talk:
    """Answers are kept in `said`, by label. Names are made from the case, so that both brokers get the same ones."""

    def __init__(self, bootstrap: str, case: str) -> None:
        self._bootstrap = bootstrap
        self._case = case
        self._topics = 0
        self._symbols: dict[Any, str] = {}
        self._connections: list[Connection] = []
        self.connection = self.connect()
        self.said: dict[str, Any] = {}

    def connect(self) -> Connection:
        connection = Connection(self._bootstrap)
        self._connections.append(connection)
        return connection

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def move(self, bootstrap: str) -> None:
        """The broker was started anew, and may be found elsewhere."""
        self.close()
        self._bootstrap, self._connections = bootstrap, []
        self.connection = self.connect()

    def say(self, label: str, answer: Any) -> Any:
        assert label not in self.said, f"{label} was said before"
        self.said[label] = self._normal(answer)
        return answer

    def ask(self, label: str, api: str, version: int, body: dict[str, Any]) -> Any:
        """Asks on the connection of the talk; a new one replaces it when the broker hangs up."""
        answer = self.connection.ask(api, version, body)
        self.say(label, answer)
        if isinstance(answer, str):
            self.connection = self.connect()
        return answer

    def quietly(self, api: str, version: int, body: dict[str, Any]) -> dict[str, Any]:
        """Part of the setting, not of what is compared."""
        answer = self.connection.ask(api, version, body)
        assert isinstance(answer, dict), f"{api} v{version}: {answer}"
        return answer

    def name(self) -> str:
        self._topics += 1
        return f"w-{self._case}-{self._topics}"

    def topic(self, partitions: int = 1, configs: dict[str, str] | None = None) -> Topic:
        """A new topic whose partitions all have a leader."""
        name = self.name()
        wanted = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
        }
        made = self.quietly("CreateTopics", 7, {"topics": [wanted], "timeout_ms": 30_000})["topics"][0]
        assert made["error_code"] == 0, made
        topic = Topic(name, bytes.fromhex(made["topic_id"]))
        until(lambda: self._ready(topic, partitions), WAIT_SECONDS)
        self.symbol(made["topic_id"], f"id of {name}")
        return topic

    def _ready(self, topic: Topic, partitions: int) -> bool:
        """The broker serves every partition, not merely its metadata: a fetch is answered by the log."""
        asked = [{"partition_index": p, "timestamp": -1} for p in range(partitions)]
        answer = self.quietly(
            "ListOffsets", 7, {"replica_id": -1, "topics": [{"name": topic.name, "partitions": asked}]}
        )
        return all(p["error_code"] == 0 for p in answer["topics"][0]["partitions"])

    def symbol(self, value: Any, name: str) -> None:
        self._symbols[value] = name

    def append(self, topic: Topic, *batches: bytes, partition: int = 0) -> list[int]:
        """Sets the scene: batches go in with acks=all; returns their base offsets."""
        offsets = []
        for batch in batches:
            answer = self.quietly("Produce", 12, produce_body(topic, batch, partition=partition))
            partition_answer = answer["responses"][0]["partition_responses"][0]
            assert partition_answer["error_code"] == 0, partition_answer
            offsets.append(partition_answer["base_offset"])
        return offsets

    def _normal(self, value: Any, field: str = "") -> Any:
        if isinstance(value, dict):
            return {name: self._normal(held, name) for name, held in value.items()}
        if isinstance(value, list):
            return [self._normal(one, field) for one in value]
        if field.endswith(_TEXTS) and isinstance(value, str):
            return "some text" if value else ""
        if field == "heartbeat_interval_ms" and value:
            return "an interval"  # ours depends on how lately the group changed (ADR 0011)
        if field in ("host", "cluster_id") and value:
            return f"the {field}"
        if field == "port" and value:
            return "the port"
        if field == "session_id" and value:
            return "a session"
        if field == "log_append_time_ms" and isinstance(value, int) and value > 1_750_000_000_000:
            return "now"
        if isinstance(value, str) and value in self._symbols:
            return self._symbols[value]
        if field == "topic_id" and value != _ZERO_ID and re.fullmatch("[0-9a-f]{32}", str(value)):
            return "an id"
        return value


def produce_body(
    topic: Topic, records: bytes | None, *, partition: int = 0, acks: int = -1, transactional_id: str | None = None
) -> dict[str, Any]:
    data = {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "partition_data": [{"index": partition, "records": records}],
    }
    return {"transactional_id": transactional_id, "acks": acks, "timeout_ms": 30_000, "topic_data": [data]}


Run = Callable[[Talk, int], None]
