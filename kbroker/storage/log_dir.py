"""One data directory: whose it is, that nobody else has it open, what its last stop wrote down.

    meta.properties         cluster.id, node.id, directory.id, version=1; written once, when the directory is formatted
    .lock                   locked while a broker has the directory
    .kafka_cleanshutdown    left by a clean stop with the broker epoch it ended; taken away by the next start
    *-checkpoint            how far each log in it is flushed, committed, trimmed and compacted
    <topic>-<partition>/    one partition; <name>.<uuid>-delete is one being deleted, -stray one no topic owns any more,
                            -future a copy of one that moves here from another directory (`futures`)

What fails here fails the directory, not the broker: `log_dirs` knows the others.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import struct
import sys
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

from kbroker._core.log.health import Health
from kbroker._core.log.partition_log import PartitionLog
from kbroker.storage.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    BrokenCheckpointError,
    Offsets,
    read_offsets,
    read_small,
    sync_directory,
    write_offsets,
)
from kbroker.storage.identity import (
    META_PROPERTIES,
    DataDirectoryError,
    MetaProperties,
    RefusedDirectoryError,
    parse_uuid,
    random_uuid,
    read_meta,
    write_meta,
)

Key = tuple[str, int]

LOCK = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
METADATA_DIRECTORY = "__cluster_metadata-0"
BOOTSTRAP = "bootstrap.checkpoint"
DELETED, STRAY, FUTURE = "-delete", "-stray", "-future"
OWN_PREFIX = ".kbroker"
# Names that an unformatted directory may hold: a file system's own, and the files of a first start that was killed.
_HARMLESS = {
    "lost+found",
    LOCK,
    f"{META_PROPERTIES}.tmp",
    CLEANER_OFFSETS,
    *(f"{name}.tmp" for name in (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS, CLEANER_OFFSETS)),
}
_PARTITION = re.compile(rf".+-[0-9]+|.+\.[0-9a-f]{{32}}({DELETED}|{STRAY}|{FUTURE})")

# What each checkpoint file tells of the logs of one directory.
REACHED: dict[str, Callable[[LogDir, Mapping[Key, PartitionLog]], Offsets]] = {
    RECOVERY_POINTS: lambda home, logs: {
        **_kept(home, home.recovery_points),
        **{key: log.recovery_point for key, log in logs.items()},
    },
    HIGH_WATERMARKS: lambda home, logs: {
        **_kept(home, home.high_watermarks),
        **{key: log.high_watermark for key, log in logs.items()},
    },
    LOG_START_OFFSETS: lambda home, logs: {
        **_kept(home, home.log_start_offsets),
        **{
            key: start
            for key, log in logs.items()
            if (start := max(log.log_start_offset, home.coming_starts.get(key, 0))) > 0
        },
    },
    CLEANER_OFFSETS: lambda home, logs: {
        key: offset for key, offset in home.cleaner_offsets.copy().items() if key in logs
    },
}


def _kept(home: LogDir, offsets: Offsets) -> Offsets:
    """Of partitions that could not be opened: whoever repairs one finds its start and its recovery point again."""
    return {key: offsets[key] for key in home.shut if key in offsets}


class LogDir:
    """One directory, locked. Once it has failed nothing more is written into it; the next start looks at it again."""

    def __init__(self, path: Path, meta: MetaProperties, lock: int, formatted: bool) -> None:
        self.path = path
        self.meta = meta
        self.lock = lock  # -1: it could not be opened
        self.health = Health()
        self.formatted = formatted  # by this start: it was new
        self.clean = False  # the last stop left its marker
        self.previous_broker_epoch = -1
        self.sound = True  # no log in it failed: a clean stop may leave the marker
        self.renewed: set[Key] = set()  # made after the checkpoints, which tell of an earlier topic
        self.shut: set[Key] = set()  # could not be opened: what the checkpoints told of them stays
        self.recovery_points: Offsets = {}
        self.high_watermarks: Offsets = {}
        self.log_start_offsets: Offsets = {}
        self.cleaner_offsets: Offsets = {}  # how far each log is compacted
        self.coming_starts: Offsets = {}  # written down before anybody sees them
        self._written: dict[str, Offsets] = {}  # as the checkpoint files have it
        self.broken: list[BrokenCheckpointError] = []  # checkpoints that were read as if they were empty

    @property
    def failure(self) -> OSError | None:
        """Why it is offline; None: it is not. From any thread."""
        return self.health.failure

    def check(self) -> None:
        """OSError if what lies at its path is not what was opened: unmounted, renamed, removed."""
        found, ours = os.stat(self.path / LOCK), os.fstat(self.lock)
        if (found.st_dev, found.st_ino) != (ours.st_dev, ours.st_ino):
            raise FileNotFoundError(errno.ENOENT, "Another directory has taken its place", str(self.path))

    def write_checkpoints(self, names: Iterable[str], logs: Mapping[Key, PartitionLog]) -> None:
        """What `logs`, all that are open here, have reached; a file that says so already is left alone. OSError."""
        self.check()
        offsets = {name: REACHED[name](self, logs) for name in names}
        changed = {name: reached for name, reached in offsets.items() if self._written.get(name) != reached}
        for name, reached in changed.items():
            write_offsets(self.path / name, reached, sync_name=False)
        if changed:
            sync_directory(self.path)
        self._written.update(changed)

    def strike_out(self, keys: Collection[Key]) -> None:
        """At a start: partitions whose deletion the last run began, before their files go. OSError.

        Else a start after the next kill would find neither, and take a topic of such a name that is still to be made
        for one that has lost its records.
        """
        flushed = any(self.recovery_points.get(key) for key in keys)
        for key in keys:
            self.forget(key)
        if flushed:
            write_offsets(self.path / RECOVERY_POINTS, self.recovery_points)

    def forget(self, key: Key) -> None:
        """It is deleted: what the checkpoints told of it says nothing of a partition to come."""
        self.shut.discard(key)
        for offsets in (self.recovery_points, self.high_watermarks, self.log_start_offsets, self.cleaner_offsets):
            offsets.pop(key, None)


@contextlib.contextmanager
def blaming(home: LogDir) -> Iterator[None]:
    """What the disk refuses takes the directory offline; what else may be missing will be tried again."""
    try:
        yield
    except OSError as problem:
        home.health.fail(problem, problem.filename or home.path)


def identify(path: Path, node_id: int | None = None) -> MetaProperties | None:
    """Returns the meta.properties of a data directory, or None if the directory is absent or may be formatted.

    Raises DataDirectoryError if the directory must not be used: its meta.properties is damaged, it belongs to another
    node, it has lost its meta.properties, or its files are not a broker's. Writes nothing: `kbroker start` calls it
    before the first write, `kbroker doctor` calls it to report.
    """
    try:
        names = sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return None  # make() creates the directory, or reports why it cannot
    except OSError as problem:
        sentence = f"The data directory {path} cannot be read: {problem.strerror}."
        raise RefusedDirectoryError(sentence, problem) from None
    meta = read_meta(path)
    if meta is not None:
        if node_id not in (None, meta.node_id):
            raise DataDirectoryError(f"{path} belongs to node {meta.node_id}, but this broker's node.id is {node_id}.")
        return meta
    trace = _trace_of_data(path)
    if trace is not None:
        raise DataDirectoryError(
            f"{path} has no {META_PROPERTIES} but holds {trace}: it is not safe to format it; restore the file."
        )
    foreign = [name for name in names if name not in _HARMLESS and not name.startswith(OWN_PREFIX)]
    if foreign:
        others = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise DataDirectoryError(
            f"{path} is not a data directory: it holds {foreign[0]}{others}; name an empty or a new directory."
        )
    return None


def make(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise RefusedDirectoryError(f"The data directory {path} cannot be made: {problem.strerror}.", problem) from None


def lock(path: Path) -> int:
    try:
        descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as problem:
        sentence = f"The data directory {path} cannot be written: {problem.strerror}."
        raise RefusedDirectoryError(sentence, problem) from None
    try:
        _lock_exclusively(descriptor)
    except OSError:
        os.close(descriptor)
        raise DataDirectoryError(f"The data directory {path} is in use by another broker.") from None
    return descriptor


def _lock_exclusively(descriptor: int) -> None:
    """A lock of the open file, which keeps out other brokers of this process as well as Apache, whose lock is fcntl's.

    An ordinary fcntl lock would not do: it is the process's, and closing any descriptor of the file gives it up.
    """
    _set_lock(descriptor, fcntl.F_WRLCK, fcntl.LOCK_EX | fcntl.LOCK_NB)


def unlock(descriptor: int) -> None:
    """Unlocks the file, then closes it: a forked process may hold a copy of the descriptor, and with it the lock."""
    with contextlib.suppress(OSError):
        _set_lock(descriptor, fcntl.F_UNLCK, fcntl.LOCK_UN)
    os.close(descriptor)


def _set_lock(descriptor: int, kind: int, flock_operation: int) -> None:
    if hasattr(fcntl, "F_OFD_SETLK"):
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, flock_of(kind))
            return
        except OSError as problem:
            if problem.errno != errno.EINVAL:  # the kernel is older than the headers of this CPython
                raise
    fcntl.flock(descriptor, flock_operation)


def flock_of(kind: int, platform: str = sys.platform) -> bytes:
    """Returns C's `struct flock` for a lock of the whole file. The order of its fields differs on macOS."""
    if platform == "darwin":
        return struct.pack("qqihh", 0, 0, 0, kind, os.SEEK_SET)  # l_start, l_len, l_pid, l_type, l_whence
    return struct.pack("hhqqi", kind, os.SEEK_SET, 0, 0, 0)  # l_type, l_whence, l_start, l_len, l_pid


