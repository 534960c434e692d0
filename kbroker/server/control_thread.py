"""The control thread of one run of a broker: it starts the server, serves until it is asked to stop, and cleans up.

The thread does the whole stop itself. So any number of threads may ask for it and wait, a wait may be interrupted by
Ctrl-C, and the stop still runs to its end.
"""

from __future__ import annotations

import asyncio
import encodings.ascii
import encodings.idna  # noqa: F401 - getaddrinfo needs both: imported here, no fork can fall into their import
import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

from kbroker._core.core import never_free
from kbroker.patience import PatientSelector
from kbroker.pool import Pool
from kbroker.server.broker_server import BrokerServer
from kbroker.server.inherited import Held

if TYPE_CHECKING:
    from kbroker.listeners import Listener

POOL_THREADS = 32  # as many as asyncio's own default executor has at most
FORK_CHECK_S = 1.0


class ControlThread:
    """One run of a broker. It owns no thread, descriptor or file before start() and none after stop()."""

    def __init__(
        self,
        make_server: Callable[[PatientSelector], BrokerServer],
        *,
        beside: Callable[[], object] | None,
        clean_up: Callable[[], None],
    ) -> None:
        """`make_server` is called with the selector of the loop, `clean_up` at the very end, both on the thread.

        `beside` runs in another thread once the broker serves: a stop waits for it, a start does not.
        """
        self.advertised: list[Listener] = []  # empty until clients can connect
        self.server: BrokerServer | None = None
        self._make_server = make_server
        self._beside = beside
        self._clean_up = clean_up
        self._pid = os.getpid()
        self._failure: BaseException | None = None  # of the start or of the stop
        self._stop_asked = False
        self._begun = Lock()  # taken by the thread as it begins, or by a stop before that; never released
        self._started = Event()  # or failed to
        self._ended = Event()
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = Thread(target=self._run, name="kbroker-control", daemon=True)

    def start(self) -> bool:
        """Returns when clients can connect; False if stop() was called meanwhile. Raises why the start failed."""
        try:
            self._thread.start()
            self._wait(self._started)
        except BaseException:  # Ctrl-C, or the system has no more threads
            self.stop()
            raise
        if self._failure is not None:
            self._join()
            raise self._failure
        return not self._stop_asked

    def stop(self) -> None:
        """Returns when nothing is left of this run, whichever thread asked first. Raises why the stop failed.

        Ctrl-C does not shorten a stop: KeyboardInterrupt is raised when it is over. A second one is raised at once.
        """
        try:
            self._ask_to_stop()
            self._join()
        except BaseException:
            self._ask_to_stop()
            self._join()
            raise
        if self._failure is not None:
            raise self._failure

    def held(self) -> Held:
        """What this run holds open, for a forked child to close."""
        held = self.server.held() if self.server is not None else Held()
        held.descriptors |= _descriptors_of(self._loop)
        return held

    def abandon(self) -> None:
        """For a forked child: keeps everything of this run for ever. Threads are gone, mutexes may be locked."""
        never_free(self)

    def _ask_to_stop(self) -> None:
        self._stop_asked = True
        if self._begun.acquire(blocking=False):  # before the thread, which will do nothing
            try:
                self._clean_up()
            finally:
                self._started.set()
                self._ended.set()
        elif self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: the stop is almost over
                self._loop.call_soon_threadsafe(self._wake.set)

    def _join(self) -> None:
        self._wait(self._ended)
        if self._pid == os.getpid() and self._thread.is_alive():
            self._thread.join()

    def _wait(self, event: Event) -> None:
        """Also returns in a child that a signal handler forked during the wait: the event will never be set there."""
        while not event.wait(FORK_CHECK_S) and self._pid == os.getpid():
            pass

    def _run(self) -> None:
        if not self._begun.acquire(blocking=False):
            return
        try:
            with ExitStack() as undo:
                undo.callback(self._clean_up)
                selector = PatientSelector()
                undo.callback(selector.close)
                self._loop = asyncio.SelectorEventLoop(selector)
                undo.callback(self._loop.close)
                pool = Pool(POOL_THREADS, "kbroker-worker", ready=True)
                undo.callback(pool.shutdown)
                self._loop.set_default_executor(pool)
                self.server = self._make_server(selector)
                self._loop.run_until_complete(self._live(self.server))
        except BaseException as problem:
            self._failure = problem
        finally:
            self._started.set()
            self._ended.set()

    async def _live(self, server: BrokerServer) -> None:
        self.advertised = await server.start()
        if self._beside is not None:
            asyncio.get_running_loop().run_in_executor(None, self._beside)
        self._started.set()
        if not self._stop_asked:
            await self._wake.wait()
        await server.stop()


def _descriptors_of(loop: object) -> set[int]:
    """The descriptors of an event loop's selector and of its pair of sockets; none once the loop is closed."""
    found = set()
    for name in ("_selector", "_ssock", "_csock"):
        with suppress(AttributeError, ValueError, OSError):
            found.add(getattr(loop, name).fileno())
    return {one for one in found if one >= 0}
