"""What happens to the files while the broker is down: some vanish or lose their end."""

from __future__ import annotations

import random
from pathlib import Path

CHECKPOINTS = ("recovery-point-offset-checkpoint", "cleaner-offset-checkpoint", "replication-offset-checkpoint")
METADATA = "__cluster_metadata-0"
CLEAN_MARKER = ".kafka_cleanshutdown"


def was_clean(directory: Path) -> bool:
    return (directory / CLEAN_MARKER).exists()


def partition_files(data: Path) -> list[Path]:
    """Of partitions that some topic owns: not of those that are being deleted or were set aside."""
    return sorted(path for path in data.glob("*/*-[0-9]/*") if path.is_file() and path.parent.name != METADATA)


def harm(data: Path, chance: random.Random) -> list[Path]:
    """Every one can be made anew: indexes from their log; producer snapshots too, unless the files are believed."""
    believed = [".index", ".timeindex"]
    there = [
        path
        for path in partition_files(data)
        if path.suffix in believed or (path.suffix == ".snapshot" and not was_clean(path.parent.parent))
    ]
    harmed = chance.sample(there, min(len(there), chance.randint(1, 40)))
    for path in harmed:
        size = path.stat().st_size
        if size == 0 or chance.random() < 0.5:
            path.unlink()
        elif path.suffix == ".index":
            _cut(path, chance.randrange(size))  # a sparser one is a sound one
        else:
            _cut(path, chance.choice((0, size - chance.randint(1, 11))))  # whole entries less: nobody could tell
    for directory in sorted(data.iterdir()):
        for name in CHECKPOINTS if not was_clean(directory) else ():
            if chance.random() < 0.2:
                (directory / name).unlink(missing_ok=True)
    return harmed


def _cut(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(max(size, 0))
