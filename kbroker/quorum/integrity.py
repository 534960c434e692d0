"""Is the metadata log whole? Asked before anything is opened for writing, for opening cuts off what cannot be read.

A crash may tear the end of the log: the last batches, written and never committed. That alone is cut. Everything else
means that decisions are missing which this node has answered for, and a cluster that goes on without them would lose
topics: so it is refused, with the place and the reason.

    cut         bytes behind the last good batch, after a stop that was not clean, with nothing good behind them
    refused     a bad batch before a good one, or before another segment; any bad byte after a clean stop; offsets that
                are missing; an end that another file contradicts (a snapshot, the marker of a clean stop, the
                directory of a topic the log never heard of); no log at all beside somebody's partitions
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from kbroker._core.log.examine import Examination
from kbroker.protocol.records import TopicRecord
from kbroker.quorum.frames import BrokenMetadataError, read_batches
from kbroker.quorum.snapshot import find_snapshots, read_snapshot

_SEGMENT = re.compile(r"(\d{20})\.log")


class TornTail(NamedTuple):
    """What a crash left behind the last good batch."""

    path: Path
    position: int
    offset: int
    bytes: int
    reason: str


def segments_of(directory: Path) -> list[tuple[int, Path]]:
    """(base offset, file), ascending."""
    if not directory.is_dir():
        return []
    found = ((_SEGMENT.fullmatch(path.name), path) for path in directory.iterdir())
    return sorted((int(name[1]), path) for name, path in found if name is not None)


def find_torn_tail(directory: Path, *, clean: bool) -> TornTail | None:
    """What the next opening will cut off. BrokenMetadataError: it would cut more than a crash can tear."""
    segments = segments_of(directory)
    swap = next(iter(sorted(directory.glob("*.swap"))), None)
    if swap is not None:  # whoever opens a log puts it in a segment's place
        raise BrokenMetadataError(f"{swap.name} is of a compaction, which this log never had; remove it")
    expected = segments[0][0] if segments else 0
    for number, (base_offset, path) in enumerate(segments):
        if base_offset != expected:
            raise BrokenMetadataError(
                f"offsets {expected} to {base_offset - 1} are missing before {path.name}; restore them from a backup"
            )
        walk = Examination(path, base_offset, in_depth=False)
        while walk.step():
            pass
        damage = next((fault for fault in walk.faults if fault.suffix == ".log"), None)
        last = number == len(segments) - 1
        if damage is not None and (clean or not last or walk.good_behind_damage):
            why = "although the last stop was clean" if clean else "with good batches behind it"
            raise BrokenMetadataError(
                f"{path} is damaged at byte {damage.position}, offset {damage.offset} ({damage.reason}), "
                f"{why if last else 'with a later segment behind it'}; restore it from a backup"
            )
        if walk.first_gap >= 0:
            raise BrokenMetadataError(f"{path} lacks offset {walk.first_gap}; restore it from a backup")
        if damage is not None:
            return TornTail(path, damage.position, damage.offset, walk.size_bytes - damage.position, damage.reason)
        expected = walk.next_offset
    return None


def must_explain(directory: Path, torn: TornTail, topic_ids: Collection[bytes]) -> None:
    """Partitions get their directories when their topic is committed: one of a topic the log never mentions tells that
    what looks torn was committed.
    """
    known: set[bytes] = set()
    for one in find_snapshots(directory)[-1:]:
        known |= {
            record.topic_id for record in read_snapshot(directory / one.file_name) if isinstance(record, TopicRecord)
        }
    for _, path in segments_of(directory):
        with path.open("rb") as file:
            data = file.read(torn.position if path == torn.path else -1)
        for batch in read_batches(data):
            known |= {record.topic_id for record in batch.records if isinstance(record, TopicRecord)}
    if not known.issuperset(topic_ids):
        raise BrokenMetadataError(
            f"{torn.path} is damaged at byte {torn.position}, offset {torn.offset} ({torn.reason}), and the "
            "partitions of a topic lie here that it does not mention; restore it from a backup"
        )
