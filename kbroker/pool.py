"""A pool of threads that works until its owner shuts it down, even after the main thread of the program has ended.

Why not ThreadPoolExecutor itself: Python ends the threads of every ThreadPoolExecutor as soon as the main thread ends,
before it waits for the program's other threads and before it calls atexit callbacks. A broker must go on serving those
threads, and `atexit.register(broker.stop)` must stop it cleanly. This class inherits from ThreadPoolExecutor because
asyncio accepts nothing else as the default executor of an event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, Semaphore, Thread
from typing import Any, TypeVar

T = TypeVar("T")


class _Call:
    """One submitted call. It must not refer to itself: what it holds is freed when it is done, not by a collection."""

    __slots__ = ("arguments", "function", "future", "named")

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        self.future: Future[Any] = Future()
        self.function = function
        self.arguments = arguments
        self.named = named

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            result = self.function(*self.arguments, **self.named)
        except BaseException as problem:
            self.future.set_exception(problem)
        else:
            self.future.set_result(result)


class Pool(ThreadPoolExecutor):
    """At most `threads` daemon threads, started on demand.

    With `ready=True` the first thread is started at once: since CPython 3.12 a program that is ending cannot start a
    thread any more. A pool that has no thread and cannot start one runs the work in the thread that submits it.
    """

    def __init__(
        self, threads: int, name: str, *, initializer: Callable[[], None] | None = None, ready: bool = False
    ) -> None:
        # The base class is not initialised: every method that touches its attributes is replaced below.
        self._most = threads
        self._name = name
        self._prepare = initializer
        self._work: SimpleQueue[_Call | None] = SimpleQueue()
        self._idle = Semaphore(0)
        self._mutex = Lock()
        self._workers: list[Thread] = []
        self._over = False
        if ready:
            self._start_thread()
            self._idle.release()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Queues the call and returns its future. RuntimeError after shutdown()."""
        call = _Call(fn, args, kwargs)
        with self._mutex:
            if self._over:
                raise RuntimeError(f"The pool {self._name} is shut down.")
            if not self._idle.acquire(blocking=False) and len(self._workers) < self._most:
                with suppress(RuntimeError):  # the program is ending, or the system has no more threads
                    self._start_thread()
            queued = bool(self._workers)
            if queued:
                self._work.put(call)
        if not queued:
            call.run()
        return call.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accepts no more work; `wait` returns when what was submitted is done, or cancelled, and no thread is left."""
        with self._mutex:
            self._over = True
            while cancel_futures:
                try:
                    dropped = self._work.get_nowait()
                except Empty:
                    break
                if dropped is not None:
                    dropped.future.cancel()
            self._work.put(None)
        if wait:
            for worker in self._workers:
                worker.join()

    def _start_thread(self) -> None:
        worker = Thread(target=self._serve, name=f"{self._name}-{len(self._workers)}", daemon=True)
        worker.start()
        self._workers.append(worker)

    def _serve(self) -> None:
        if self._prepare is not None:
            self._prepare()
        while (call := self._work.get()) is not None:
            call.run()
            del call  # with its arguments and its result, before this thread waits
            self._idle.release()
        self._work.put(None)  # for the next thread of the pool