def admit(path: Path, lock: int, meta: MetaProperties | None, node_id: int, cluster_id: str) -> LogDir:
    """Opens a locked directory; formats it if `meta`, the answer of `identify`, is None."""
    formatted = meta is None
    if meta is None:
        meta = MetaProperties(cluster_id, node_id, random_uuid())
        write_meta(path, meta)
    if meta.cluster_id != cluster_id:
        raise DataDirectoryError(f"{path} belongs to cluster {meta.cluster_id}, not to {cluster_id}.")
    home = LogDir(path, meta, lock, formatted)
    home.recovery_points = _offsets(home, RECOVERY_POINTS)  # without it everything is read through
    home.high_watermarks = _offsets(home, HIGH_WATERMARKS)  # whoever leads finds it again
    home.log_start_offsets = _offsets(home, LOG_START_OFFSETS)  # a log begins with its first segment
    home.cleaner_offsets = _offsets(home, CLEANER_OFFSETS)  # everything is compacted once more
    home.clean, home.previous_broker_epoch = _read_marker(path / CLEAN_SHUTDOWN)
    return home


def _offsets(home: LogDir, name: str) -> Offsets:
    """As Kafka: a checkpoint that cannot be read is as good as none, and somebody is told."""
    try:
        return read_offsets(home.path / name)
    except BrokenCheckpointError as problem:
        home.broken.append(problem)
        return {}


