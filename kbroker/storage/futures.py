"""Copies of partitions that are on their way into another data directory, called as Kafka calls them:
`<topic>-<partition>.<uuid>-future`.

A copy is a log like any other, with its offsets in the checkpoints of the directory it is meant for. It becomes the
partition by losing the ending of its name.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from kbroker._core.log.partition_log import PartitionLog
from kbroker.storage.log_dir import FUTURE, Key, LogDir, blaming, directories_in

NAME_MAX = 255


class Future(NamedTuple):
    """A copy that is being made, and the directory it is meant for."""

    home: LogDir
    log: PartitionLog


class Found(NamedTuple):
    """One that an earlier run has left."""

    home: LogDir
    path: Path
    key: Key


def future_name(key: Key) -> str:
    return f"{key[0]}-{key[1]}.{uuid.uuid4().hex}{FUTURE}"


def fits(key: Key) -> bool:
    """Whether a copy of this partition can have a name at all; of the longest topics it cannot, as in Kafka."""
    return len(future_name(key).encode()) <= NAME_MAX


def find(homes: Iterable[LogDir]) -> Iterator[Found]:
    for home in homes:
        names: list[str] = []
        with blaming(home):
            names = directories_in(home.path)
        for name in names:
            partition_name, dot, _ = name.removesuffix(FUTURE).rpartition(".")
            topic, dash, partition = partition_name.rpartition("-")
            if name.endswith(FUTURE) and dot and dash and partition.isdigit():
                yield Found(home, home.path / name, (topic, int(partition)))
