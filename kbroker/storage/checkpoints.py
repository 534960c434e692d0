"""Small text files that are replaced whole: offset checkpoints, and the way every such file is written.

recovery-point-offset-checkpoint   everything below is on disk       replication-offset-checkpoint   high watermarks
log-start-offset-checkpoint        first offset, where it is not     cleaner-offset-checkpoint       compacted so far
                                   the first segment's

0                    version
2                    count
orders 0 4711        topic partition offset
orders 1 815
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from pathlib import Path

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"

SMALL_FILE_MAX_BYTES = 64 << 20  # a checkpoint of a million partitions
Offsets = dict[tuple[str, int], int]
_PARTITION = re.compile(r"[0-9]{1,10}")
_OFFSET = re.compile(r"[0-9]{1,18}")


class BrokenCheckpointError(ValueError):
    """A checkpoint file that does not hold what it should."""


def write_whole(path: Path, content: bytes, *, sync_name: bool = True) -> None:
    """Replaces the file: a reader, or a crash at any moment, finds the old content or the new.

    It is durable when this returns; without `sync_name` when its directory is synced.
    """
    temporary = path.with_name(path.name + ".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        written = 0
        while written < len(content):
            written += os.write(descriptor, content[written:])
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(temporary, path)
    if sync_name:
        sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Makes renames, new and removed names inside it durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_small(path: Path, most: int = SMALL_FILE_MAX_BYTES) -> bytes:
    """All of a file that is never large. OSError, also for one that is: damage must not fill the memory."""
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return content


def read_offsets(path: Path) -> Offsets:
    """The file's offsets; none when there is no file, or when it is empty (a crash may leave it so)."""
    try:
        lines = read_small(path).decode().splitlines()
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError:
        raise BrokenCheckpointError(f"{path} is not text.") from None
    except OSError as problem:
        raise BrokenCheckpointError(f"{path} cannot be read: {problem.strerror}.") from None
    if not lines:
        return {}
    try:
        version, count = int(lines[0]), int(lines[1])
        entries = [_entry(line) for line in lines[2:] if line.strip()]
    except (ValueError, IndexError):
        raise BrokenCheckpointError(f"{path} is not an offset checkpoint.") from None
    if version != 0 or count != len(entries) or count != len(dict(entries)):
        raise BrokenCheckpointError(f"{path} says version {version} and {count} entries, but holds {len(entries)}.")
    return dict(entries)


def _entry(line: str) -> tuple[tuple[str, int], int]:
    topic, partition, offset = line.split()
    if _PARTITION.fullmatch(partition) is None or _OFFSET.fullmatch(offset) is None:
        raise ValueError(line)
    return (topic, int(partition)), int(offset)


def write_offsets(path: Path, offsets: Mapping[tuple[str, int], int], *, sync_name: bool = True) -> None:
    lines = [f"{topic} {partition} {offset}\n" for (topic, partition), offset in offsets.items()]
    write_whole(path, f"0\n{len(offsets)}\n{''.join(lines)}".encode(), sync_name=sync_name)
