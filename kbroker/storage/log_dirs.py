"""A broker's data directories: whose they are, that nobody else has them open, and the partition logs inside.

    meta.properties         cluster.id, node.id, directory.id, version=1; written once, when the directory is formatted
    .lock                   locked while a broker has the directory
    .kafka_cleanshutdown    left by a clean stop with the broker epoch it ended; taken away by the next start
    <topic>-<partition>/    one partition; <name>.<uuid>-delete is one being deleted, -stray one no topic owns any more

Every function may be called from a worker thread, but from one at a time: the edge that owns a LogDirs sees to that.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import struct
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kbroker._core.clock import BrokerClock
from kbroker._core.log.health import Health
from kbroker._core.log.open_files import FileBudget
from kbroker._core.log.partition_log import LogError, PartitionLog
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
    write_whole,
)
from kbroker.storage.identity import (
    META_PROPERTIES,
    DataDirectoryError,
    MetaProperties,
    RefusedDirectoryError,
    format_uuid,
    parse_uuid,
    random_uuid,
    read_meta,
    write_meta,
)
from kbroker.storage.removal import Remover
from kbroker.storage.turns import Turns

LOCK = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
METADATA_DIRECTORY = "__cluster_metadata-0"
BOOTSTRAP = "bootstrap.checkpoint"
DELETED, STRAY, FUTURE = "-delete", "-stray", "-future"
_INDEX = re.compile(r"[0-9]{1,10}")
_PARTITION = re.compile(rf".+-[0-9]+|.+\.[0-9a-f]{{32}}({DELETED}|{STRAY}|{FUTURE})")

# What each checkpoint file tells of the logs of one directory.
_REACHED: dict[str, Callable[[LogDir, dict[tuple[str, int], PartitionLog]], Offsets]] = {
    RECOVERY_POINTS: lambda home, logs: {
        **_told(home, home.recovery_points),
        **{key: log.recovery_point for key, log in logs.items()},
    },
    HIGH_WATERMARKS: lambda home, logs: {
        **_told(home, home.high_watermarks),
        **{key: log.high_watermark for key, log in logs.items()},
    },
    LOG_START_OFFSETS: lambda home, logs: {
        **_told(home, home.log_start_offsets),
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


# What an open that failed says of the directory and not of one partition in it.
_OF_THE_DISK = {
    errno.EDQUOT,
    errno.EIO,
    errno.ENODEV,
    errno.ENOSPC,
    errno.ENOTCONN,
    errno.ENXIO,
    errno.EROFS,
    errno.ESTALE,
}


def _told(home: LogDir, offsets: Offsets) -> Offsets:
    """Of partitions that could not be opened: whoever repairs one finds its start and its recovery point again."""
    return {key: offsets[key] for key in home.shut if key in offsets}


class OfflineDirectoryError(Exception):
    """A partition's directory is offline or not among ours. Whoever opens is not to make the partition elsewhere."""


OPENING_FAILS = (OSError, ValueError, LogError, OfflineDirectoryError)  # of one log: the others are not to suffer


class Opening(NamedTuple):
    """A partition whose log is wanted."""

    topic: str
    partition: int
    topic_id: bytes
    config: dict[str, object]
    directory_id: bytes | None = None
    new: bool = False  # nobody has seen it before: it may be put anywhere

    @property
    def key(self) -> tuple[str, int]:
        return (self.topic, self.partition)


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
        self.renewed: set[tuple[str, int]] = set()  # made after the checkpoints, which tell of an earlier topic
        self.shut: set[tuple[str, int]] = set()  # could not be opened: what the checkpoints told of them stays
        self.recovery_points: Offsets = {}
        self.high_watermarks: Offsets = {}
        self.log_start_offsets: Offsets = {}
        self.cleaner_offsets: Offsets = {}  # how far each log is compacted
        self.coming_starts: Offsets = {}  # written down before anybody sees them
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


