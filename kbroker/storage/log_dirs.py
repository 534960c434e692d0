"""A broker's data directories, one by one in `log_dir`, and the partition logs inside.

Every function may be called from a worker thread, but from one at a time: the edge that owns a LogDirs sees to that.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent import futures
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kbroker._core.clock import BrokerClock
from kbroker._core.log.open_files import FileBudget
from kbroker._core.log.partition_log import LogError, PartitionLog
from kbroker.pool import Pool
from kbroker.storage.checkpoints import (
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    Offsets,
    sync_directory,
    write_whole,
)
from kbroker.storage.futures import Found, Future
from kbroker.storage.identity import (
    DataDirectoryError,
    MetaProperties,
    RefusedDirectoryError,
    format_uuid,
    random_uuid,
)
from kbroker.storage.log_dir import (
    CLEAN_SHUTDOWN,
    DELETED,
    METADATA_DIRECTORY,
    REACHED,
    Key,
    LogDir,
    admit,
    blaming,
    directories_in,
    identify,
    lock,
    make,
    partitions_in,
    read_topic_id,
    retired_name,
    unlock,
)
from kbroker.storage.removal import Remover
from kbroker.storage.turns import Turns

PREFERRED_MAX = 10_000  # partitions to come whose directory somebody has named
_INDEX = re.compile(r"[0-9]{1,10}")

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
    def key(self) -> Key:
        return (self.topic, self.partition)


class LogDirs:
    """The directories of one broker and the partition logs open in them."""

    def __init__(self, dirs: list[LogDir], clock: BrokerClock, needed: Path | None = None) -> None:
        self.dirs = dirs
        self._needed = needed  # without it nothing goes on
        self.logs: dict[Key, PartitionLog] = {}
        self._home: dict[Key, LogDir] = {}
        self.clock = clock
        self._files = FileBudget()  # one for all logs: thousands of partitions, bounded descriptors
        self.turns = Turns()  # retention, the cleaner and moves keep out of each other's way
        self.futures: dict[Key, Future] = {}  # copies on their way into another directory
        self.unfinished: set[Key] = set()  # those of which the last run has left copies
        self._preferred: dict[Key, LogDir] = {}
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
            for path in paths:  # all of them before the first write: a refused start leaves no file behind
                with _noting(refused, path):
                    identify(path, node_id)
            metas: dict[Path, MetaProperties | None] = {}
            for path in [path for path in paths if path not in refused]:
                with _noting(refused, path):
                    make(path)
                    locks[path] = lock(path)
                    metas[path] = identify(path, node_id)  # again: another broker may have formatted it just now
            if needed in refused:
                raise refused[needed]  # before others are formatted for a cluster that nobody knows
            known = next((meta for meta in metas.values() if meta is not None), None)
            chosen = cluster_id or (known.cluster_id if known else format_uuid(random_uuid()))
            dirs: dict[Path, LogDir] = {}
            for path, meta in metas.items():
                with _noting(refused, path):
                    dirs[path] = admit(path, locks[path], meta, node_id, chosen)
            if needed in refused or not dirs:
                raise refused[needed or paths[0]]
            for path, problem in refused.items():
                dirs[path] = LogDir(path, MetaProperties(chosen, node_id, bytes(16)), locks.get(path, -1), False)
                if not dirs[path].health.fail(problem.problem, path):
                    raise problem
            return cls([dirs[path] for path in paths], clock, needed)
        except BaseException:
            for descriptor in locks.values():
                unlock(descriptor)
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
    def descriptors(self) -> set[int]:
        """Those that stay open while the directories are ours: locks, and the pipes of their health."""
        return {one for home in self.dirs for one in (home.lock, *home.health.descriptors) if one >= 0}

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
            with blaming(home):
                names = directories_in(home.path)
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
            for name in partitions_in(home.path):
                if name != METADATA_DIRECTORY:
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

    def open_logs(self, wanted: Iterable[Opening], recovery_threads: int) -> dict[Key, PartitionLog | Exception]:
        """open_log() of each, or why it could not be. What a crash may have torn is read by several threads at once."""
        found: dict[Key, PartitionLog | Exception] = {}
        pools: dict[int, Pool] = {}
        waiting: list[tuple[Opening, LogDir, futures.Future[PartitionLog]]] = []
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
                    pool = Pool(recovery_threads, "kbroker-recovery")
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
            with _by_its_disk(home, path):
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
        except BaseException:
            home.sound = False  # nobody looked at its tail: the next start must
            home.shut.add(key)
            raise

    def _admit(self, wanted: Opening, home: LogDir, log: PartitionLog) -> PartitionLog:
        key = wanted.key
        log.high_watermark = min(home.high_watermarks.get(key, 0), log.log_end_offset)
        home.shut.discard(key)
        self.logs[key] = log
        self._home[key] = home
        return log

    def open_future(self, found: Found, topic_id: bytes, config: dict[str, object], *, start: int = 0) -> PartitionLog:
        """The log of a copy: one that is there already, or a new one that begins at `start`."""
        home, path, key = found
        there = os.path.isdir(path)
        with _by_its_disk(home, path):
            log = PartitionLog.open(
                path,
                self.clock,
                config,
                topic_id=topic_id,
                clean=home.clean or not there,
                recovery_point=home.recovery_points.get(key, 0) if there else start,
                log_start_offset=home.log_start_offsets.get(key, 0) if there else start,
                files=self._files,
                health=home.health,
                make=there,
            )
            log.make()
        log.high_watermark = min(home.high_watermarks.get(key, 0), log.log_end_offset) if there else start
        self.futures[key] = Future(home, log)
        return log

    def take_in(self, key: Key) -> None:
        """The copy is the partition from now on."""
        home, log = self.futures[key]
        cleaned = self._home[key].cleaner_offsets.pop(key, None)
        if cleaned is not None:
            home.cleaner_offsets[key] = cleaned
        self.logs[key], self._home[key] = log, home
        del self.futures[key]  # last: while it is there nobody tells the cluster where the partition lies

    def home_of(self, key: Key) -> LogDir | None:
        return self._home.get(key)

    def prefer(self, key: Key, home: LogDir) -> None:
        """A partition that is still to come shall be put there."""
        self._preferred[key] = home
        if len(self._preferred) > PREFERRED_MAX:
            del self._preferred[next(iter(self._preferred))]

    def directory_id_of(self, topic: str, partition: int) -> bytes:
        return self._home[(topic, partition)].meta.directory_id

    def cleaned_to(self, key: Key) -> int | None:
        """Where the last compaction ended. From any thread, as the next one."""
        home = self._home.get(key)
        return None if home is None else home.cleaner_offsets.get(key)

    def note_cleaned(self, key: Key, offset: int) -> None:
        home = self._home.get(key)
        if home is not None:
            home.cleaner_offsets[key] = offset

    def delete_logs(self, keys: Iterable[Key]) -> list[Path]:
        """Closes and renames partitions; the caller removes the returned directories when their delay is over.

        The deletion is committed in the metadata log already: what a crash brings back no topic owns any more, so
        nothing more is written into them, and one sync a directory tells of all the new names. What is renamed is what
        lies on the disk: a new log may have none of its files or some, and one that could not be opened has no log.
        """
        retired = []
        homes: set[LogDir] = set()
        told = False  # by a checkpoint
        for key in keys:
            log, home = self.logs.pop(key, None), self._home.pop(key, None)
            told = told or log is None or log.log_start_offset > 0 or log.recovery_point > 0
            if log is not None:
                log.close(sync=False)
            for one in self.live if home is None else [home]:
                path = one.path / f"{key[0]}-{key[1]}"
                if one.failure is None and os.path.isdir(path):
                    with blaming(one):
                        retired.append(path.rename(retired_name(path, DELETED)))
                        homes.add(one)
            for one in self.dirs:  # it may have been on its way into another
                one.forget(key)
        for one in homes:
            with blaming(one):
                sync_directory(one.path)
        if told:
            self._strike_out()
        return retired

    def checkpoint(self, names: Iterable[str] = tuple(REACHED)) -> None:
        """Writes down how far each log is flushed, committed and trimmed, so that the next start need not find out.

        It is durable when this returns, except in directories that have failed. Of what `names` leaves out nothing is
        written. OSError: it is not the disk's fault, and may be tried again.
        """
        short: OSError | None = None
        for home in self.live:
            try:
                home.write_checkpoints(names, self._logs_in(home))
            except OSError as problem:
                if not home.health.fail(problem, problem.filename or home.path):
                    short = problem
        if short is not None:
            raise short

    def _logs_in(self, home: LogDir) -> dict[Key, PartitionLog]:
        """With the copies that are meant for it: their offsets stand in its checkpoints, too."""
        logs = {key: log for key, log in self.logs.items() if self._home[key] is home}
        return logs | {key: one.log for key, one in self.futures.items() if one.home is home}

    def take_down(self, home: LogDir) -> list[Key]:
        """After a directory has failed: lets its logs go as they are. Returns the partitions that are gone with it.

        Of copies that were on their way into it see `moves`.
        """
        lost = [key for key, one in self._home.items() if one is home]
        home.sound = False
        for key in lost:
            log = self.logs.pop(key, None)
            if log is not None:
                log.close(sync=False)
        return lost

    def raise_starts(self, offsets: Mapping[Key, int]) -> Offsets:
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

    def _strike_out(self) -> None:
        """A topic of the same name must not begin where a deleted one was trimmed, nor seem to
        have lost what that one had flushed, not even after a crash."""
        with suppress(OSError):  # no descriptors do not keep a topic: the next checkpoint tells it
            self.checkpoint((LOG_START_OFFSETS, RECOVERY_POINTS))

    def close(self, broker_epoch: int) -> list[OSError]:
        """A clean stop: everything flushed, checkpointed and closed, then the marker, then the lock.

        Returns what failed. One log that fails does not keep the others from it; its directory gets no marker, so
        that the next start checks it.
        """
        failed = []
        open_logs = [(self._home[key], log) for key, log in self.logs.items()]
        for home, log in [*open_logs, *self.futures.values()]:
            try:
                log.close()  # flushes first; a closed log still tells its offsets
            except OSError as problem:
                failed.append(problem)
                home.sound = False
            if log.offline_errno:
                home.sound = False
        marker = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        for home in self.live:
            try:
                home.write_checkpoints(REACHED, self._logs_in(home))
                if home.sound:
                    write_whole(home.path / CLEAN_SHUTDOWN, marker.encode())
            except OSError as problem:
                failed.append(problem)
        self.logs.clear()
        self.futures.clear()
        self._home.clear()
        self.release()
        return failed

    def release(self) -> None:
        """Gives the directories up as they are; without a marker the next start checks what may be torn."""
        self.remover.stop()
        released, self.dirs = self.dirs, []  # first: a child forked meanwhile must not close a number that is used anew
        for home in released:
            if home.lock >= 0:
                unlock(home.lock)  # the file stays: removing it could let two that wait for it both in

    def _home_of(self, key: Key, directory_id: bytes | None, new: bool) -> LogDir:
        """Where it lies, whatever the cluster was told; else, if it is new, where somebody wants it or fewest are.

        Never anywhere but where it may lie already, unless it is new.
        """
        name = f"{key[0]}-{key[1]}"
        live = self.live
        if key in self._home:
            live = [home for home in live if home is self._home[key]]  # the last time it was there
        named = [home for home in live if home.meta.directory_id == directory_id]
        for home in [*named, *live]:
            if os.path.isdir(f"{home.path}/{name}"):
                return home
        if named and not (key in self.unfinished and len(self.live) < len(self.dirs)):  # it may lie where nobody looks
            return named[0]
        if not live or directory_id is not None or (not new and len(live) < len(self.dirs)):
            raise OfflineDirectoryError
        preferred = self._preferred.pop(key, None)
        if preferred in live:
            return preferred
        counts = {id(home): 0 for home in self.dirs}
        for home in [*self._home.values(), *(one.home for one in self.futures.values())]:
            counts[id(home)] += 1
        return min(live, key=lambda home: counts[id(home)])


@contextlib.contextmanager
def _by_its_disk(home: LogDir, path: Path | str) -> Iterator[None]:
    """An open that fails by its disk fails with its directory: OfflineDirectoryError."""
    try:
        yield
    except OSError as problem:
        if problem.errno in _OF_THE_DISK and home.health.fail(problem, path):
            raise OfflineDirectoryError from problem
        raise


@contextlib.contextmanager
def _noting(refused: dict[Path, RefusedDirectoryError], path: Path) -> Iterator[None]:
    try:
        yield
    except RefusedDirectoryError as problem:
        refused[path] = problem
    except OSError as problem:
        sentence = f"The data directory {path} cannot be used: {problem.strerror}."
        refused[path] = RefusedDirectoryError(sentence, problem)


def _is_younger(metadata: str, checkpoint: Path) -> bool:
    try:
        return os.stat(metadata).st_mtime_ns > os.stat(checkpoint).st_mtime_ns
    except OSError:
        return False
