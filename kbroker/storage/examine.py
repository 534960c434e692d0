"""A data directory read from end to end without changing it: every batch, index entry and small file.

`kbroker doctor --deep` prints what is found here. A finding names a file, where in it, which offset is the first one
affected, what does not add up, and what to do about it: nothing, when the next start makes the file anew by itself.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from kbroker._core.log.examine import Examination
from kbroker._core.record.crc32c import checksum
from kbroker._core.record.records import BrokenRecords, iterate
from kbroker.storage.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    BrokenCheckpointError,
    Offsets,
    read_offsets,
    read_small,
)
from kbroker.storage.identity import DataDirectoryError, parse_uuid, read_meta
from kbroker.storage.log_dir import CLEAN_SHUTDOWN, METADATA_DIRECTORY

ADVICE_LOG = (
    "consumers that check checksums stop here: restore the segment from a backup, or delete records up to behind it"
)
ADVICE_TAIL = "if the last stop was a crash, the next start cuts it off"
ADVICE_ANEW = "remove the file while the broker is stopped: the next start makes it anew"
ADVICE_NONE = "nothing to do: the next start makes it anew"
ADVICE_RESTORE = "restore it from a backup: the broker does not start without it"
ADVICE_PARTITION = "restore it from another partition of the topic: this one is offline without it"
_SEGMENT_FILE = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)")
_PARTITION_NAME = re.compile(r"(.+)-(\d{1,10})")
_LEFTOVER = (".deleted", ".cleaned", ".swap", ".tmp")
_TXN_ENTRY = struct.Struct(">hqqqq")
_STEP_BYTES = 64 << 20

Progress = Callable[[int], None]
"""Told how many more bytes of logs were read."""


class Finding(NamedTuple):
    path: Path
    position: int  # -1: the file as a whole
    offset: int  # -1: none is affected
    what: str
    advice: str


class Report(NamedTuple):
    findings: list[Finding]
    partitions: int
    segments: int
    batches: int
    records: int
    bytes: int


class Segment(NamedTuple):
    path: Path  # of the .log
    base_offset: int
    is_last: bool
    size_bytes: int


class _Read(NamedTuple):
    segment: Segment
    findings: list[Finding]
    batches: int
    records: int
    next_offset: int
    epochs: list[tuple[int, int]]
    sound: bool


def partition_directories(directory: Path) -> list[Path]:
    """The metadata log among them."""
    return sorted(path for path in directory.iterdir() if path.is_dir() and _PARTITION_NAME.fullmatch(path.name))


def segments_in(directory: Path) -> list[Segment]:
    found = []
    for path in directory.iterdir():
        name = _SEGMENT_FILE.fullmatch(path.name)
        if name is not None and name[2] == ".log":
            found.append((int(name[1]), path))
    found.sort()
    return [
        Segment(path, base, number == len(found) - 1, path.stat().st_size if path.is_file() else 0)
        for number, (base, path) in enumerate(found)
    ]


def size_of(directory: Path) -> int:
    """Bytes of logs that an examination reads."""
    return sum(one.size_bytes for path in partition_directories(directory) for one in segments_in(path))


def examine(directory: Path, progress: Progress = lambda _: None, *, threads: int | None = None) -> Report:
    """Everything but the contents of the metadata log, which quorum/examine knows. OSError: it cannot be looked at."""
    findings = [*_examine_identity(directory), *_examine_checkpoints(directory)]
    clean = (directory / CLEAN_SHUTDOWN).is_file()
    partitions = partition_directories(directory)
    segments = [one for path in partitions for one in segments_in(path)]
    reads: dict[Path, list[_Read]] = {path: [] for path in partitions}
    with ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:
        running = {pool.submit(_read_segment, one, clean, progress) for one in segments}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for one in done:
                read = one.result()
                reads[read.segment.path.parent].append(read)
    for path, found in reads.items():
        found.sort(key=lambda read: read.segment.base_offset)
        for read in found:
            findings += read.findings
        findings += _examine_partition(path, found, clean)
    counted = [read for found in reads.values() for read in found]
    return Report(
        findings,
        len(partitions),
        len(segments),
        sum(read.batches for read in counted),
        sum(read.records for read in counted),
        sum(read.segment.size_bytes for read in counted),
    )


# ---- one segment ----


def _read_segment(segment: Segment, clean: bool, progress: Progress) -> _Read:
    path = segment.path
    findings: list[Finding] = []
    indexes = [
        _read_index(path.with_suffix(suffix), width, findings) for suffix, width in ((".index", 8), (".timeindex", 12))
    ]
    try:
        walk = Examination(path, segment.base_offset, *indexes)
        before, more = 0, True
        while more:
            more = walk.step(_STEP_BYTES)
            findings += _inflate_by_python(path, walk.unread)
            progress(walk.position - before)
            before = walk.position
    except OSError as problem:
        findings.append(Finding(path, -1, segment.base_offset, f"cannot be read: {problem.strerror}", ADVICE_LOG))
        return _Read(segment, findings, 0, 0, segment.base_offset, [], False)
    for fault in walk.faults:
        advice = ADVICE_NONE if segment.is_last and not clean else ADVICE_ANEW
        if fault.suffix == ".log":
            torn = segment.is_last and not clean and not walk.good_behind_damage and walk.damaged_at >= 0
            advice = ADVICE_TAIL if torn else ADVICE_RESTORE if path.parent.name == METADATA_DIRECTORY else ADVICE_LOG
        where = path.with_suffix(fault.suffix)
        findings.append(Finding(where, fault.position, fault.offset, fault.reason, advice))
    if walk.fault_count > len(walk.faults):
        more_faults = walk.fault_count - len(walk.faults)
        findings.append(Finding(path, -1, -1, f"{more_faults} more of the kind", ADVICE_LOG))
    sound = walk.damaged_at < 0
    if sound and not segment.is_last and segment.size_bytes:
        findings += _examine_last_time(path, indexes[1], walk.max_timestamp)
    findings += _examine_txnindex(
        path.with_suffix(".txnindex"), segment.base_offset, walk.next_offset if sound else None
    )
    return _Read(segment, findings, walk.batches, walk.records, walk.next_offset, walk.epochs, sound)


def _read_index(path: Path, width: int, findings: list[Finding]) -> bytes:
    try:
        data = read_small(path)
    except FileNotFoundError:
        return b""
    except OSError as problem:
        findings.append(Finding(path, -1, -1, f"cannot be read: {problem.strerror}", ADVICE_ANEW))
        return b""
    if len(data) % width:
        findings.append(
            Finding(path, len(data) // width * width, -1, f"ends within an entry of {width} bytes", ADVICE_NONE)
        )
    return data[: len(data) // width * width]


def _inflate_by_python(path: Path, positions: Sequence[int]) -> Iterator[Finding]:
    """Batches of a codec that has no native library on this machine."""
    if not positions:
        return
    with path.open("rb") as file:
        for position in positions:
            file.seek(position)
            head = file.read(12)
            base_offset, length = struct.unpack(">qi", head)
            try:
                iterate(head + file.read(length))
            except BrokenRecords as problem:
                yield Finding(path, position, base_offset, str(problem), ADVICE_LOG)


def _examine_last_time(path: Path, times: bytes, max_timestamp: int) -> Iterator[Finding]:
    held = times.rstrip(b"\0")
    last = -(-len(held) // 12) * 12 - 12
    indexed = struct.unpack_from(">q", times, last)[0] if last >= 0 else -1
    if path.with_suffix(".timeindex").is_file() and indexed < max_timestamp:
        where = path.with_suffix(".timeindex")
        yield Finding(where, max(last, 0), -1, "does not end in the segment's largest timestamp", ADVICE_ANEW)


def _examine_txnindex(path: Path, base_offset: int, next_offset: int | None) -> Iterator[Finding]:
    """Aborted transactions: version, producer id, first and last offset, last stable offset."""
    try:
        data = read_small(path)
    except FileNotFoundError:
        return
    except OSError as problem:
        yield Finding(path, -1, -1, f"cannot be read: {problem.strerror}", ADVICE_ANEW)
        return
    whole = len(data) // _TXN_ENTRY.size * _TXN_ENTRY.size
    if whole != len(data):
        yield Finding(path, whole, -1, f"ends within an entry of {_TXN_ENTRY.size} bytes", ADVICE_ANEW)
    before = -1
    for position, (version, producer_id, first, last, _) in enumerate(_TXN_ENTRY.iter_unpack(data[:whole])):
        where = position * _TXN_ENTRY.size
        if version != 0 or producer_id < 0 or not 0 <= first <= last:
            yield Finding(path, where, -1, "an entry makes no sense", ADVICE_ANEW)
            return
        if last <= before or last < base_offset or (next_offset is not None and last >= next_offset):
            yield Finding(path, where, last, "an entry does not fit the log", ADVICE_ANEW)
            return
        before = last


# ---- one partition ----


def _examine_partition(directory: Path, reads: list[_Read], clean: bool) -> Iterator[Finding]:
    for read, behind in pairwise(reads):
        reached = behind.segment.base_offset
        if read.sound and read.next_offset > reached:  # the one behind begins where its name says: this one is too long
            what = f"reaches into {behind.segment.path.name}: it ends at {read.next_offset}"
            yield Finding(read.segment.path, -1, reached, what, ADVICE_LOG)
    end = reads[-1].next_offset if reads and reads[-1].sound else None
    bases = {read.segment.base_offset for read in reads}
    for path in sorted(directory.iterdir()):
        name = _SEGMENT_FILE.fullmatch(path.name)
        if name is not None and name[2] == ".snapshot":
            yield from examine_snapshot(path, end)
        elif name is not None and int(name[1]) not in bases:
            yield Finding(path, -1, int(name[1]), "there is no log beside it", ADVICE_NONE)
        elif path.name.endswith(_LEFTOVER) and clean and not path.name.endswith(".deleted"):
            yield Finding(
                path, -1, -1, "is left of something interrupted", "nothing to do: the next start deals with it"
            )
    yield from _examine_epochs(
        directory / "leader-epoch-checkpoint", reads if clean else [], end
    )  # a crash forgets some
    yield from _examine_topic_id(directory / "partition.metadata")
    if not reads:
        yield Finding(directory, -1, -1, "holds no log", "restore it from a backup: it would start empty")


def examine_snapshot(path: Path, end_offset: int | None = None) -> Iterator[Finding]:
    """Producer state: int16 version 1, crc32c of the rest, a count, entries of 46 bytes."""
    try:
        data = read_small(path)
    except OSError as problem:
        yield Finding(path, -1, -1, f"cannot be read: {problem.strerror}", ADVICE_NONE)
        return
    if len(data) < 10 or struct.unpack_from(">h", data)[0] != 1:
        yield Finding(path, 0, -1, "is no snapshot of producers of version 1", ADVICE_NONE)
        return
    if struct.unpack_from(">I", data, 2)[0] != checksum(data[6:]):
        yield Finding(path, 2, -1, "does not match its checksum", ADVICE_NONE)
    elif len(data) != 10 + 46 * struct.unpack_from(">i", data, 6)[0]:
        yield Finding(path, 6, -1, "does not hold as many producers as it says", ADVICE_NONE)
    elif end_offset is not None and int(path.name[:20]) > end_offset:
        yield Finding(path, -1, int(path.name[:20]), f"is of an offset behind the log's end, {end_offset}", ADVICE_NONE)


def read_epochs(path: Path) -> list[tuple[int, int]]:
    """(epoch, start offset); ValueError when the file is not of this form."""
    words = read_small(path).decode("ascii").split()
    numbers = [int(word) if re.fullmatch(r"[0-9]{1,18}", word) else -1 for word in words]
    if len(numbers) < 2 or -1 in numbers or numbers[0] != 0 or len(numbers) != 2 + 2 * numbers[1]:
        raise ValueError("is not a leader-epoch checkpoint")
    return list(zip(numbers[2::2], numbers[3::2], strict=True))


def _examine_epochs(path: Path, reads: list[_Read], end: int | None) -> Iterator[Finding]:
    try:
        entries = read_epochs(path)
    except FileNotFoundError:
        if any(read.segment.size_bytes for read in reads):
            yield Finding(path, -1, -1, "is missing", ADVICE_NONE)
        return
    except OSError as problem:
        yield Finding(path, -1, -1, f"cannot be read: {problem.strerror}", "remove it: the next start makes it anew")
        return
    except ValueError:
        yield Finding(path, 0, -1, "is not a leader-epoch checkpoint", ADVICE_NONE)
        return
    if any(one >= two or start > behind for (one, start), (two, behind) in pairwise(entries)):
        yield Finding(path, -1, -1, "its entries do not ascend", ADVICE_ANEW)
        return
    if end is not None and entries and entries[-1][1] > end:
        yield Finding(path, -1, entries[-1][1], f"tells of an epoch behind the log's end, {end}", ADVICE_NONE)
    starts = dict(entries)
    for read in reads:
        for epoch, offset in read.epochs:
            kept = bool(entries) and offset >= entries[0][1]  # what was deleted below the start is told of no more
            if read.sound and kept and (epoch not in starts or starts[epoch] > offset):
                yield Finding(
                    path, -1, offset, f"does not tell that epoch {epoch} began by offset {offset}", ADVICE_ANEW
                )
                return


def _examine_topic_id(path: Path) -> Iterator[Finding]:
    try:
        lines = read_small(path).decode("ascii").splitlines()
        values = dict(line.split(": ", 1) for line in lines)
        parse_uuid(values["topic_id"])
        if values["version"] != "0":
            raise ValueError("version")
    except FileNotFoundError:
        yield Finding(path, -1, -1, "is missing", ADVICE_NONE)
    except OSError as problem:
        yield Finding(path, -1, -1, f"cannot be read: {problem.strerror}", ADVICE_PARTITION)
    except (ValueError, KeyError, DataDirectoryError):
        yield Finding(path, 0, -1, "does not tell the topic's id", ADVICE_PARTITION)


# ---- the directory ----


def _examine_identity(directory: Path) -> Iterator[Finding]:
    try:
        meta = read_meta(directory)
    except DataDirectoryError as problem:
        yield Finding(directory / "meta.properties", -1, -1, str(problem).rstrip("."), ADVICE_RESTORE)
        return
    if meta is None:
        yield Finding(directory / "meta.properties", -1, -1, "is missing", ADVICE_RESTORE)


def _examine_checkpoints(directory: Path) -> Iterator[Finding]:
    told: dict[str, Offsets] = {}
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS, CLEANER_OFFSETS):
        try:
            told[name] = read_offsets(directory / name)
        except BrokenCheckpointError as problem:
            said = str(problem).removeprefix(str(directory / name)).strip(" .")
            yield Finding(directory / name, -1, -1, said, ADVICE_NONE)
    there = {path.name for path in partition_directories(directory)} - {METADATA_DIRECTORY}
    for (topic, partition), offset in told.get(RECOVERY_POINTS, {}).items():
        where = directory / f"{topic}-{partition}"
        if offset > 0 and where.name not in there:
            yield Finding(
                where, -1, offset, "is missing, but was flushed up to this offset", "restore it from a backup"
            )
            continue
        segments = segments_in(where) if where.name in there else []
        start = told.get(LOG_START_OFFSETS, {}).get((topic, partition), 0)
        if segments and segments[-1].size_bytes == 0 and segments[-1].base_offset < offset:
            yield Finding(
                segments[-1].path,
                0,
                offset,
                f"is empty, but was flushed up to offset {offset}",
                "restore it from a backup",
            )
        if start > offset:
            path = directory / LOG_START_OFFSETS
            yield Finding(
                path,
                -1,
                start,
                f"{where.name} starts behind what was flushed, {offset}",
                "check the number: the start drops what is before it",
            )