class LogDirs:
    """The directories of one broker and the partition logs open in them."""

    def __init__(self, dirs: list[LogDir], clock: BrokerClock, needed: Path | None = None) -> None:
        self.dirs = dirs
        self._needed = needed  # without it nothing goes on
        self.logs: dict[tuple[str, int], PartitionLog] = {}
        self._home: dict[tuple[str, int], LogDir] = {}
        self.clock = clock
        self._files = FileBudget()  # one for all logs: thousands of partitions, bounded descriptors
        self._written: dict[Path, dict[str, Offsets]] = {}  # as the checkpoint files have it
        self.turns = Turns()  # retention and the cleaner keep out of each other's way
        self.remover = Remover()

    @classmethod
    def open(
        cls,
        paths: list[Path],
        node_id: int,
        clock: BrokerClock,
        cluster_id: str | None = None,
        *,
        needed: Path | None = None,
    ) -> LogDirs:
        """Locks and, where new, formats the directories. If one cannot be: DataDirectoryError, and all are let go.

        One that the system refuses is offline from the start, if another can be opened and it is not the needed one.
        """
        locks: dict[Path, int] = {}
        refused: dict[Path, RefusedDirectoryError] = {}
        try:
            metas: dict[Path, MetaProperties | None] = {}
            for path in paths:
                with _noting(refused, path):
                    _make(path)
                    locks[path] = _lock(path)
                    metas[path] = read_meta(path)
            if needed in refused:
                raise refused[needed]  # before others are formatted for a cluster that nobody knows
            known = next((meta for meta in metas.values() if meta is not None), None)
            chosen = cluster_id or (known.cluster_id if known else format_uuid(random_uuid()))
            dirs: dict[Path, LogDir] = {}
            for path, meta in metas.items():
                with _noting(refused, path):
                    dirs[path] = _admit(path, locks[path], meta, node_id, chosen)
            if needed in refused or not dirs:
                raise refused[needed or paths[0]]
            for path, problem in refused.items():
                dirs[path] = LogDir(path, MetaProperties(chosen, node_id, bytes(16)), locks.get(path, -1), False)
                if not dirs[path].health.fail(problem.problem, path):
                    raise problem
            return cls([dirs[path] for path in paths], clock, needed)
        except BaseException:
            for lock in locks.values():
                os.close(lock)
            raise

    def begin(self) -> None:
        """From here on files change: the markers of the last stop go. A start that was refused before leaves them."""
        for home in self.live:
            marker = home.path / CLEAN_SHUTDOWN
            try:
                marker.unlink(missing_ok=True)
            except OSError as problem:  # one that stayed would make the next start trust whatever a crash leaves
                others = [one for one in self.live if one is not home]
                if home.path == self._needed or not others or not home.health.fail(problem, marker):
                    raise DataDirectoryError(f"{marker} cannot be removed: {problem.strerror}; remove it.") from None

    @property
    def live(self) -> list[LogDir]:
        return [one for one in self.dirs if one.failure is None]

    @property
    def cluster_id(self) -> str:
        return self.dirs[0].meta.cluster_id

    @property
    def directory_ids(self) -> list[bytes]:
        return [one.meta.directory_id for one in self.live]

    def home_at(self, path: Path) -> LogDir:
        return next(one for one in self.dirs if one.path == path)

    def blame(self, path: str | Path, problem: OSError) -> bool:
        """Takes the directory that `path` lies in offline. False: the problem is not the disk's. From any thread."""
        home = next((one for one in self.dirs if Path(path).is_relative_to(one.path)), None)
        return home is not None and home.health.fail(problem, path)

    @property
    def previous_broker_epoch(self) -> int:
        """The epoch the last clean stop ended, or -1: some directory was not stopped cleanly."""
        epochs = {one.previous_broker_epoch for one in self.dirs}
        return epochs.pop() if len(epochs) == 1 else -1

    def partition_directories(self) -> Iterator[tuple[Path, str, int, bytes | None]]:
        """(directory, topic, partition, topic id) of what is on disk and neither being deleted nor stray."""
        for home in self.live:
            names: list[str] = []
            with _blaming(home):
                names = _directories_in(home.path)
            for name in names:
                topic, _, partition = name.rpartition("-")
                if topic and _INDEX.fullmatch(partition) and name != METADATA_DIRECTORY:
                    path = home.path / name
                    yield path, topic, int(partition), read_topic_id(path)

    def trace_of_topics(self) -> Path | None:
        """Something that only a broker with topics, or one that has stopped cleanly, leaves behind."""
        for home in self.dirs:
            if home.clean:
                return home.path / CLEAN_SHUTDOWN
            for name in _directories_in(home.path):
                if name != METADATA_DIRECTORY and _PARTITION.fullmatch(name):
                    return home.path / name
        return None

    def losses(self) -> list[tuple[str, int, int, int]]:
        """(topic, partition, end, reached) of open logs that end before what a checkpoint says they had reached."""
        found = []
        for key, log in self.logs.items():
            home, end = self._home[key], log.log_end_offset
            flushed = home.recovery_points.get(key, 0)
            short = flushed > end or (home.clean and home.high_watermarks.get(key, 0) > end)
            if short and key not in home.renewed:
                found.append((*key, end, max(flushed, home.high_watermarks.get(key, 0))))
        return found

    def set_aside_strays(self, owned: Mapping[tuple[str, int], bytes]) -> list[Path]:
        """Renames partitions that no topic of the cluster owns, so that a new topic of that name starts empty."""
        moved = []
        for path, topic, partition, topic_id in list(self.partition_directories()):
            expected = owned.get((topic, partition))
            if expected is None or (topic_id is not None and topic_id != expected):
                with _blaming(self.home_at(path.parent)):
                    moved.append(path.rename(_retired_name(path, STRAY)))
        return moved

    def remove_deleted(self) -> None:
        """Finishes deletes that the last run began."""
        for home in self.live:
            for path in home.path.glob(f"*{DELETED}"):
                shutil.rmtree(path, ignore_errors=True)

    def open_log(
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: dict[str, object],
        directory_id: bytes | None = None,
        *,
        new: bool = False,
    ) -> PartitionLog:
        """Opens a partition's log: in the named directory, where it is already, or where fewest are if none is named.

        A new one has no files before its make() or its first append. ValueError: the directory is another topic's, or
        its partition.metadata is damaged. OfflineDirectoryError: it may lie where nobody can look now.
        """
        wanted = Opening(topic, partition, topic_id, config, directory_id, new)
        home = self._home_of(wanted.key, directory_id, new)
        return self._admit(wanted, home, self._open_in(home, wanted))

    def open_logs(
        self, wanted: Iterable[Opening], recovery_threads: int
    ) -> dict[tuple[str, int], PartitionLog | Exception]:
        """open_log() of each, or why it could not be. What a crash may have torn is read by several threads at once."""
        found: dict[tuple[str, int], PartitionLog | Exception] = {}
        pools: dict[int, ThreadPoolExecutor] = {}
        waiting: list[tuple[Opening, LogDir, Future[PartitionLog]]] = []
        with contextlib.ExitStack() as stack:
            for one in wanted:
                try:
                    home = self._home_of(one.key, one.directory_id, one.new)
                except OfflineDirectoryError as problem:
                    found[one.key] = problem
                    continue
                if home.clean or not os.path.isdir(f"{home.path}/{one.topic}-{one.partition}"):
                    try:
                        found[one.key] = self._admit(one, home, self._open_in(home, one))
                    except OPENING_FAILS as problem:
                        found[one.key] = problem
                    continue
                if id(home) not in pools:
                    pool = ThreadPoolExecutor(recovery_threads, thread_name_prefix="kbroker-recovery")
                    pools[id(home)] = stack.enter_context(pool)
                waiting.append((one, home, pools[id(home)].submit(self._open_in, home, one)))
            for one, home, opened in waiting:
                try:
                    found[one.key] = self._admit(one, home, opened.result())
                except OPENING_FAILS as problem:
                    found[one.key] = problem
        return found

    def _open_in(self, home: LogDir, wanted: Opening) -> PartitionLog:
        """From any thread."""
        key = wanted.key
        path = f"{home.path}/{wanted.topic}-{wanted.partition}"
        taken = os.path.lexists(path)
        known = taken and os.path.isdir(path)
        if known and not home.clean and _is_younger(f"{path}/partition.metadata", home.path / RECOVERY_POINTS):
            home.renewed.add(key)
        try:
            return PartitionLog.open(
                path,
                self.clock,
                wanted.config,
                topic_id=wanted.topic_id,
                clean=home.clean or not known,
                recovery_point=home.recovery_points.get(key, 0),
                log_start_offset=home.log_start_offsets.get(key, 0) if taken else 0,  # a new topic's begins at 0
                files=self._files,
                health=home.health,
                make=taken,
            )
        except BaseException as problem:
            home.sound = False  # nobody looked at its tail: the next start must
            home.shut.add(key)
            if isinstance(problem, OSError) and problem.errno in _OF_THE_DISK and home.health.fail(problem, path):
                raise OfflineDirectoryError from problem
            raise

    def _admit(self, wanted: Opening, home: LogDir, log: PartitionLog) -> PartitionLog:
        key = wanted.key
        log.high_watermark = min(home.high_watermarks.get(key, 0), log.log_end_offset)
        home.shut.discard(key)
        self.logs[key] = log
        self._home[key] = home
        return log

    def directory_id_of(self, topic: str, partition: int) -> bytes:
        return self._home[(topic, partition)].meta.directory_id

    def cleaned_to(self, key: tuple[str, int]) -> int | None:
        """Where the last compaction ended. From any thread, as the next one."""
        home = self._home.get(key)
        return None if home is None else home.cleaner_offsets.get(key)

    def note_cleaned(self, key: tuple[str, int], offset: int) -> None:
        home = self._home.get(key)
        if home is not None:
            home.cleaner_offsets[key] = offset

    def delete_logs(self, keys: Iterable[tuple[str, int]]) -> list[Path]:
        """Closes and renames partitions; the caller removes the returned directories when their delay is over.

        The deletion is committed in the metadata log already: what a crash brings back no topic owns any more, so
        nothing more is written into them, and one sync a directory tells of all the new names. What is renamed is what
        lies on the disk: a new log may have none of its files or some, and one that could not be opened has no log.
        """
        retired = []
        homes: set[LogDir] = set()
        trimmed = False
        for key in keys:
            log, home = self.logs.pop(key, None), self._home.pop(key, None)
            if log is not None:
                log.close(sync=False)
            trimmed = trimmed or log is None or log.log_start_offset > 0
            for one in self.live if home is None else [home]:
                path = one.path / f"{key[0]}-{key[1]}"
                if one.failure is None and os.path.isdir(path):
                    with _blaming(one):
                        retired.append(path.rename(_retired_name(path, DELETED)))
                        homes.add(one)
                one.shut.discard(key)
                for offsets in (
                    one.recovery_points,
                    one.high_watermarks,
                    one.log_start_offsets,
                    one.cleaner_offsets,
                ):
                    offsets.pop(key, None)
        for one in homes:
            with _blaming(one):
                sync_directory(one.path)
        if trimmed:
            self._forget_starts()
        return retired

    def checkpoint(self, names: Iterable[str] = tuple(_REACHED)) -> None:
        """Writes down how far each log is flushed, committed and trimmed, so that the next start need not find out.

        It is durable when this returns, except in directories that have failed. Of what `names` leaves out nothing is
        written. OSError: it is not the disk's fault, and may be tried again.
        """
        short: OSError | None = None
        for home in self.live:
            try:
                home.check()
                self._checkpoint_one(home, names)
            except OSError as problem:
                if not home.health.fail(problem, problem.filename or home.path):
                    short = problem
        if short is not None:
            raise short

    def _checkpoint_one(self, home: LogDir, names: Iterable[str]) -> None:
        logs = {key: log for key, log in self.logs.items() if self._home[key] is home}
        written = self._written.setdefault(home.path, {})
        offsets = {name: _REACHED[name](home, logs) for name in names}
        changed = {name: reached for name, reached in offsets.items() if written.get(name) != reached}
        for name, reached in changed.items():
            write_offsets(home.path / name, reached, sync_name=False)
        if changed:
            sync_directory(home.path)
        written.update(changed)

    def take_down(self, home: LogDir) -> list[tuple[str, int]]:
        """After a directory has failed: lets its logs go as they are. Returns the partitions that are gone with it."""
        lost = [key for key, one in self._home.items() if one is home]
        home.sound = False
        for key in lost:
            log = self.logs.pop(key, None)
            if log is not None:
                log.close(sync=False)
        return lost

    def raise_starts(self, offsets: Mapping[tuple[str, int], int]) -> Offsets:
        """Raises the starts of logs, at most to their high watermarks; where those that are served start now.

        They are durable before a log tells of them: nobody sees a start that a kill takes back.
        """
        served = {
            key: offset for key, offset in offsets.items() if key in self.logs and not self.logs[key].offline_errno
        }
        try:
            for key, offset in served.items():
                self._home[key].coming_starts[key] = offset
            self.checkpoint((LOG_START_OFFSETS,))
            return {
                key: log.raise_start(offset)
                for key, offset in served.items()
                if not (log := self.logs[key]).offline_errno
            }
        finally:
            for home in self.dirs:
                home.coming_starts.clear()

    def _forget_starts(self) -> None:
        """A topic of the same name must not begin where a deleted one was trimmed, not even after a crash."""
        with suppress(OSError):  # no descriptors do not keep a topic: the next checkpoint tells it
            self.checkpoint((LOG_START_OFFSETS,))

    def close(self, broker_epoch: int) -> list[OSError]:
        """A clean stop: everything flushed, checkpointed and closed, then the marker, then the lock.

        Returns what failed. One log that fails does not keep the others from it; its directory gets no marker, so
        that the next start checks it.
        """
        failed = []
        for key, log in self.logs.items():
            try:
                log.close()  # flushes first; a closed log still tells its offsets
            except OSError as problem:
                failed.append(problem)
                self._home[key].sound = False
            if log.offline_errno:
                self._home[key].sound = False
        marker = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        for home in self.live:
            try:
                home.check()
                self._checkpoint_one(home, _REACHED)
                if home.sound:
                    write_whole(home.path / CLEAN_SHUTDOWN, marker.encode())
            except OSError as problem:
                failed.append(problem)
        self.logs.clear()
        self._home.clear()
        self.release()
        return failed

    def release(self) -> None:
        """Gives the directories up as they are; without a marker the next start checks what may be torn."""
        self.remover.stop()
        for home in self.dirs:
            if home.lock >= 0:
                os.close(home.lock)  # the file stays: removing it could let two that wait for it both in
        self.dirs = []

    def _home_of(self, key: tuple[str, int], directory_id: bytes | None, new: bool) -> LogDir:
        """Never anywhere but where it may lie already, unless it is new."""
        name = f"{key[0]}-{key[1]}"
        live = self.live
        if key in self._home:
            live = [home for home in live if home is self._home[key]]  # the last time it was there
        for home in live:
            if home.meta.directory_id == directory_id or os.path.isdir(f"{home.path}/{name}"):
                return home
        if not live or directory_id is not None or (not new and len(live) < len(self.dirs)):
            raise OfflineDirectoryError
        counts = {id(home): 0 for home in self.dirs}
        for home in self._home.values():
            counts[id(home)] += 1
        return min(live, key=lambda home: counts[id(home)])


