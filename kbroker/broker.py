"""A broker as an object of a program: its settings, its control thread, its temporary directory.

Threads     start and stop belong to the caller. Everything in between runs on the control thread, an asyncio loop of
            its own: an embedded broker leaves its host's event loop, signals, logging and switch interval alone.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any

from kbroker._core.clock import BrokerClock
from kbroker.config import Config, ConfigError
from kbroker.observe.logging import BrokerLog
from kbroker.server.broker_server import BrokerServer, StartError
from kbroker.storage.identity import DataDirectoryError

if TYPE_CHECKING:
    import asyncio

    from kbroker._core.core import Counters
    from kbroker.listeners import Listener

__all__ = ["Broker", "StartError"]


class Broker:
    """A Kafka broker in this process.

    >>> with Broker() as broker:
    ...     Producer({"bootstrap.servers": broker.bootstrap_servers})

    Without a data directory it keeps its topics in a temporary one that goes when it stops. Port 0 takes a free port.
    `config` takes Kafka's settings by their names; as keywords they have underscores for dots (`num_partitions=3`).
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
        self._temporary: Path | None = None
        given = {name.replace("_", "."): value for name, value in keywords.items()}
        settings: dict[str, object] = {"num.network.threads": 1, **(config or {}), **given}
        if listeners is not None or "listeners" not in settings:
            settings["listeners"] = listeners or f"PLAINTEXT://127.0.0.1:{port}"
        if data_dir is not None:
            settings["log.dirs"] = str(data_dir)
        elif "log.dirs" not in settings and "log.dir" not in settings:
            from tempfile import mkdtemp

            self._temporary = Path(mkdtemp(prefix="kbroker-"))
            atexit.register(self._remove_temporary)  # for a program that ends without stopping its broker
            settings["log.dirs"] = str(self._temporary)
        try:
            self._prepare(Config.load(settings=settings), log or BrokerLog(), clock)
        except BaseException:
            self._remove_temporary()
            raise

    @classmethod
    def from_config(cls, config: Config, *, log: BrokerLog, on_failure: Callable[[], None] | None = None) -> Broker:
        """For `kbroker start`: the settings are read already. `on_failure` is called once if the broker breaks down."""
        broker = cls.__new__(cls)
        broker._temporary = None
        broker._prepare(config, log, None)
        broker._on_failure = on_failure
        return broker

    def _prepare(self, config: Config, log: BrokerLog, clock: BrokerClock | None) -> None:
        self.config = config
        self.log = log
        self.clock = clock or BrokerClock()
        self.failed = False
        self.failure: str | None = None  # in one sentence
        self.core_options: dict[str, Any] = {}  # tests switch the data plane's stand-ins on here, before the start
        self._on_failure: Callable[[], None] | None = None
        self._advertised: list[Listener] = []
        self._thread: Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: BrokerServer | None = None

    @property
    def data_dir(self) -> Path:
        return self.config.log_dirs[0]

    @property
    def bootstrap_servers(self) -> str:
        """What clients are given as bootstrap.servers, once the broker has started."""
        return ",".join(
            f"[{one.host}]:{one.port}" if ":" in one.host else f"{one.host}:{one.port}" for one in self._advertised
        )

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return self._advertised[0].port

    def counters(self) -> Counters:
        """What the data plane of a running broker has done and holds now, read without disturbing it."""
        if self._server is None:
            raise RuntimeError("This broker is not running.")
        return self._server.counters()

    def start(self) -> Broker:
        """Returns when clients can connect. StartError, and nothing stays behind, if that cannot be."""
        if self._thread is not None:
            raise StartError("This broker has been started already.")
        import asyncio

        from kbroker.patience import PatientSelector

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
            self._end_loop()
            raise StartError(str(problem)) from None
        except BaseException:
            self._end_loop()
            raise
        return self

    def stop(self) -> None:
        """A clean stop. A broker that is not running is left as it is."""
        if self._server is None or self._thread is None:
            return
        try:
            self._on_loop(self._server.stop())
        finally:
            self._end_loop()
            self._remove_temporary()

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run_loop(self) -> None:
        assert self._loop is not None
        self._loop.run_forever()

    def _on_loop(self, work: Coroutine[Any, Any, Any]) -> Any:
        import asyncio

        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end_loop(self) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._thread = self._loop = self._server = None

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            from shutil import rmtree

            rmtree(self._temporary, ignore_errors=True)
            atexit.unregister(self._remove_temporary)

    def break_down(self, sentence: str, error: BaseException) -> None:
        """Something failed without which no broker can go on: it is logged, and whoever started us is told, once."""
        if self.failed:
            return
        self.failed, self.failure = True, sentence
        self.log.error(sentence, cause=None if isinstance(error, OSError) else error)
        if self._on_failure is not None:
            self._on_failure()
