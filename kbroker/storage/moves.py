"""Replicas go from one data directory to another while they are served (AlterReplicaLogDirs).

    asked      a copy is begun: <topic>-<partition>.<uuid>-future in the directory it is meant for
    copied     by threads of their own, batch by batch and without the GIL, up to the end, which moves on
    assigned   the cluster is told of the new directory; the copy goes on
    swapped    under the partition's lock: the rest is copied, the old directory is renamed -delete, appends and reads
               go on with the copy
    named      the copy loses its -future and is synced; log.segment.delete.delay.ms later the old files go

A kill at any moment leaves either the partition and a part of its copy, which the next start goes on with, or a whole
copy in the directory that the cluster knows of, which the next start takes for the partition. As in Kafka neither
retention nor compaction touches a partition that moves: a copy of what they took away half-way would bring it back.

Threads     alter, forget, begin again and swap: in the thread of whoever owns the LogDirs. Steps: in the mover threads.
            A move's lock is held for a step, and by whoever ends the move.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Condition, Lock, Thread
from typing import Any, TypeVar

from kbroker._core.errors import Err
from kbroker._core.log.handover import rename, write_snapshot
from kbroker._core.log.partition_log import LogError, PartitionLog
from kbroker._core.moves import CutError, LogMove
from kbroker._core.partitions import PartitionHandle
from kbroker.storage.checkpoints import sync_directory
from kbroker.storage.futures import Found, find, fits, future_name
from kbroker.storage.log_dir import DELETED, STRAY, Key, LogDir, blaming, retired_name
from kbroker.storage.log_dirs import OPENING_FAILS, LogDirs

STEP_BYTES = 1 << 24
LEAST_STEP_BYTES = 1 << 16
LOOK_AGAIN_S = 0.1  # for a turn that somebody else has, a rate that was changed, a stop

T = TypeVar("T")
InThread = Callable[..., Awaitable[Any]]


class _StoppingError(Exception):
    """The broker stops: the next start goes on."""


class Move:
    """One partition on its way."""

    def __init__(self, key: Key, home: LogDir, source: PartitionLog, copy: PartitionLog) -> None:
        self.key = key
        self.home = home  # where it goes
        self.source = source
        self.copy = copy
        self.work = LogMove(source, copy)
        self.lock = Lock()
        self.over = False
        self.assigned = False  # the cluster has been told
        self.has_turn = False
        self.began = time.monotonic()


class Moves:
    """Of one broker. `handles` are its live partitions, `offline` those whose files failed."""

    def __init__(
        self,
        log_dirs: LogDirs,
        handles: Mapping[Key, PartitionHandle],
        offline: Mapping[Key, Exception],
        in_thread: InThread,
    ) -> None:
        self.on_moved: Callable[[Move], None] = lambda _move: None  # these two from any thread
        self.on_failed: Callable[[Key, Exception], None] = lambda _key, _problem: None
        self.remove_later: Callable[[list[Path]], None] = _remove  # on the loop
        self.assign: Callable[[Mapping[Key, bytes]], Coroutine[Any, Any, None]] | None = None
        self.topic_config: Callable[[str], dict[str, Any]] = lambda _topic: {}
        self._log_dirs = log_dirs
        self._handles = handles
        self._offline = offline
        self._in_thread = in_thread
        self._moves: dict[Key, Move] = {}
        self._waiting: list[Move] = []
        self._news = Condition()
        self._threads: list[Thread] = []
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rate: Callable[[], float] = lambda: float(1 << 62)
        self._throttle = _Throttle()

    def start(self, threads: int, rate: Callable[[], float]) -> None:
        """`rate` is asked again and again, from the threads: bytes a second over all moves; 0 lets nothing move."""
        self._loop = asyncio.get_running_loop()
        self._rate = rate
        for number in range(threads):
            thread = Thread(target=self._run, name=f"kbroker-mover-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    async def stop(self) -> None:
        with self._news:
            self._stopping = True
            self._news.notify_all()
        for thread in self._threads:
            await asyncio.get_running_loop().run_in_executor(None, thread.join)

    # ---- what is asked for, in the owner's thread ----

    async def alter(self, wanted: Mapping[Key, str]) -> dict[Key, int]:
        """Moves each partition into the directory of that path; an error code for each. It is not awaited."""
        answers: dict[Key, int] = await self._in_thread(self._alter, wanted)
        return answers

    def _alter(self, wanted: Mapping[Key, str]) -> dict[Key, int]:
        answers: dict[Key, int] = {}
        before = self._moves.copy()
        for key, path in wanted.items():
            try:
                answers[key] = self._alter_one(key, path)
            except OPENING_FAILS as problem:
                self.on_failed(key, problem)
                answers[key] = Err.KAFKA_STORAGE_ERROR
        if self._moves != before:
            with suppress(OSError):  # what is stale in the files is of no account while the partition moves
                self._log_dirs.checkpoint()
        return answers

    def _alter_one(self, key: Key, path: str) -> int:
        if not fits(key):
            return Err.INVALID_TOPIC_EXCEPTION
        home = next((one for one in self._log_dirs.dirs if str(one.path.absolute()) == path), None)
        if home is None:
            return Err.LOG_DIR_NOT_FOUND
        if home.failure is not None or key in self._offline:
            return Err.KAFKA_STORAGE_ERROR
        source = self._log_dirs.logs.get(key)
        move = self._moves.get(key)
        if move is not None and move.home is not home:
            self._drop(move, DELETED)
        if source is None:
            self._log_dirs.prefer(key, home)
            return Err.REPLICA_NOT_AVAILABLE
        if source.offline_errno:
            return Err.KAFKA_STORAGE_ERROR
        if self._log_dirs.home_of(key) is not home and key not in self._moves:
            self._begin(key, home, source)
        return Err.NONE

    def _begin(self, key: Key, home: LogDir, source: PartitionLog) -> None:
        source.make()
        place = Found(home, home.path / future_name(key), key)
        config = self.topic_config(key[0])
        copy = self._log_dirs.open_future(place, source.topic_id, config, start=first_offset(source))
        self._take_up(Move(key, home, source, copy))

    def _take_up(self, move: Move) -> None:
        self._moves[move.key] = move
        with self._news:
            self._waiting.append(move)
            self._waiting.sort(key=lambda one: one.key)  # one after the other, in Kafka's order
            self._news.notify()

    def _drop(self, move: Move, ending: str) -> None:
        """The copy is given up."""
        if not self._give_up(move, keep=False):
            return
        path = Path(move.copy.directory)
        gone = []
        with blaming(move.home):
            gone.append(path.rename(retired_name(path, ending)))
        home = self._log_dirs.home_of(move.key)
        if move.assigned and home is not None and self.assign is not None:
            self._soon(self.assign({move.key: home.meta.directory_id}))
        if ending == DELETED and self._loop is not None:
            self._loop.call_soon_threadsafe(self.remove_later, gone)

    def _give_up(self, move: Move, *, keep: bool) -> bool:
        """Its files stay as they are, or, to be kept, as a clean start finds them. False: it is over already."""
        with move.lock:
            if move.over:
                return False
            move.over = True
            self._end(move)
            self._log_dirs.futures.pop(move.key, None)
            move.home.forget(move.key)
            try:
                move.copy.close(sync=keep)
            except OSError:
                move.home.sound = False
        return True

    def take_down(self, home: LogDir) -> dict[Key, bytes]:
        """A directory has failed: moves out of it and into it are over, until the next start finds their copies.

        Of partitions that the cluster knows to be elsewhere already: where they have stayed.
        """
        stayed = {}
        for move in list(self._moves.values()):
            source = self._log_dirs.home_of(move.key)
            if source is None or home not in (source, move.home):
                continue
            if self._give_up(move, keep=home is source):
                self.on_failed(move.key, home.failure or OSError(f"{home.path} is offline"))
                if move.assigned:
                    stayed[move.key] = source.meta.directory_id
        return stayed

    def _end(self, move: Move) -> None:
        self._moves.pop(move.key, None)
        with self._news:
            if move.has_turn:
                move.has_turn = False
                self._log_dirs.turns.give_back(move.key)

    def forget(self, keys: list[Key]) -> None:
        """Their topics are deleted."""
        for key in keys:
            move = self._moves.get(key)
            if move is not None:
                move.assigned = False  # there is nothing to tell of it
                self._drop(move, DELETED)

    # ---- what the last run has left, before anything is served ----

    def take_in_abandoned(self, assigned: Mapping[Key, bytes]) -> None:
        """A whole copy whose partition has lost its name already: it is the partition, where the cluster knows it.

        With a directory offline nobody can tell that: the partition may lie there.
        """
        if len(self._log_dirs.live) < len(self._log_dirs.dirs):
            return
        for found in list(find(self._log_dirs.live)):
            name = f"{found.key[0]}-{found.key[1]}"
            there = any(os.path.isdir(home.path / name) for home in self._log_dirs.dirs)
            if not there and assigned.get(found.key) == found.home.meta.directory_id:
                with blaming(found.home):
                    found.path.rename(found.home.path / name)
                    sync_directory(found.home.path)

    def resume(self) -> None:
        """Goes on with copies that were begun. One that holds more than its partition, which a power cut has shortened
        or which somebody has emptied, takes its place at once."""
        for found in list(find(self._log_dirs.live)):
            home, path, key = found
            source = self._log_dirs.logs.get(key)
            if source is None:  # its directory is not there today: nothing is lost by waiting
                home.sound = home.sound and home.clean
                continue
            if key in self._moves or self._log_dirs.home_of(key) is home:
                shutil.rmtree(path, ignore_errors=True)
                continue
            try:
                self._resume_one(found, source)
            except OPENING_FAILS as problem:
                home.sound = False
                self.on_failed(key, problem)
            if key in self._moves:
                self._moves[key].has_turn = self._log_dirs.turns.take(key)

    def _resume_one(self, found: Found, source: PartitionLog) -> None:
        home, path, key = found
        try:
            copy = self._log_dirs.open_future(found, source.topic_id, self.topic_config(key[0]))
        except (OSError, ValueError, LogError) as problem:  # it is damaged, its directory is not
            self.on_failed(key, problem)
            shutil.rmtree(path, ignore_errors=True)
            self._begin(key, home, source)
            return
        move = Move(key, home, source, copy)
        if copy.log_end_offset > source.log_end_offset:
            self._take_place(move)
        else:
            self._take_up(move)

    def _take_place(self, move: Move) -> None:
        old, old_home = Path(move.source.directory), self._log_dirs.home_of(move.key)
        assert old_home is not None, move.key
        move.source.close(sync=False)
        try:
            old.rename(retired_name(old, DELETED))
        except OSError as problem:  # one partition in two places would be nobody's to choose from
            old_home.health.fail(problem, old)
            raise
        with blaming(old_home):
            sync_directory(old_home.path)
        self._log_dirs.take_in(move.key)
        rename(move.copy, str(move.home.path / old.name))
        with blaming(move.home):
            sync_directory(move.home.path)

    # ---- the threads ----

    def _run(self) -> None:
        while (move := self._next()) is not None:
            try:
                self._carry(move)
            except _StoppingError:
                return
            except CutError:
                self._try_on_loop(self._in_thread(self._begin_again, move))
            except Exception as problem:  # whatever it is, the other moves go on
                self._try_on_loop(self._in_thread(self._fail, move, problem))

    def _next(self) -> Move | None:
        """The next one whose turn it is; None: the broker stops."""
        with self._news:
            while not self._stopping:
                for move in self._waiting:
                    if not move.over and not move.has_turn:
                        move.has_turn = self._log_dirs.turns.take(move.key)
                    if move.over or move.has_turn:
                        self._waiting.remove(move)
                        return move
                self._news.wait(LOOK_AGAIN_S if self._waiting else None)
        return None

    def _carry(self, move: Move) -> None:
        while not move.over:
            if self._stopping:
                raise _StoppingError
            rate = self._rate()
            with move.lock:
                if move.over:
                    break
                copied = move.work.step(int(min(STEP_BYTES, max(LEAST_STEP_BYTES, rate)))) if rate > 0 else 0
                _follow(move)
                move.copy.flush_sealed()  # what need not be scanned again after a kill
            self._pay(copied)
            if copied == 0 and rate > 0:
                self._settle(move)

    def _pay(self, copied: int) -> None:
        """Until the bytes are paid for. The rate may change meanwhile."""
        pause = self._throttle.owe(copied, self._rate())
        while pause > 0 and not self._stopping:
            self._rest(min(pause, LOOK_AGAIN_S))
            pause = self._throttle.owe(0, self._rate())

    def _rest(self, seconds: float) -> None:
        with self._news:
            self._news.wait_for(lambda: self._stopping, seconds)

    def _settle(self, move: Move) -> None:
        """Nothing is missing at this moment. What the source may have synced is synced before it loses its name."""
        if not move.assigned:
            move.copy.flush()
            with move.lock:
                move.assigned = not move.over
            self._on_loop(self._tell_cluster(move))
        elif not self._on_loop(self._in_thread(self._swap, move)):
            self._rest(LOOK_AGAIN_S)
        elif move.over and self._log_dirs.logs.get(move.key) is move.copy:
            move.copy.flush()
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self.remove_later, [Path(move.source.directory)])
            self.on_moved(move)

    async def _tell_cluster(self, move: Move) -> None:
        """On the loop: whoever gives the move up meanwhile takes this back after it was said, not before."""
        if not move.over and self.assign is not None:
            await self.assign({move.key: move.home.meta.directory_id})

    def _swap(self, move: Move) -> bool:
        """False: nobody serves the partition yet."""
        with move.lock:
            handle = self._handles.get(move.key)
            if move.over or handle is None:
                return move.over
            if handle.log is None:
                raise OSError(errno.EIO, "The partition is offline", move.source.directory)
            _follow(move)
            if move.copy.log_start_offset < move.source.log_start_offset:
                return True  # records were deleted that it does not have yet: once more
            self._log_dirs.checkpoint()  # the start that was deleted up to holds in the new directory, too
            old, old_home = Path(move.source.directory), self._log_dirs.home_of(move.key)
            retired = retired_name(old, DELETED)
            if not move.work.swap(handle, str(retired)):
                return True  # too much came meanwhile: once more
            move.over = True
            self._log_dirs.take_in(move.key)
        try:
            if old_home is not None:
                with blaming(old_home):
                    sync_directory(old_home.path)
            rename(move.copy, str(move.home.path / old.name))
        finally:
            self._end(move)  # not before: a compaction would look for its files under the old name
        with blaming(move.home):
            sync_directory(move.home.path)
        write_snapshot(move.copy)
        self._log_dirs.checkpoint()
        return True

    def _fail(self, move: Move, problem: Exception) -> None:
        """What was copied from a partition that cannot be read any more may be wanted by somebody: it is set aside."""
        swapped = self._log_dirs.logs.get(move.key) is move.copy
        home = self._log_dirs.home_of(move.key)
        if (move.over and not swapped) or (home is not None and home.failure is not None):
            return  # told with its directory, or about to be
        if move.home.failure is None:
            self._drop(move, STRAY if move.source.offline_errno else DELETED)
            self.on_failed(move.key, problem)

    def _begin_again(self, move: Move) -> None:
        if not move.over:
            self._drop(move, DELETED)
            self._begin(move.key, move.home, move.source)

    # ---- between the threads and the loop ----

    def _on_loop(self, work: Awaitable[T]) -> T:
        """Waits for what the loop or the owner's thread has to do. A stop does not wait for it."""
        assert self._loop is not None
        future = asyncio.run_coroutine_threadsafe(_await(work), self._loop)
        while True:
            try:
                return future.result(LOOK_AGAIN_S)
            except TimeoutError:
                if self._stopping:
                    future.cancel()
                    raise _StoppingError from None

    def _try_on_loop(self, work: Awaitable[Any]) -> None:
        with suppress(_StoppingError):
            try:
                self._on_loop(work)
            except (OSError, LogError) as problem:
                self.on_failed(("", -1), problem)

    def _soon(self, work: Coroutine[Any, Any, None]) -> None:
        if self._loop is None:
            work.close()
            return
        asyncio.run_coroutine_threadsafe(work, self._loop).add_done_callback(lambda done: done.exception())