def read_topic_id(partition_directory: Path) -> bytes | None:
    """From partition.metadata; None when there is none yet."""
    try:
        with open(f"{partition_directory}/partition.metadata", "rb", buffering=0) as file:
            lines = file.read(4096).decode().splitlines()
        values = dict(line.split(": ", 1) for line in lines)
        return parse_uuid(values["topic_id"])
    except (OSError, ValueError, KeyError, DataDirectoryError):
        return None


def _retired_name(path: Path, suffix: str) -> Path:
    """Kafka cuts the topic's name so that the directory's stays within 255 bytes."""
    unique = f".{uuid.uuid4().hex}{suffix}"
    return path.with_name(path.name[: 255 - len(unique)] + unique)


@contextlib.contextmanager
def _blaming(home: LogDir) -> Iterator[None]:
    """What the disk refuses takes the directory offline; what else may be missing will be tried again."""
    try:
        yield
    except OSError as problem:
        home.health.fail(problem, problem.filename or home.path)


@contextlib.contextmanager
def _noting(refused: dict[Path, RefusedDirectoryError], path: Path) -> Iterator[None]:
    try:
        yield
    except RefusedDirectoryError as problem:
        refused[path] = problem
    except OSError as problem:
        sentence = f"The data directory {path} cannot be used: {problem.strerror}."
        refused[path] = RefusedDirectoryError(sentence, problem)


