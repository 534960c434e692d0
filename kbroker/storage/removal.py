"""Files whose time is over are removed where nobody waits for it, and at a pace that nobody notices.

To remove a file is work in the kernel, which is not interrupted there for the thread of a client's request: its pages
are given back, its blocks are freed, the journal is told. So one thread does it, behind all others, and rests after
each file for a multiple of the time that it took.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from threading import Event

from kbroker.pool import Pool
from kbroker.storage.priority import step_back

RESTS = 4.0  # times as long as the work before it
REST_MAX_S = 0.1


class Remover:
    """From any thread. What a stop leaves is removed by the next start."""

    def __init__(self) -> None:
        self._thread = Pool(1, "kbroker-remover", initializer=step_back)
        self._stopping = Event()

    def files(self, paths: Iterable[Path | str]) -> Future[None]:
        """Those that are still there: a topic that was deleted has taken its files along. The last failure is told."""
        return self._thread.submit(self._remove, paths, os.unlink)

    def directory(self, path: Path) -> Future[None]:
        """With the files in it."""
        return self._thread.submit(self._remove_directory, path)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.shutdown(cancel_futures=True)

    def _remove_directory(self, path: Path) -> None:
        self._remove([entry.path for entry in os.scandir(path)], os.unlink)
        self._remove([path], os.rmdir)

    def _remove(self, paths: Iterable[Path | str], remove: Callable[[Path | str], None]) -> None:
        failed: OSError | None = None
        for path in paths:
            if self._stopping.is_set():
                return
            began = time.monotonic()
            try:
                remove(path)
            except FileNotFoundError:
                continue
            except OSError as problem:
                failed = problem
            self._stopping.wait(min(REST_MAX_S, RESTS * (time.monotonic() - began)))
        if failed is not None:
            raise failed
