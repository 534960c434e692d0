"""What lies in each data directory, and how much room there is."""

from __future__ import annotations

import os
from typing import NamedTuple

from kbroker.storage.log_dir import LogDir
from kbroker.storage.log_dirs import LogDirs

INT64_MAX = 2**63 - 1


class ReplicaUsage(NamedTuple):
    topic: str
    partition: int
    size_bytes: int
    lag: int  # a copy on its way: how many offsets it is behind its partition
    is_future: bool


class DirectoryUsage(NamedTuple):
    path: str
    failure: OSError | None
    total_bytes: int = -1
    usable_bytes: int = -1
    replicas: tuple[ReplicaUsage, ...] = ()


def usage(log_dirs: LogDirs) -> list[DirectoryUsage]:
    """In the order of log.dirs. Called in the thread of whoever owns the directories."""
    held: dict[int, list[ReplicaUsage]] = {}
    for key, log in log_dirs.logs.items():
        if not log.offline_errno:
            lag = max(0, log.high_watermark - log.log_end_offset)
            held.setdefault(id(log_dirs.home_of(key)), []).append(ReplicaUsage(*key, log.size_bytes, lag, False))
    for key, (home, log) in log_dirs.futures.items():
        source = log_dirs.logs.get(key)
        lag = -1 if source is None else source.log_end_offset - log.log_end_offset
        held.setdefault(id(home), []).append(ReplicaUsage(*key, log.size_bytes, lag, True))
    return [_of(home, tuple(held.get(id(home), ()))) for home in log_dirs.dirs]


def _of(home: LogDir, replicas: tuple[ReplicaUsage, ...]) -> DirectoryUsage:
    path = str(home.path.absolute())
    failure = home.failure
    if failure is None:
        try:
            room = os.statvfs(home.path)
        except OSError as problem:
            failure = problem
        else:
            total, usable = room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize
            return DirectoryUsage(path, None, min(total, INT64_MAX), min(usable, INT64_MAX), replicas)
    return DirectoryUsage(path, failure)
