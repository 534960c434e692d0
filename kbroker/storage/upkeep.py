"""What a node does to its logs unasked: checkpoints, flushes, expiry of producers, retention, removal of files.

Owned by the control loop, which only decides what is due, by the broker's clock. Files are touched in the thread of
whoever owns the LogDirs, in turns, so that a commit never waits for all of them; retired files are left to the remover
(`storage/removal`). What fails is told and tried again when it is due again: nothing here
ends by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from kbroker._core.log.partition_log import PartitionLog
from kbroker.config import Config
from kbroker.storage import retention
from kbroker.storage.chores import Chore, Chores
from kbroker.storage.log_dirs import LogDirs

LOOK_AT_CLOCK_S = 0.5  # it may be moved by hand
RETAINED_AT_ONCE = 64  # logs that are asked what may go before the thread takes the next errand
CHECKPOINT_INTERVALS = (
    "replica.high.watermark.checkpoint.interval.ms",
    "log.flush.offset.checkpoint.interval.ms",
    "log.flush.start.offset.checkpoint.interval.ms",
)

InThread = Callable[..., Awaitable[Any]]
Failed = Callable[[str, Exception], None]
PutOffline = Callable[[retention.Key, Exception], None]
TellRetired = Callable[[retention.Retired], None]
TellDamaged = Callable[[retention.Key, int], None]


class Upkeep:
    def __init__(self, config: Config, log_dirs: LogDirs, in_thread: InThread, put_offline: PutOffline) -> None:
        self.failed: Failed = lambda _what, _problem: None
        self.retired: TellRetired = lambda _retired: None
        self.damaged: TellDamaged = lambda _key, _offset: None
        self._told_damaged: set[retention.Key] = set()
        self._config = config
        self._log_dirs = log_dirs
        self._clock = log_dirs.clock
        self._in_thread = in_thread
        self._put_offline = put_offline
        self._chores = Chores()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        now = self._clock.monotonic_ms()
        # One writer for all checkpoint files, as often as the most frequent of the settings asks.
        pause = min(self._config.integer(name) for name in CHECKPOINT_INTERVALS)
        expiry = self._config.integer("producer.id.expiration.check.interval.ms")
        check = self._config.integer("log.retention.check.interval.ms")
        first = self._config.integer("log.initial.task.delay.ms")
        flush = self._config.integer("log.flush.scheduler.interval.ms")  # by default the largest there is: never
        self._chores.every("a checkpoint", pause, self._checkpoint, first_ms=now + pause)
        self._chores.every("the flush of full segments", pause, self._flush_sealed, first_ms=now + pause)
        self._chores.every("a look at what readers found", pause, self._tell_damaged, first_ms=now + pause)
        self._chores.every("a flush", flush, self._flush, first_ms=now + flush)
        self._chores.every("the expiry of producers", expiry, self._expire_producers, first_ms=now + expiry)
        self._chores.every("a retention check", check, self._retain, first_ms=now + first)
        self._spawn(self._keep_up())

    def stop(self) -> None:
        """What is in the thread comes to its end; files that wait for their removal are the next start's."""
        for task in self._tasks:
            task.cancel()

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _keep_up(self) -> None:
        while True:
            wait_s = self._chores.wait_ms(self._clock.monotonic_ms()) / 1000
            await asyncio.sleep(min(wait_s, LOOK_AT_CLOCK_S))
            for chore in self._chores.due(self._clock.monotonic_ms()):
                self._spawn(self._do(chore))

    async def _do(self, chore: Chore) -> None:
        try:
            await chore.work()
        except Exception as problem:
            self.failed(f"{chore.name} failed", problem)
        self._chores.done(chore)

    async def _checkpoint(self) -> None:
        await self._in_thread(self._log_dirs.checkpoint)

    async def _flush_sealed(self) -> None:
        """As Kafka does after a roll: what need not be scanned after a kill is on the disk. No commit waits for it."""
        logs = await self._in_thread(lambda: list(self._log_dirs.logs.items()))
        for key, problem in (await asyncio.to_thread(_flush_sealed, logs)).items():
            self._on_failed_log(key, problem)

    async def _tell_damaged(self) -> None:
        """Whoever fetches there is told again and again; whoever runs the broker once."""
        logs = await self._in_thread(lambda: list(self._log_dirs.logs.items()))
        found = {key: log.damaged_offset for key, log in logs if log.damaged_offset >= 0}
        for key in found.keys() - self._told_damaged:
            self.damaged(key, found[key])
        self._told_damaged = set(found)

    async def _flush(self) -> None:
        """flush.ms: one log at a time, for each may wait long for its disk."""
        for key, log in await self._in_thread(lambda: list(self._log_dirs.logs.items())):
            try:
                await self._in_thread(_flush_if_open, log)
            except OSError as problem:
                self._on_failed_log(key, problem)

    async def _expire_producers(self) -> None:
        def expire() -> None:
            for log in self._log_dirs.logs.values():
                log.expire_producers()

        await self._in_thread(expire)

    async def _retain(self) -> None:
        keys = await self._in_thread(lambda: list(self._log_dirs.logs))
        went: list[retention.Retired] = []
        for first in range(0, len(keys), RETAINED_AT_ONCE):
            turn = keys[first : first + RETAINED_AT_ONCE]
            retired, failed = await self._in_thread(retention.retire, self._log_dirs.logs, turn, self._log_dirs.turns)
            went += retired
            for key, problem in failed.items():
                self._on_failed_log(key, problem)
        files: dict[int, list[Path]] = {}
        for one in went:
            self.retired(one)
            files.setdefault(one.delay_ms, []).extend(one.files())
        now = self._clock.monotonic_ms()
        for delay_ms, paths in files.items():
            self._chores.once("the removal of segments", now + delay_ms, partial(self._remove, paths))
        if went:
            await self._checkpoint()

    async def _remove(self, paths: list[Path]) -> None:
        try:
            await asyncio.wrap_future(self._log_dirs.remover.files(paths))
        except OSError as problem:
            if not self._log_dirs.blame(problem.filename or paths[0], problem):
                raise

    def _on_failed_log(self, key: retention.Key, problem: OSError) -> None:
        log = self._log_dirs.logs.get(key)
        if log is None or self._log_dirs.blame(log.directory, problem):
            return  # told with its directory
        if log.offline_errno:
            self._put_offline(key, problem)
        else:
            self.failed(f"upkeep of {key[0]}-{key[1]} failed", problem)


def _flush_sealed(logs: list[tuple[retention.Key, PartitionLog]]) -> dict[retention.Key, OSError]:
    failed = {}
    for key, log in logs:
        try:
            log.flush_sealed()
        except OSError as problem:
            failed[key] = problem
    return failed


def _flush_if_open(log: PartitionLog) -> None:
    """Its topic may have been deleted since the round began."""
    if not log.closed:
        log.flush_if_due()
