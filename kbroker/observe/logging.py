"""Log lines, structured by structlog and written by a thread of their own.

Why a thread: loading structlog costs about 55 ms, and a terminal or pipe that is not read can block a write for ever.
Neither may stand between a client and its answer, so the control loop only queues an event, with the time at which it
happened. Clients may have taken every descriptor by the time it is loaded: one is kept back for that, and it is tried
until it works, for then above all somebody wants to read the log. Why not structlog's global configuration: an embedded
broker leaves the host's logging alone; each BrokerLog has its own chain.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections import deque
from contextlib import suppress
from threading import Condition, Thread
from typing import Any, TextIO
from weakref import WeakSet

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
FORMATS = ("console", "json", "host")
QUEUED_MAX = 10_000  # lines; past it the oldest go, and a line says how many
PATIENCE_S = (
    0.25  # structlog is loaded this long after the first line, unless that is a warning: first clients go first
)


_LOGS: WeakSet[BrokerLog] = WeakSet()  # what a forked child must renew


def _renew_logs() -> None:
    for log in list(_LOGS):
        log.renew_in_child()


os.register_at_fork(after_in_child=_renew_logs)


class BrokerLog:
    """Collects events from any thread and writes them in order.

    `host` format hands them to the standard library's logger "kbroker", where the embedding program decides.
    """

    def __init__(self, log_format: str = "host", level: str = "info", stream: TextIO | None = None) -> None:
        if log_format not in FORMATS:
            raise ValueError(f"log format {log_format!r} is none of {', '.join(FORMATS)}")
        if level not in LEVELS:
            raise ValueError(f"log level {level!r} is none of {', '.join(LEVELS)}")
        self._format = log_format
        self._threshold = LEVELS[level]
        self._stream = stream if stream is not None else sys.stderr
        self._queue: deque[tuple[str, dict[str, Any]]] = deque()
        self._dropped = 0
        self._changed = Condition()
        self._closing = False
        self._urgent = False
        self._writer: Thread | None = None
        self._kept_back = -1  # a descriptor, until structlog is loaded
        _LOGS.add(self)

    def debug(self, event: str, **fields: Any) -> None:
        self._put("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._put("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._put("warning", event, fields)

    def error(self, event: str, cause: BaseException | None = None, **fields: Any) -> None:
        """With the exception that caused it, its traceback is written as well."""
        if cause is not None:
            fields["exc_info"] = (type(cause), cause, cause.__traceback__)
        self._put("error", event, fields)

    def _put(self, level: str, event: str, fields: dict[str, Any]) -> None:
        if LEVELS[level] < self._threshold:
            return
        with self._changed:
            if self._closing:
                return
            if len(self._queue) >= QUEUED_MAX:
                self._queue.popleft()
                self._dropped += 1
            self._queue.append((level, {"event": event, "timestamp": time.time(), **fields}))
            self._urgent = self._urgent or LEVELS[level] >= LEVELS["warning"]
            if self._writer is None:
                with suppress(OSError):
                    self._kept_back = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
                self._writer = Thread(target=self._write, name="kbroker-log", daemon=True)
                self._writer.start()
            self._changed.notify()

    def renew_in_child(self) -> None:
        """After a fork: the writer's thread is the parent's, and so are the queued lines; its mutex may be locked."""
        self._changed = Condition()
        self._queue.clear()
        self._dropped = 0
        self._writer = None
        if self._kept_back >= 0:
            os.close(self._kept_back)
            self._kept_back = -1

    def close(self, timeout_s: float = 5.0) -> None:
        """Writes what is queued and ends the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._writer is not None:
            self._writer.join(timeout_s)

    def _write(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._urgent, PATIENCE_S)
        logger = self._load()
        while True:
            with self._changed:
                while not self._queue and not self._closing:
                    self._changed.wait()
                lines = list(self._queue)
                self._queue.clear()
                dropped, self._dropped = self._dropped, 0
            if dropped:
                lines.append(
                    ("warning", {"event": "log lines were dropped", "timestamp": time.time(), "count": dropped})
                )
            for level, fields in lines:
                try:
                    getattr(logger, level)(**fields)
                except (OSError, ValueError):
                    return  # the stream is gone: nobody reads, nothing more to do
            if not lines and self._closing:
                return

    def _load(self) -> Any:
        while True:
            if self._kept_back >= 0:
                os.close(self._kept_back)
                self._kept_back = -1
            try:
                return self._build()
            except (OSError, ImportError) as problem:
                if not _is_short_of_files(problem):
                    raise
            with self._changed:
                if self._changed.wait_for(lambda: self._closing, PATIENCE_S):
                    return self._build()

    def _build(self) -> Any:
        if self._format == "host":
            return _HostLogger()
        import structlog

        chain: list[Any] = [structlog.processors.add_log_level, _iso_timestamp]
        if self._format == "json":
            frames = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)  # locals may hold what is secret
            chain += [structlog.processors.ExceptionRenderer(frames), structlog.processors.JSONRenderer(default=str)]
        else:
            colours = bool(getattr(self._stream, "isatty", bool)())
            chain.append(
                structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=structlog.dev.plain_traceback)
            )
        return structlog.wrap_logger(
            structlog.WriteLogger(self._stream), processors=chain, wrapper_class=structlog.BoundLogger
        )


def _is_short_of_files(problem: OSError | ImportError) -> bool:
    """A library that cannot be opened is an ImportError, in the words of the system."""
    if isinstance(problem, OSError):
        return problem.errno in {errno.EMFILE, errno.ENFILE}
    return any(os.strerror(one) in str(problem) for one in (errno.EMFILE, errno.ENFILE))


class _HostLogger:
    """Writes to the standard library's logger "kbroker". It needs no structlog, which costs its host 55 ms to load."""

    def __init__(self) -> None:
        import logging

        self._logger = logging.getLogger("kbroker")

    def __getattr__(self, level: str) -> Any:
        def write(**fields: Any) -> None:
            del fields["timestamp"]  # the host's handlers stamp their own
            error = fields.pop("exc_info", None)
            line = " ".join([fields.pop("event"), *(f"{name}={value!r}" for name, value in fields.items())])
            getattr(self._logger, level)(line, exc_info=error)

        return write


def _iso_timestamp(_logger: Any, _method: str, fields: dict[str, Any]) -> dict[str, Any]:
    at = fields["timestamp"]
    fields["timestamp"] = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at * 1000) % 1000:03d}Z"
    return fields
