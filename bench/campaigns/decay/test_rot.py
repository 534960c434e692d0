"""A draw does the same again, to any directory that was made the same way."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from bench.campaigns.decay.rot import METADATA, choose, harm

ROOMS = ("plain-0", "paid-0", "__transaction_state-0", METADATA)
BASES = (0, 9, 18)
DRAWS = [f"{seed}/{number}" for seed in (1, 23) for number in range(60)]


def names() -> list[str]:
    segments = [
        f"{room}/{base:020d}{suffix}"
        for room in ROOMS
        for base in BASES
        for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    ]
    beside = [f"{room}/{name}" for room in ROOMS for name in ("leader-epoch-checkpoint", "partition.metadata")]
    return [*segments, *beside, "meta.properties", "recovery-point-offset-checkpoint", ".kafka_cleanshutdown"]


def make(directory: Path, chance: random.Random) -> Path:
    """In any order, with contents of its own."""
    for name in chance.sample(names(), len(names())):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(chance.randbytes(800))
    return directory


def state_of(path: Path, before: bytes | None) -> object:
    """What was done to it, whatever stood in it before: which bytes changed, its size, what it points to."""
    if path.is_symlink():
        return path.readlink()
    if path.is_dir():
        return sorted(one.name for one in path.iterdir())
    data = path.read_bytes() if path.stat().st_size < 1 << 20 else b""
    return path.stat().st_size, [i for i, (one, two) in enumerate(zip(data, before or b"", strict=False)) if one != two]


@pytest.mark.parametrize("draw", DRAWS)
def test_the_same_draw_does_the_same_to_another_directory(tmp_path: Path, draw: str) -> None:
    one, two = (make(tmp_path / name, random.Random(name)) for name in ("one", "two"))
    before = {path: path.read_bytes() for path in (*one.rglob("*"), *two.rglob("*")) if path.is_file()}

    done = harm(one, draw)

    assert harm(two, draw) == done
    for where in {each.where for each in done if each.how in ("flip", "truncate", "become_loop", "extend_by_zeros")}:
        if not os.path.lexists(one / where) or before.get(one / where) is None:
            continue
        assert state_of(one / where, before[one / where]) == state_of(two / where, before[two / where])
    listed = [sorted(str(path.relative_to(top)) for path in top.rglob("*")) for top in (one, two)]
    assert listed[0] == listed[1]


def test_a_name_more_changes_only_what_it_wins() -> None:
    names = [f"file-{number}" for number in range(20)]
    other = [name for number in range(200) if (name := _chosen([*names, "one-more"], number)) != _chosen(names, number)]
    assert set(other) == {"one-more"}
    assert len(other) < 30


def _chosen(names: list[str], number: int) -> str:
    (name,) = choose(names, random.Random(number))
    return name
