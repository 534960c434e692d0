"""Partitions between two data directories, as a client sees and asks for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from kbroker.protocol.messages import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from kbroker.tests.integration.wire import Connection

Dir = AlterReplicaLogDirsRequest.AlterReplicaLogDir
DirTopic = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def move(client: Connection, topic: str, path: Path | str, *partitions: int) -> list[int]:
    """Asks for it; the error of each partition."""
    asked = Dir(path=str(path), topics=[DirTopic(name=topic, partitions=list(partitions or (0,)))])
    (result,) = client.ask(AlterReplicaLogDirsRequest(dirs=[asked]), 2).results
    return [one.error_code for one in result.partitions]


def places(client: Connection, topic: str, partition: int = 0) -> dict[Path, tuple[bool, int]]:
    """Directory -> (is it a copy on its way, its lag)."""
    answer = client.ask(DescribeLogDirsRequest(topics=None), 4)
    return {
        Path(one.log_dir): (part.is_future_key, part.offset_lag)
        for one in answer.results
        for held in one.topics
        if held.name == topic
        for part in held.partitions
        if part.partition_index == partition
    }


def is_at(client: Connection, topic: str, path: Path, partition: int = 0) -> bool:
    """Here and nowhere else."""
    return places(client, topic, partition) == {path: (False, 0)}
