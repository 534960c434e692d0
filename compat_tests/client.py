"""What a scenario may ask of any client. One adapter per library implements it, with that library's own calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
CODECS: tuple[Codec, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
Acks = Literal[0, 1, -1]

MEGABYTE = 1 << 20
WAIT_SECONDS = 30.0  # an upper bound for a client to give up by; no scenario waits for it when the broker answers


@dataclass(frozen=True, slots=True)
class Record:
    key: bytes | None = None
    value: bytes | None = b""
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None  # None: the client's clock decides
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Received:
    """A record as a consumer handed it out."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ProduceOptions:
    acks: Acks = -1
    codec: Codec = "none"
    idempotent: bool = False
    batch_bytes: int = 16_384
    max_request_bytes: int = MEGABYTE


@dataclass(frozen=True, slots=True)
class TopicPlan:
    partitions: int = 1
    replication_factor: int = 1
    configs: dict[str, str] = field(default_factory=dict)
    validate_only: bool = False


class ClientError(Exception):
    """The broker's error code as the client reported it."""

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(f"{code} {text}")
        self.code = code


class Client(ABC):
    """One client library connected to one broker. Opened and closed by the harness."""

    name: str
    version: str
    sends_nothing_at_all = True  # whether the library lets a record have neither key nor value
    sends_null_headers = True

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:  # noqa: B027 - a client without a connection of its own has nothing to close
        """Lets go of connections."""

    # -- records
    @abstractmethod
    def produce(self, topic: str, records: Sequence[Record], options: ProduceOptions) -> list[int]:
        """Sends the records in order and returns the offset of each; -1 where acks=0 leaves it unknown."""

    @abstractmethod
    def consume(
        self, topic: str, partition: int, offset: int, count: int, *, committed: bool = False
    ) -> list[Received]:
        """Reads `count` records from an assigned partition, starting at `offset`."""

    @abstractmethod
    def consume_while(self, topic: str, count: int, produce: Any) -> list[Received]:
        """Starts to wait at offset 0 of an empty partition, calls `produce()`, and returns what then arrived."""

    # -- topics
    @abstractmethod
    def create_topic(self, name: str, plan: TopicPlan) -> None: ...

    @abstractmethod
    def delete_topic(self, name: str) -> None: ...

    @abstractmethod
    def create_partitions(self, name: str, total: int) -> None: ...

    @abstractmethod
    def describe_topic(self, name: str) -> dict[str, Any]:
        """{"partitions": {index: {"leader", "replicas", "isr"}}}, or ClientError."""

    @abstractmethod
    def list_topics(self) -> list[str]: ...

    @abstractmethod
    def describe_configs(self, name: str) -> dict[str, str | None]: ...

    @abstractmethod
    def alter_configs(self, name: str, settings: dict[str, str]) -> None:
        """Gives a topic these settings. A client that knows only AlterConfigs takes all others away by it."""

    @abstractmethod
    def describe_cluster(self) -> dict[str, Any]:
        """{"nodes": [[id, "host:port"]], "controller": id}."""

    # -- offsets
    @abstractmethod
    def list_offset(self, topic: str, partition: int, timestamp: int) -> int:
        """The first offset at or after a timestamp; -2 earliest, -1 latest; -1 when there is none."""
