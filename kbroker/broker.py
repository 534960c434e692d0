"""A broker as an object of a program: its settings, its control thread, its temporary directory.

Threads     start and stop belong to the caller. Everything in between runs on the control thread, an asyncio loop of
            its own: an embedded broker leaves its host's event loop, signals, logging and switch interval alone.
Forks       a running broker belongs to the process that started it. In a forked child the object is inert: the child
            closes its copies of the descriptors, and stop(), `with` and the end of the interpreter do nothing more.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from kbroker._core.clock import BrokerClock
from kbroker._core.core import never_free
from kbroker.config import Config, ConfigError
from kbroker.observe.logging import BrokerLog
from kbroker.server.broker_server import BrokerServer, StartError
from kbroker.server.inherited import Held, close_inherited
from kbroker.storage.identity import DataDirectoryError
from kbroker.storage.temporary import DATA, TemporaryDirectory, make_temporary, new_name, reap

if TYPE_CHECKING:
    import asyncio

    from kbroker._core.core import Counters
    from kbroker.listeners import Listener

__all__ = ["Broker", "StartError"]

_STARTED: WeakSet[Broker] = WeakSet()  # those of this process that run, start or stop
NOT_RUNNING = "This broker is not running: call start(), or use it in a `with` block."


class Broker:
    """A Kafka broker in this process.

    >>> with Broker() as broker:
    ...     Producer({"bootstrap.servers": broker.bootstrap_servers})

    `async with Broker() as broker:` does the same without blocking the event loop.

    Without a data directory it keeps its topics in a temporary one that goes when it stops. Port 0 takes a free port.
    `config` takes Kafka's settings by their names; as keywords they have underscores for dots (`num_partitions=3`).
    Raises ConfigError for settings that cannot be used; start() raises StartError if the broker cannot run.
    """

    def __init__(
        self,
        data_dir: str | Path | None = None,
        *,
        port: int = 0,
        listeners: str | None = None,
        config: Mapping[str, object] | None = None,
        log: BrokerLog | None = None,
        clock: BrokerClock | None = None,
        **keywords: object,
    ) -> None:
        given = {name.replace("_", "."): value for name, value in keywords.items()}
        settings: dict[str, object] = {"num.network.threads": 1, **(config or {}), **given}
        if listeners is not None or "listeners" not in settings:
            settings["listeners"] = listeners or f"PLAINTEXT://127.0.0.1:{port}"
        self._temporary_name: Path | None = None
        if data_dir is not None:
            settings["log.dirs"] = str(data_dir)
        elif "log.dirs" not in settings and "log.dir" not in settings:
            self._temporary_name = new_name()
            settings["log.dirs"] = str(self._temporary_name / DATA)
        self._settings = settings
        self._prepare(Config.load(settings=settings), log, clock)

    @classmethod
    def from_config(cls, config: Config, *, log: BrokerLog, on_failure: Callable[[], None] | None = None) -> Broker:
        """For `kbroker start`: the settings are read already. `on_failure` is called once if the broker breaks down."""
        broker = cls.__new__(cls)
        broker._temporary_name = None
        broker._prepare(config, log, None)
        broker._on_failure = on_failure
        return broker

    def _prepare(self, config: Config, log: BrokerLog | None, clock: BrokerClock | None) -> None:
        self.config = config
        self._own_log = log is None  # one that was given is closed by its giver
        self.log = log or BrokerLog()
        self.clock = clock or BrokerClock()
        self.failed = False
        self.failure: str | None = None  # in one sentence
        self.core_options: dict[str, Any] = {}  # tests switch the data plane's stand-ins on here, before the start
        self._on_failure: Callable[[], None] | None = None
        self._temporary: TemporaryDirectory | None = None
        self._advertised: list[Listener] = []
        self._pid = -1  # of the process that started it
        self._thread: Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: BrokerServer | None = None

    def __repr__(self) -> str:
        if not self._advertised:
            state = "not running"
        elif self._pid != os.getpid():
            state = f"at {self.bootstrap_servers}, of process {self._pid}"
        else:
            state = f"at {self.bootstrap_servers}"
        return f"<kbroker.Broker {state}, data in {self.data_dir}{', failed' if self.failed else ''}>"

    @property
    def data_dir(self) -> Path:
        """Where the first of its log directories is, or will be once it has started."""
        return self.config.log_dirs[0]

    @property
    def bootstrap_servers(self) -> str:
        """What clients are given as bootstrap.servers. RuntimeError unless the broker is running."""
        return ",".join(
            f"[{one.host}]:{one.port}" if ":" in one.host else f"{one.host}:{one.port}" for one in self._running()
        )

    @property
    def port(self) -> int:
        """The port of the first listener. RuntimeError unless the broker is running."""
        return self._running()[0].port

    def _running(self) -> list[Listener]:
        if not self._advertised:
            raise RuntimeError(NOT_RUNNING)
        return self._advertised

    def counters(self) -> Counters:
        """What the data plane has done and holds now, read without disturbing it. RuntimeError unless it is running."""
        if self._server is None:
            raise RuntimeError(NOT_RUNNING)
        return self._server.counters()

    def start(self) -> Broker:
        """Returns when clients can connect. StartError, and nothing stays behind, if that cannot be."""
        if self._advertised and self._pid != os.getpid():
            raise StartError(f"This broker runs in process {self._pid}, which this one was forked from: make another.")
        if self._thread is not None:
            raise StartError("This broker has been started already.")
        import asyncio

        from kbroker.patience import PatientSelector

        self._pid = os.getpid()
        self.failed, self.failure = False, None
        if self._own_log:
            self.log = BrokerLog()
        self._make_temporary()
        _STARTED.add(self)
        selector = PatientSelector()
        self._loop = asyncio.SelectorEventLoop(selector)
        self._thread = Thread(target=self._run_loop, name="kbroker-control", daemon=True)
        self._thread.start()
        self._server = BrokerServer(
            self.config,
            self.log,
            self.clock,
            selector,
            core_options=self.core_options,
            break_down=self.break_down,
        )
        try:
            self._advertised = self._on_loop(self._server.start())
        except (DataDirectoryError, ConfigError) as problem:
            self._leave_nothing()
            raise StartError(str(problem)) from None
        except BaseException:
            self._leave_nothing()
            raise
        if self._temporary is not None:
            self._loop.call_soon_threadsafe(self._reap_dead)
        return self

    def stop(self) -> None:
        """A clean stop. Does nothing if the broker is not running, or runs in the process this one was forked from."""
        if self._server is None or self._thread is None:
            return
        try:
            self._on_loop(self._server.stop())
        finally:
            self._leave_nothing()

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Broker:
        import asyncio

        try:
            await _in_own_thread(self.start)
        except asyncio.CancelledError:
            await _in_own_thread(self.stop)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _in_own_thread(self.stop)

    def _run_loop(self) -> None:
        assert self._loop is not None
        self._loop.run_forever()

    def _on_loop(self, work: Coroutine[Any, Any, Any]) -> Any:
        import asyncio

        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _leave_nothing(self) -> None:
        """Ends the control thread and the log's, and removes the temporary directory."""
        assert self._loop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._thread = self._loop = self._server = None
        self._advertised = []
        if self._own_log:
            self.log.close()
        self._remove_temporary()
        _STARTED.discard(self)

    def _make_temporary(self) -> None:
        if self._temporary_name is None:
            return
        try:
            self._temporary = make_temporary(self._temporary_name)
        except OSError as problem:
            raise StartError(f"No temporary directory can be made at {problem.filename}: {problem.strerror}.") from None
        if self._temporary.path != self._temporary_name:
            self._temporary_name = self._temporary.path
            self._settings["log.dirs"] = str(self._temporary_name / DATA)
            self.config = Config.load(settings=self._settings)

    def _reap_dead(self) -> None:
        """Beside serving: a start does not wait for it, but a stop does."""
        assert self._loop is not None
        self._loop.run_in_executor(None, reap)

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            self._temporary.remove()
            self._temporary = None

    def break_down(self, sentence: str, error: BaseException) -> None:
        """Records and logs a failure that the broker cannot survive, and calls `on_failure`, once."""
        if self.failed:
            return
        self.failed, self.failure = True, sentence
        self.log.error(sentence, cause=None if isinstance(error, OSError) else error)
        if self._on_failure is not None:
            self._on_failure()

    def _abandon(self) -> Held:
        """In a forked child: makes the object inert and returns what the child's copies of descriptors are."""
        held = self._server.held() if self._server is not None else Held()
        if self._temporary is not None:
            held.descriptors.add(self._temporary.marker)
        held.descriptors |= _descriptors_of(self._loop)
        # Their threads are gone and their mutexes may be locked: neither may ever be closed or freed here.
        never_free((self._server, self._loop, self._thread))
        self._thread = self._loop = self._server = self._temporary = None
        return held