def _make(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise RefusedDirectoryError(f"The data directory {path} cannot be made: {problem.strerror}.", problem) from None


def _lock(path: Path) -> int:
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
    if hasattr(fcntl, "F_OFD_SETLK"):
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _admit(path: Path, lock: int, meta: MetaProperties | None, node_id: int, cluster_id: str) -> LogDir:
    formatted = meta is None
    if meta is None:
        trace = _trace_of_data(path)
        if trace is not None:
            raise DataDirectoryError(
                f"{path} has no {META_PROPERTIES} but holds {trace}: it is not safe to format it; restore the file."
            )
        meta = MetaProperties(cluster_id, node_id, random_uuid())
        write_meta(path, meta)
    if meta.node_id != node_id:
        raise DataDirectoryError(f"{path} belongs to node {meta.node_id}, but this broker's node.id is {node_id}.")
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
    files = {METADATA_DIRECTORY, BOOTSTRAP, CLEAN_SHUTDOWN, RECOVERY_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS}
    partitions = (name for name in _directories_in(path) if _PARTITION.fullmatch(name))
    return next(partitions, None) or next((name for name in sorted(files) if os.path.lexists(path / name)), None)


def _is_younger(metadata: str, checkpoint: Path) -> bool:
    try:
        return os.stat(metadata).st_mtime_ns > os.stat(checkpoint).st_mtime_ns
    except OSError:
        return False


def _directories_in(path: Path) -> list[str]:
    """A name that leads nowhere, or in a circle, is none."""
    return sorted(name for name in os.listdir(path) if os.path.isdir(path / name))


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
