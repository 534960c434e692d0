"""Compaction in the background: threads that look for the dirtiest log, compact it, and look again.

The work itself is `_core/log/cleaner`'s, a step at a time and without the GIL; between steps this room throttles and
notices a stop. How far each log is compacted stands in the directories' cleaner-offset-checkpoint, which LogDirs writes
with its other checkpoints: one that is behind costs a second compaction of the same part, nothing else.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Mapping
from threading import Event, Lock, Thread
from typing import Any, NamedTuple

from kbroker._core.clock import BrokerClock
from kbroker._core.log.cleaner import Cleaned, CleaningCancelledError, CleaningError, LogCleaning
from kbroker._core.log.partition_log import LogError, PartitionLog
from kbroker.storage.cleanable import Cleanable, CleaningRules, look_at
from kbroker.storage.log_dirs import LogDirs
from kbroker.storage.news import Lines
from kbroker.storage.priority import step_back
from kbroker.storage.turns import Key

FILE_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
DELETED = ".deleted"


class CleanerSettings(NamedTuple):
    """log.cleaner.*, as they are now."""

    threads: int
    backoff_ms: int
    dedupe_buffer_bytes: int
    load_factor: float
    io_buffer_bytes: int
    bytes_per_second: float

    @classmethod
    def of(cls, value: Callable[[str], Any]) -> CleanerSettings:
        return cls(
            value("log.cleaner.threads"),
            value("log.cleaner.backoff.ms"),
            value("log.cleaner.dedupe.buffer.size"),
            value("log.cleaner.io.buffer.load.factor"),
            value("log.cleaner.io.buffer.size"),
            value("log.cleaner.io.max.bytes.per.second"),
        )


class Throttle:
    """Bytes per second over all threads: whoever moved some waits until they are paid for."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._paid_at = 0.0

    def wait(self, moved: int, bytes_per_second: float, stopping: Event) -> None:
        if bytes_per_second < 0:  # as in Kafka: no limit; and with 0 it stands nearly still
            return
        with self._lock:
            now = time.monotonic()
            self._paid_at = max(self._paid_at, now) + moved / max(bytes_per_second, 1.0)
            pause = self._paid_at - now
        if pause > 0.001:  # shorter debts add up first
            stopping.wait(pause)