async def _in_own_thread(work: Callable[[], object]) -> None:
    """Runs `work` in a thread that ends with it. If the task is cancelled, it still waits for the work first."""
    import asyncio

    loop = asyncio.get_running_loop()
    over = loop.create_future()

    def run() -> None:
        error: BaseException | None = None
        try:
            work()
        except BaseException as problem:
            error = problem
        with suppress(RuntimeError):  # the host has closed its loop
            loop.call_soon_threadsafe(over.set_result, error)

    thread = Thread(target=run, name="kbroker-host", daemon=True)
    thread.start()
    cancelled: asyncio.CancelledError | None = None
    while not over.done():
        try:
            await asyncio.shield(over)
        except asyncio.CancelledError as problem:
            cancelled = problem
    thread.join()
    if over.result() is not None:
        raise over.result()
    if cancelled is not None:
        raise cancelled


def _descriptors_of(loop: object) -> set[int]:
    """An event loop's selector and the pair of sockets that wakes it; none once it is closed."""
    found = set()
    for name in ("_selector", "_ssock", "_csock"):
        with suppress(AttributeError, ValueError, OSError):
            found.add(getattr(loop, name).fileno())
    return {one for one in found if one >= 0}


def _abandon_inherited() -> None:
    """In every forked child, before any code of the host runs."""
    brokers = list(_STARTED)
    if brokers:
        _STARTED.clear()
        close_inherited([broker._abandon() for broker in brokers])


def _remove_temporaries() -> None:
    """At the end of a program that did not stop its brokers: their threads end with the process."""
    for broker in list(_STARTED):
        broker._remove_temporary()


os.register_at_fork(after_in_child=_abandon_inherited)
atexit.register(_remove_temporaries)
