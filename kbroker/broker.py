"""A broker as an object of a program: its settings, its control thread, its temporary directory.

Threads     start and stop belong to the caller. Everything in between runs on the control thread, an asyncio loop of
            its own: an embedded broker leaves its host's event loop, signals, logging and switch interval alone.
Forks       a running broker belongs to the process that started it. In a forked child the object is inert: the child
            closes its copies of the descriptors, and stop(), `with` and the end of the interpreter do nothing more.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import RLock, Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from kbroker._core.clock import BrokerClock
from kbroker.config import Config, ConfigError
from kbroker.observe.logging import BrokerLog
from kbroker.server import StartError
from kbroker.storage.temporary import DATA, TemporaryDirectory, make_temporary, new_name, reap

if TYPE_CHECKING:
    import asyncio

    from kbroker._core.core import Counters
    from kbroker.listeners import Listener
    from kbroker.patience import PatientSelector
    from kbroker.server.broker_server import BrokerServer
    from kbroker.server.control_thread import ControlThread
    from kbroker.server.inherited import Held

__all__ = ["Broker", "StartError"]

_STARTED: WeakSet[Broker] = WeakSet()  # the brokers of this process that run, start or stop
_FORK = RLock()  # whoever holds it keeps every other thread from forking
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
        self._pid = -1  # of the process that started it
        self._control: ControlThread | None = None
        self._parents: list[Listener] = []  # in a forked child: the listeners of the parent's broker

    def __repr__(self) -> str:
        if not self._listeners():
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

    def _listeners(self) -> list[Listener]:
        control = self._control
        return self._parents if control is None else control.advertised

    def _running(self) -> list[Listener]:
        if not (listeners := self._listeners()):
            raise RuntimeError(NOT_RUNNING)
        return listeners

    def counters(self) -> Counters:
        """What the data plane has done and holds now, read without disturbing it. RuntimeError unless it is running."""
        control = self._control
        if control is None or control.server is None or not control.advertised:
            raise RuntimeError(NOT_RUNNING)
        return control.server.counters()

    def start(self) -> Broker:
        """Returns when clients can connect. StartError, and nothing stays behind, if that cannot be."""
        if self._parents:
            raise StartError(f"This broker runs in process {self._pid}, which this one was forked from: make another.")
        with _FORK:  # a child forked during an import could never import the same module
            from kbroker.server.control_thread import ControlThread
            from kbroker.storage.identity import DataDirectoryError

            if self in _STARTED:
                raise StartError("This broker has been started already.")
            _STARTED.add(self)
        try:
            served = self._begin(ControlThread).start()
        except (DataDirectoryError, ConfigError) as problem:
            raise StartError(str(problem)) from None
        if not served:
            raise StartError("This broker was stopped while it was starting.")
        return self

    def stop(self) -> None:
        """A clean stop. Does nothing if the broker is not running, or runs in the process this one was forked from.

        Any thread may call it, also while another one does: each returns when the broker has stopped.
        """
        control = self._control
        if control is not None:
            control.stop()

    def _begin(self, control_thread: type[ControlThread]) -> ControlThread:
        self._pid = os.getpid()
        self.failed, self.failure = False, None
        try:
            if self._own_log:
                self.log = BrokerLog()
            self._make_temporary()
            beside = None if self._temporary is None else partial(reap, self._temporary.path.parent)
            self._control = control_thread(self._make_server, beside=beside, clean_up=self._leave_nothing)
        except BaseException:
            self._leave_nothing()
            raise
        return self._control

    def _make_server(self, selector: PatientSelector) -> BrokerServer:
        from kbroker.server.broker_server import BrokerServer

        return BrokerServer(
            self.config,
            self.log,
            self.clock,
            selector,
            core_options=self.core_options,
            break_down=self.break_down,
        )

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

    def _leave_nothing(self) -> None:
        """Ends the log's thread and removes the temporary directory."""
        self._control = None
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
        """Makes the object inert in a forked child. Returns what the child's copies of descriptors are."""
        from kbroker.server.inherited import Held  # imported already, by the start in the parent

        control, self._control = self._control, None
        held = Held()
        if control is not None:
            control.abandon()
            held = control.held()
            self._parents = control.advertised
        if self._temporary_name is not None:
            held.temporary.append(os.path.realpath(self._temporary_name))
        self._temporary = None
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


def _abandon_inherited() -> None:
    """In every forked child, before any code of the host runs."""
    brokers = list(_STARTED)
    if brokers:
        from kbroker.server.inherited import close_inherited

        _STARTED.clear()
        close_inherited([broker._abandon() for broker in brokers])


def _stop_forgotten() -> None:
    """At the end of a program that did not stop its brokers."""
    for broker in list(_STARTED):
        with suppress(Exception):  # nobody is left to handle it, and the log has it
            broker.stop()


os.register_at_fork(before=_FORK.acquire, after_in_parent=_FORK.release, after_in_child=_FORK.release)
os.register_at_fork(after_in_child=_abandon_inherited)
atexit.register(_stop_forgotten)