def _trace_of_data(path: Path) -> str | None:
    """What tells that a directory without an owner's name had one."""
    names = {METADATA_DIRECTORY, BOOTSTRAP, CLEAN_SHUTDOWN, RECOVERY_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS}
    files = (name for name in sorted(names) if os.path.lexists(path / name))
    return next(partitions_in(path), None) or next(files, None)


def directories_in(path: Path) -> list[str]:
    """A name that leads nowhere, or in a circle, is none."""
    return sorted(name for name in os.listdir(path) if os.path.isdir(path / name))


def partitions_in(path: Path) -> Iterator[str]:
    """Names that only partitions have, the cluster's metadata among them, whether they are served or set aside."""
    return (name for name in directories_in(path) if _PARTITION.fullmatch(name))


def read_topic_id(partition_directory: Path) -> bytes | None:
    """From partition.metadata; None when there is none yet."""
    try:
        with open(f"{partition_directory}/partition.metadata", "rb", buffering=0) as file:
            lines = file.read(4096).decode().splitlines()
        values = dict(line.split(": ", 1) for line in lines)
        return parse_uuid(values["topic_id"])
    except (OSError, ValueError, KeyError, DataDirectoryError):
        return None


def retired_name(path: Path, suffix: str) -> Path:
    """Kafka cuts the topic's name so that the directory's stays within 255 bytes."""
    unique = f".{uuid.uuid4().hex}{suffix}"
    return path.with_name(path.name[: 255 - len(unique)] + unique)


def _read_marker(path: Path) -> tuple[bool, int]:
    try:
        text = read_small(path).decode()
    except OSError:
        return False, -1
    except UnicodeDecodeError:
        text = ""
    try:
        return True, int(json.loads(text)["brokerEpoch"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return True, -1  # an older Kafka leaves the file empty