class _Throttle:
    """Bytes a second over all threads. A debt is paid off at the rate of the moment."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._debt = 0.0
        self._looked_at = time.monotonic()

    def owe(self, more: float, rate: float) -> float:
        """Adds to the debt; how long until it is paid. With a rate of 0 nothing is ever paid."""
        with self._lock:
            now = time.monotonic()
            self._debt = max(0.0, self._debt - (now - self._looked_at) * rate) + more
            self._looked_at = now
            if rate <= 0:
                return LOOK_AGAIN_S
            return self._debt / rate if self._debt / rate > 0.001 else 0.0  # shorter ones add up first


async def _await(work: Awaitable[T]) -> T:
    return await work


def first_offset(source: PartitionLog) -> int:
    """Where a copy begins: the batch that holds the start may begin below it, or, in a compacted log, above."""
    while True:
        start = source.log_start_offset
        try:
            head = source.read(start, 1)
        except LogError:
            if source.offline_errno or source.log_start_offset == start:
                raise
            continue  # the start was raised in between
        return min(start, int.from_bytes(head[:8], "big")) if head else start


def _follow(move: Move) -> None:
    """Start and high watermark go along, so that the checkpoints of the new directory tell them."""
    move.copy.high_watermark = move.source.high_watermark
    start = min(move.source.log_start_offset, move.copy.high_watermark)
    if start > move.copy.log_start_offset:
        move.copy.raise_start(start)


def _remove(paths: list[Path]) -> None:
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
