"""What the process may use, in made-up trees of control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kbroker.memory import memory_bytes

MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def tree(root: Path, groups: str, limits: dict[str, str]) -> Path:
    for name, text in {"proc/self/cgroup": groups, **{f"sys/fs/cgroup/{at}": limits[at] for at in limits}}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("groups", "limits", "least"),
    [
        ("0::/\n", {"memory.max": "max\n"}, MACHINE),
        ("0::/\n", {"memory.max": "5000\n"}, 5000),
        ("0::/a.slice/b.service\n", {"a.slice/b.service/memory.max": "7000\n", "a.slice/memory.max": "max\n"}, 7000),
        ("0::/a.slice/b.service\n", {"a.slice/b.service/memory.max": "max\n", "a.slice/memory.max": "6000\n"}, 6000),
        ("0::/a/b\n", {"a/b/memory.max": "4000\n", "a/memory.max": "3000\n", "x/memory.max": "1\n"}, 3000),
        ("0::/the/hosts/path\n", {"memory.max": "2000\n"}, 2000),
        ("0::/../beside\n", {"memory.max": "2500\n"}, 2500),
        ("0::/\n", {"memory.max": f"{MACHINE * 2}\n"}, MACHINE),
        ("4:cpu,memory:/d/e\n1:cpu:/d\n", {"memory/d/memory.limit_in_bytes": "8000\n", "memory.max": "1\n"}, 8000),
        ("4:memory:/d\n", {"memory/d/memory.limit_in_bytes": "9223372036854771712\n"}, MACHINE),
        (
            "4:memory:/d\n0::/u\n",
            {"memory/d/memory.limit_in_bytes": "9000\n", "unified/u/memory.max": "8500\n"},
            8500,
        ),
        ("3:name=a:b:/\n0::/a:b\n", {"a:b/memory.max": "1500\n"}, 1500),
    ],
)
def test_the_least_limit_on_the_way_up_counts(tmp_path: Path, groups: str, limits: dict[str, str], least: int) -> None:
    assert memory_bytes(tree(tmp_path, groups, limits)) == least


def test_without_control_groups_it_is_the_machines(tmp_path: Path) -> None:
    assert memory_bytes(tmp_path) == MACHINE


def test_this_very_process_may_use_something() -> None:
    assert 0 < memory_bytes() <= MACHINE