class LogCleaner:
    """`settings` and `topic_config` are asked from the cleaner's threads, before every round."""

    def __init__(
        self,
        log_dirs: LogDirs,
        clock: BrokerClock,
        settings: Callable[[], CleanerSettings],
        topic_config: Callable[[str], Mapping[str, Any]],
        lines: Lines,
    ) -> None:
        self._log_dirs = log_dirs
        self._clock = clock
        self._settings = settings
        self._topic_config = topic_config
        self._lines = lines
        self._throttle = Throttle()
        self._stopping = Event()
        self._threads: list[Thread] = []
        self._uncleanable: dict[Key, PartitionLog] = {}
        self._to_remove: dict[str, float] = {}  # when the files that were replaced may go

    @property
    def uncleanable(self) -> list[Key]:
        """Partitions set aside because they could not be compacted, until the next start."""
        return [key for key, log in list(self._uncleanable.items()) if self._log_dirs.logs.get(key) is log]

    def start(self) -> None:
        self._start_thread()

    def stop(self) -> None:
        """What is being compacted is given up. The next start removes files whose delay is not over."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _start_thread(self) -> None:
        number = len(self._threads)
        thread = Thread(target=self._run, args=(number,), name=f"kbroker-cleaner-{number}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, number: int) -> None:
        """The first thread also starts the others, as many as the setting says by now, and removes old files."""
        step_back()
        while not self._stopping.is_set():
            settings = self._settings()
            if number == 0:
                self._remove_old_files()
                while len(self._threads) < settings.threads:
                    self._start_thread()
            if number >= settings.threads or not self.clean_dirtiest(settings):
                self._stopping.wait(settings.backoff_ms / 1000)

    # ---- one log ----

    def clean_dirtiest(self, settings: CleanerSettings | None = None) -> bool:
        """Compacts the log that needs it most. False: none does, or it could not be done now."""
        settings = settings or self._settings()
        while (chosen := self._choose()) is not None:
            key, log = chosen[:2]
            with self._log_dirs.turns.at(key) as mine:
                if mine and self._log_dirs.logs.get(key) is log:  # it may have moved since it was looked at
                    return self._clean(*chosen, settings)
        return False

    def _choose(self) -> tuple[Key, PartitionLog, Cleanable, CleaningRules] | None:
        best: tuple[Key, PartitionLog, Cleanable, CleaningRules] | None = None
        rules_of: dict[str, CleaningRules | None] = {}
        now_ms = self._clock.now_ms()
        for key, log in list(self._log_dirs.logs.items()):
            if key[0] not in rules_of:
                rules_of[key[0]] = CleaningRules.of(self._topic_config(key[0]))
            rules = rules_of[key[0]]
            if rules is None or not self._may_clean(key, log):
                continue
            try:
                found = look_at(log, self._log_dirs.cleaned_to(key), rules, now_ms)
            except (OSError, LogError, IndexError):
                continue  # closed or offline in this moment
            if found.is_due(rules) and (best is None or found.dirty_ratio > best[2].dirty_ratio):
                best = (key, log, found, rules)
        return best

    def _may_clean(self, key: Key, log: PartitionLog) -> bool:
        if log.closed or log.offline_errno or not log.directory or not log.made:
            return False
        return self._uncleanable.get(key) is not log and not self._log_dirs.turns.is_taken(key)

    def _clean(
        self, key: Key, log: PartitionLog, found: Cleanable, rules: CleaningRules, settings: CleanerSettings
    ) -> bool:
        topic, partition = key
        try:
            began = time.monotonic()
            result = self._take_steps(log, found, rules, settings)
        except (CleaningCancelledError, LogError):
            return False
        except (CleaningError, OSError, ValueError, MemoryError) as problem:
            self._on_failure(key, log, problem)
            return False
        if result is None or result.end_offset <= found.first_dirty_offset:
            return False
        self._log_dirs.note_cleaned(key, result.end_offset)
        self._lines.info(
            "compacted",
            topic=topic,
            partition=partition,
            from_offset=found.first_dirty_offset,
            to_offset=result.end_offset,
            records=result.records_read,
            records_kept=result.records_kept,
            bytes=result.bytes_read,
            bytes_kept=result.bytes_written,
            seconds=round(time.monotonic() - began, 3),
        )
        return True

    def _take_steps(
        self, log: PartitionLog, found: Cleanable, rules: CleaningRules, settings: CleanerSettings
    ) -> Cleaned | None:
        """None: the broker stops."""
        if log.recovery_point < found.first_uncleanable_offset:
            log.flush()  # a record goes because a later one is there: that one must be on the disk
        threads = max(1, settings.threads)
        cleaning = LogCleaning(
            log,
            found.first_dirty_offset,
            found.first_uncleanable_offset,
            self._clock.now_ms(),
            delete_retention_ms=rules.delete_retention_ms,
            map_bytes=settings.dedupe_buffer_bytes // threads,
            load_factor=settings.load_factor,
            buffer_bytes=settings.io_buffer_bytes // threads // 2,
        )
        try:
            while not cleaning.finished:
                if self._stopping.is_set():
                    return None
                self._throttle.wait(cleaning.step(), settings.bytes_per_second, self._stopping)
            return cleaning.result
        finally:
            self._remove_later(log.directory, cleaning.replaced, rules.file_delete_delay_ms)
            cleaning.close()

    def _on_failure(self, key: Key, log: PartitionLog, problem: Exception) -> None:
        topic, partition = key
        if log.closed or log.offline_errno:
            return  # its topic was deleted, or it is told with its directory
        if isinstance(problem, OSError) and problem.errno == errno.ENOSPC:
            self._lines.warning("no room for compaction", topic=topic, partition=partition, reason=str(problem))
            return
        if isinstance(problem, OSError) and self._log_dirs.blame(log.directory, problem):
            return  # told with its directory
        self._uncleanable[key] = log
        reason = str(problem) or type(problem).__name__
        self._lines.warning(
            "a partition cannot be compacted and is set aside", topic=topic, partition=partition, reason=reason
        )

    # ---- files that were replaced ----

    def _remove_later(self, directory: str, base_offsets: list[int], delay_ms: int) -> None:
        due = time.monotonic() + delay_ms / 1000
        names = (f"{base:020d}{suffix}{DELETED}" for base in base_offsets for suffix in FILE_SUFFIXES)
        self._to_remove.update({os.path.join(directory, name): due for name in names})

    def _remove_old_files(self) -> None:
        now = time.monotonic()
        due = [path for path, at in self._to_remove.copy().items() if at <= now]
        for path in due:
            del self._to_remove[path]
        if due:
            self._log_dirs.remover.files(due)
