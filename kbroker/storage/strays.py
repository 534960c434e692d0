"""Partition directories that no topic owns, sorted by a start: what a deleted topic left goes, what nobody knows stays.

A kill between the commit of a deletion and the renaming of its directories brings them back, and so does a disk that
was away meanwhile. The metadata log tells that their topic was deleted: they are removed. Of any other origin (another
cluster's, a metadata log from a backup) a directory is renamed to `-stray` and kept, for it may be all that is left of
somebody's records. Apache renames both, and leaves both for ever.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from kbroker.storage import futures
from kbroker.storage.identity import DataDirectoryError
from kbroker.storage.log_dir import DELETED, FUTURE, STRAY, Key, LogDir, blaming, read_topic_id, retired_name
from kbroker.storage.log_dirs import LogDirs

Deleted = Callable[[], Collection[bytes]]
"""The ids of all topics that were ever deleted. Asked only when there is something to be told apart."""


class Strays(NamedTuple):
    moved: list[Path]  # set aside by this start, under their new names
    kept: list[Path]  # set aside by an earlier one
    removed: list[Path]  # a deleted topic's, under their old names


def strays_in(directory: Path) -> list[Path]:
    """What earlier starts, or Apache, have set aside."""
    return sorted(path for path in directory.glob(f"*{STRAY}") if path.is_dir())


def sort_out(log_dirs: LogDirs, owned: Mapping[Key, bytes], deleted: Deleted) -> Strays:
    """So that a new topic of an old name starts empty. Deletes that the last run began are finished.

    A partition that is left in two directories is nobody's to choose from: DataDirectoryError, as Kafka ends there.
    """
    found: list[tuple[LogDir, Path, bytes | None, bool]] = []
    kept: dict[Key, Path] = {}
    copies = ((one.path, *one.key, read_topic_id(one.path)) for one in futures.find(log_dirs.live))
    for path, topic, partition, topic_id in [*copies, *log_dirs.partition_directories()]:
        expected = owned.get((topic, partition))
        if expected is None or (topic_id is not None and topic_id != expected):
            found.append((log_dirs.home_at(path.parent), path, topic_id, False))
        elif path.name.endswith(FUTURE):
            log_dirs.unfinished.add((topic, partition))
        elif (other := kept.setdefault((topic, partition), path)) is not path:
            raise DataDirectoryError(
                f"{topic}-{partition} lies in {other.parent} and in {path.parent}: move one of the two away, "
                "the one whose disk failed if you know of one."
            )
    for home in log_dirs.live:
        found += [(home, path, read_topic_id(path), True) for path in strays_in(home.path)]
    gone = deleted() if any(topic_id is not None for _, _, topic_id, _ in found) else ()
    sorted_out = Strays([], [], [])
    for home, path, topic_id, known in found:
        with blaming(home):
            if topic_id in gone:
                path.rename(retired_name(path, DELETED))  # what is half removed is known by its name
                sorted_out.removed.append(path)
            elif known:
                sorted_out.kept.append(path)
            else:
                sorted_out.moved.append(path.rename(retired_name(path, STRAY)))
    for home in log_dirs.live:
        with blaming(home):
            _finish_deletes(home)
    return sorted_out


def _finish_deletes(home: LogDir) -> None:
    left = list(home.path.glob(f"*{DELETED}"))
    names = [path.name.removesuffix(DELETED).rpartition(".")[0].rpartition("-") for path in left]
    home.strike_out(
        [
            (topic, int(number))
            for topic, _, number in names
            if number.isdecimal() and not (home.path / f"{topic}-{number}").exists()
        ]
    )
    for path in left:
        shutil.rmtree(path, ignore_errors=True)
