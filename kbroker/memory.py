"""How much memory this process may use: the machine's, or less if a control group it is in says so.

A limit holds for everything below it, so every group from the process's own up to the root is asked, in the second
version of control groups and in the first (a machine may use both), and the least counts. In a container the path may
be the host's and the tree the container's own: groups that are not there are passed over.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

GROUPS = "proc/self/cgroup"  # lines of hierarchy:controllers:path; the second version names no controllers
V2_TREES: tuple[str, ...] = ("sys/fs/cgroup", "sys/fs/cgroup/unified")  # the latter beside the first version's
V2_LIMIT = "memory.max"
V1_TREES: tuple[str, ...] = ("sys/fs/cgroup/memory",)
V1_LIMIT = "memory.limit_in_bytes"


def memory_bytes(root: Path = Path("/")) -> int:
    return min([os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *_limits(root)])


def _limits(root: Path) -> Iterator[int]:
    try:
        lines = (root / GROUPS).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return  # not a Linux
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            trees, limit = V2_TREES, V2_LIMIT
        elif "memory" in controllers.split(","):
            trees, limit = V1_TREES, V1_LIMIT
        else:
            continue
        group = PurePosixPath(path.lstrip("/"))
        if ".." in group.parts:
            group = PurePosixPath()  # beside what this process may see
        for tree in trees:
            for place in (group, *group.parents):
                yield from _limit(root / tree / place / limit)


def _limit(file: Path) -> Iterator[int]:
    try:
        text = file.read_text(encoding="ascii").strip()
    except OSError:
        return
    if text.isdigit():  # or "max"
        yield int(text)
