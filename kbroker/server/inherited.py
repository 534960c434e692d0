"""What a forked child inherits of its parent's brokers: descriptors, which it closes, and nothing that it may use.

None of the broker's threads exist in the child, a mutex may have been held by one of them at the fork, and every
descriptor is a second name of the parent's open file: epoll_ctl, shutdown or an unlock there would act on the parent's.
So the child calls nothing but close(). It finds the descriptors in the system's list of its own open files, by what
they are, and not by walking the broker's structures, which another thread may have been changing.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

MEMORY_SEGMENT = "/memfd:kbroker-segment"
OPEN_FILES = "/proc/self/fd" if sys.platform.startswith("linux") else "/dev/fd"


@dataclass
class Held:
    """What one broker holds open."""

    descriptors: set[int] = field(default_factory=set)  # those that it keeps for as long as it runs
    ports: set[int] = field(default_factory=set)  # its listeners', so also the local port of accepted connections
    files: set[str] = field(default_factory=set)  # real paths of files that it keeps open
    temporary: list[str] = field(default_factory=list)  # real paths of directories that are the broker's as a whole
    directories: list[str] = field(default_factory=list)  # real paths, whose partitions hold its segments and indexes


def close_inherited(held: Collection[Held]) -> None:
    """For a forked child: closes its copies of what these brokers of the parent hold open. Never raises."""
    named = set().union(*(one.descriptors for one in held))
    ports = set().union(*(one.ports for one in held))
    files = set().union(*(one.files for one in held), *(one.temporary for one in held))
    temporary = tuple(f"{directory}/" for one in held for directory in one.temporary)
    directories = [f"{directory}/" for one in held for directory in one.directories]
    for descriptor in _open_descriptors():
        path = _path_of(descriptor)
        known = descriptor in named or path in files or path.startswith(temporary)
        if known or _is_served(descriptor, ports) or _is_in(path, directories):
            with contextlib.suppress(OSError):
                os.close(descriptor)


def _open_descriptors() -> list[int]:
    try:
        return [int(name) for name in os.listdir(OPEN_FILES)]
    except OSError:
        return list(range(3, os.sysconf("SC_OPEN_MAX")))


def _is_served(descriptor: int, ports: Collection[int]) -> bool:
    """Whether it is a listening socket or an accepted connection of one of these ports."""
    with contextlib.suppress(OSError):
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            copy = socket.socket(fileno=descriptor)
            try:
                is_tcp = copy.family in (socket.AF_INET, socket.AF_INET6) and copy.type == socket.SOCK_STREAM
                return is_tcp and copy.getsockname()[1] in ports
            finally:
                copy.detach()
    return False


def _is_in(path: str, directories: Iterable[str]) -> bool:
    """Whether it is a file of a partition in one of these directories, or a segment in memory."""
    if path.startswith(MEMORY_SEGMENT):
        return True
    for directory in directories:
        if path.startswith(directory):
            partition, slash, _ = path[len(directory) :].partition("/")
            return bool(slash) and "-" in partition  # the host may keep files of its own beside the partitions
    return False


def _path_of(descriptor: int) -> str:
    try:
        if sys.platform.startswith("linux"):
            return os.readlink(f"{OPEN_FILES}/{descriptor}").removesuffix(" (deleted)")
        import fcntl

        return os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    except (OSError, AttributeError):
        return ""
