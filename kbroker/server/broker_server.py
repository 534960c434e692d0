"""The rooms of a running broker, built, started in order and stopped in the opposite order.

    start   bind the ports -> lock the directories -> read the metadata log and lead it -> open the partitions
            -> register with the real ports -> publish what is served -> let the network threads run
    stop    refuse new connections and answer what is in hand -> hand over leadership -> flush, checkpoint, close
            -> leave the clean-shutdown marker -> release the directories

Threads     everything runs on the control thread, an asyncio loop of its own, but for `counters`.
"""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from kbroker._core.clock import BrokerClock
from kbroker._core.core import Core
from kbroker._core.views import ViewHandle
from kbroker.api import REGISTRY
from kbroker.api.context import Rooms
from kbroker.api.k18_api_versions import bodies
from kbroker.api.producer_ids import ProducerIds
from kbroker.cluster.configs import dynamic_of
from kbroker.cluster.image import BROKER_RESOURCE, TOPIC_RESOURCE
from kbroker.cluster.runtime import Replicas
from kbroker.config import NOT_CHANGED, Config, ConfigError, Dynamic
from kbroker.coordinators import Node, group_coordinator, marker_writer, transaction_coordinator
from kbroker.gateway import Gateway
from kbroker.listeners import Listener
from kbroker.memory import memory_bytes
from kbroker.observe.logging import BrokerLog
from kbroker.observe.repeats import Repeats
from kbroker.patience import Patience
from kbroker.protocol import apis
from kbroker.quorum.driver import Controller
from kbroker.server import StartError
from kbroker.server.inherited import Held
from kbroker.server.start_warnings import bound_listeners, warn_of_open_listeners, warn_of_replication
from kbroker.storage.cleaner import CleanerSettings, LogCleaner
from kbroker.storage.log_dir import LOCK
from kbroker.storage.log_dirs import LogDirs
from kbroker.storage.news import News

if TYPE_CHECKING:
    import asyncio

    from kbroker._core.core import Counters
    from kbroker.cluster.delta import Delta
    from kbroker.cluster.image import ClusterImage
    from kbroker.patience import PatientSelector
    from kbroker.storage.log_dir import LogDir
    from kbroker.storage.strays import Strays

EVENTS_EVERY_S = 1.0  # how often the data plane is asked what should be logged
DRAIN_MS = 5_000  # how long a stop waits for replies to leave
BACKLOG = 4_096  # connections that may wait to be accepted; Kafka's 50 would turn a burst of clients away
MAILBOX_SLOTS = 8_192  # requests that may wait for the control loop; Kafka's 500 is what its threads can answer at once
MEND = "Free space on it or mend the disk, then start the broker again: nothing that was acknowledged is lost."
CONNECTION_LIMITS = "max.connection"  # what the names of these settings begin with
THE_SYSTEMS = -1  # a socket buffer that the system sizes by itself
RECEIVE_BUFFER_BYTES = 1_048_576  # the system's own starts small: a client of large batches waits for it to grow


class BrokerServer:
    """The running rooms. Every method but counters is called on the control loop."""

    def __init__(
        self,
        config: Config,
        log: BrokerLog,
        clock: BrokerClock,
        selector: PatientSelector,
        *,
        core_options: Mapping[str, Any],
        break_down: Callable[[str, BaseException], None],
    ) -> None:
        """`break_down` is called with a sentence and its cause when the broker cannot go on."""
        self._config = config
        self._log = log
        self._repeats = Repeats(log)
        self._clock = clock
        self._selector = selector
        self._core_options = core_options
        self._break_down = break_down
        self._requests: set[asyncio.Task[None]] = set()
        self._timers: list[asyncio.Task[None]] = []
        self._undo: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._bound: dict[str, int] = {}  # the port of each listener, by its name
        self._gateway: Gateway | None = None
        self._cleaner: LogCleaner | None = None

    async def start(self) -> list[Listener]:
        """The listeners as clients reach them. If a step fails, those before it are taken back."""
        try:
            return await self._start()
        except BaseException:
            while self._undo:
                await self._undo.pop()()
            raise

    async def _start(self) -> list[Listener]:

        config, clock = self._config, self._clock
        self._core = _make_core(config, clock, self._core_options)
        self._undo.append(self._close_core)
        views = {one.name: ViewHandle() for one in config.listeners}
        for one in config.listeners:
            self._bound[one.name] = _listen(self._core, one, views[one.name], config)
        advertised = [_advertised(one, self._bound[one.name]) for one in config.advertised_listeners]
        self._log_dirs = LogDirs.open(config.log_dirs, config.node_id, clock, needed=config.metadata_log_dir)
        self._undo.append(self._release_log_dirs)

        self._controller = await Controller.open(config, clock, self._log_dirs)
        self._undo.append(self._controller.close)
        self._replicas = Replicas(config, self._log_dirs, views)
        self._replicas.tell_directories_with(self._controller.assign_directories)
        self._replicas.tell_with(News(self._log))
        image = self._controller.image
        strays = await self._replicas.start(image, self._controller.deleted_topics)
        self._check_directories()
        self._controller.listen(self._replicas.on_commit)
        self._controller.listen(self._on_commit)
        if any(name.startswith(CONNECTION_LIMITS) for each in self._replicas.dynamic(image) for name in each):
            await self._limit_connections(image)
        self._start_cleaner()
        self._coordinate()
        if elsewhere := await self._replicas.report_directories(image):
            self._log.warning(
                "partitions lie in another log directory than the cluster was told: it is told now",
                partitions=len(elsewhere),
                one_of_them="-".join(map(str, min(elsewhere))),
            )
        await self._controller.register(advertised)
        self._start_moves()
        self._publish_apis(self._controller.image)
        self._open_gateway()
        self._core.start()
        self._tell(strays, advertised)
        self._watch_directories()
        return advertised

    def _check_directories(self) -> None:
        """Without its metadata, or without any directory, nobody is served."""
        sentence = self._end_of(self._log_dirs.home_at(self._config.metadata_log_dir))
        if sentence is not None:
            raise StartError(sentence)

    def _dynamic_now(self) -> Dynamic:
        """For other threads: the loop may be changing the image, so each mapping is copied in one go."""
        image = self._controller.image
        return Dynamic(image.broker_configs(self._config.node_id).copy(), image.broker_configs(None).copy())

    def _start_cleaner(self) -> None:

        config, controller = self._config, self._controller

        def settings() -> CleanerSettings:
            now = self._dynamic_now()
            return CleanerSettings.of(lambda name: config.broker_value(name, now))

        def topic_config(topic: str) -> Mapping[str, Any]:
            return config.topic_config(controller.image.topic_configs(topic).copy(), self._dynamic_now())

        if config.flag("log.cleaner.enable"):
            self._cleaner = LogCleaner(self._log_dirs, self._clock, settings, topic_config, self._log)
            self._cleaner.start()
            self._undo.append(self._stop_cleaner)

    def _start_moves(self) -> None:
        config, moves = self._config, self._replicas.moves

        def rate() -> Any:
            return config.broker_value("replica.alter.log.dirs.io.max.bytes.per.second", self._dynamic_now())

        threads = config["num.replica.alter.log.dirs.threads"]
        if len(config.log_dirs) > 1:
            moves.start(threads if isinstance(threads, int) else len(config.log_dirs), rate)
            self._undo.append(moves.stop)

    async def _stop_cleaner(self) -> None:
        import asyncio

        if self._cleaner is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._cleaner.stop)

    def _coordinate(self) -> None:

        clock, controller = self._clock, self._controller
        node = Node(self._config, controller, self._replicas, clock, self._log, _in_thread)
        self._producer_ids = ProducerIds(controller.allocate_producer_ids)
        self._groups = group_coordinator(node)
        self._markers = marker_writer(node, self._groups)
        self._transactions = transaction_coordinator(node, self._markers, self._producer_ids.next)
        controller.listen(self._groups.on_commit)
        controller.listen(self._transactions.on_commit)

    def _open_gateway(self) -> None:
        import asyncio

        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_loop_error)
        rooms = Rooms(
            node_id=self._config.node_id,
            cluster_id=self._log_dirs.cluster_id,
            config=self._config,
            controller=self._controller,
            replicas=self._replicas,
            producer_ids=self._producer_ids,
            groups=self._groups,
            markers=self._markers,
            transactions=self._transactions,
            in_thread=_in_thread,
            warn=self._repeats.warning,
        )
        names = [one.name for one in self._config.listeners]
        patience = Patience(self._core.linger, self._serve_at_once)
        self._gateway = Gateway(self._core, rooms, self._log, names, self._spawn, expect=patience.expect)
        self._selector.ask(patience.before_sleep)
        loop.add_reader(self._core.fileno(), self._gateway.serve_pending)
        self._timers.append(loop.create_task(self._watch(), name="kbroker-watch"))

    def _serve_at_once(self) -> None:
        """Not as a callback of the loop, which would take what went wrong to its handler."""
        import asyncio

        assert self._gateway is not None
        try:
            self._gateway.serve_pending()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            asyncio.get_running_loop().call_exception_handler({"message": "serving failed", "exception": error})

    def counters(self) -> Counters:
        """From any thread."""
        return self._core.counters()

    def held(self) -> Held:
        """What is open now, for a forked child to close. The server may still be starting, or already be stopping."""
        held = Held(ports=set(self._bound.values()))
        if hasattr(self, "_core"):
            held.descriptors |= self._core.descriptors()
        if hasattr(self, "_log_dirs"):
            held.descriptors |= self._log_dirs.descriptors
        held.directories = [os.path.realpath(path) for path in (*self._config.log_dirs, self._config.metadata_log_dir)]
        held.files |= {f"{directory}/{LOCK}" for directory in held.directories}
        return held

    async def stop(self) -> None:
        import asyncio

        loop = asyncio.get_running_loop()
        self._transactions.resign()
        self._groups.resign()
        # Draining waits for replies that this loop still has to give, so it must not hold the loop.
        await loop.run_in_executor(None, self._core.drain, DRAIN_MS)
        self._selector.ask_nobody()
        loop.remove_reader(self._core.fileno())
        for home in self._log_dirs.dirs:
            loop.remove_reader(home.health.fileno())
        unfinished = [*self._timers, *self._requests]
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        self._log_events()
        await self._stop_cleaner()
        await self._replicas.moves.stop()  # while there is still a controller to tell
        broker_epoch = self._controller.broker_epoch
        failed = []
        try:
            await self._controller.close()
        except OSError as problem:  # the partitions are closed nevertheless
            failed.append(problem)
        failed += await self._replicas.close(broker_epoch)
        for one in failed:
            self._log.error("the stop was not clean: the next start checks the files", reason=str(one))
        await self._close_core()
        self._log.info("stopped")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        import asyncio

        task = asyncio.get_running_loop().create_task(work)
        self._requests.add(task)  # the loop itself keeps only a weak reference
        task.add_done_callback(self._requests.discard)

    def _on_loop_error(self, _loop: asyncio.AbstractEventLoop, problem: dict[str, Any]) -> None:
        self._log.error(f"the control loop met an error: {problem['message']}", cause=problem.get("exception"))

    async def _on_commit(self, image: ClusterImage, delta: Delta) -> None:
        if self._gateway is not None:
            self._gateway.forget_answers()
        if delta.features:
            self._publish_apis(image)
        for resource, names in delta.configs.items():
            self._tell_settings(image, resource, names)
        if any(name.startswith(CONNECTION_LIMITS) for names in delta.configs.values() for name in names):
            await self._limit_connections(image)

    async def _limit_connections(self, image: ClusterImage) -> None:
        """As they are set now; what was given at the start the core has already."""
        import asyncio

        dynamic = dynamic_of(image, self._config.node_id)
        try:  # names of hosts are looked up, which may take its time
            loop = asyncio.get_running_loop()
            limits = await loop.run_in_executor(None, _connection_limits, self._config, dynamic, self._log.warning)
        except ConfigError as problem:
            self._log.warning("the limits of connections stay as they are", reason=str(problem))
        else:
            self._core.limit_connections(*limits)

    def _tell_settings(self, image: ClusterImage, resource: tuple[int, str], names: Collection[str]) -> None:
        """Those of a resource's settings that change nothing: none is accepted and ignored in silence."""

        kind, whose = resource
        given = {name: text for name, text in image.configs.get(resource, {}).items() if name in names}
        if kind == TOPIC_RESOURCE:
            for one in self._config.unsupported_topic_settings(given):
                self._log.warning(one.sentence, topic=whose, setting=one.name, value=one.value)
        elif kind == BROKER_RESOURCE and whose in ("", str(self._config.node_id)):
            for one in self._config.unsupported_dynamic(given):
                self._log.warning(one.sentence, broker=whose or "all", setting=one.name, value=one.value)

    def _publish_apis(self, image: ClusterImage) -> None:
        served = {
            row.key: (row.min_version, row.max_version, apis.by_key(row.key).flexible_from, row.native)
            for row in REGISTRY
        }
        self._core.publish_apis(served, bodies(image, self._controller.broker_epoch))

    async def _watch(self) -> None:
        """Logs what the data plane has noted, and notices a metadata log that failed."""
        import asyncio

        while True:
            await asyncio.sleep(EVENTS_EVERY_S)
            self._log_events()
            failure = self._controller.failure
            if failure is not None:
                self._break_down(f"The metadata log failed: {failure}.", failure)
                return

    def _watch_directories(self) -> None:
        import asyncio

        loop = asyncio.get_running_loop()
        for home in self._log_dirs.dirs:
            loop.add_reader(home.health.fileno(), self._on_failed_directory, home)

    def _on_failed_directory(self, home: LogDir) -> None:
        """Its logs refuse everything since it failed, on whatever thread that was; here the rest is done."""
        import asyncio

        asyncio.get_running_loop().remove_reader(home.health.fileno())
        sentence = self._end_of(home)
        if sentence is not None:
            assert home.failure is not None
            self._break_down(sentence, home.failure)
        else:
            self._spawn(self._go_on_without(home))

    def _end_of(self, home: LogDir) -> str | None:
        """Why no broker can go on without this directory, if that is so and it has failed."""
        if home.failure is None:
            return None
        if home.path == self._config.metadata_log_dir:
            what = f"The log directory {home.path}, which holds the cluster's metadata, failed"
        elif not self._log_dirs.live:
            what = f"The log directory {home.path} failed, the last one"
        else:
            return None
        return f"{what}: {home.failure.strerror} ({home.failure.filename}). {MEND}"

    async def _go_on_without(self, home: LogDir) -> None:
        lost = await self._replicas.take_down(home)
        self._log.error(
            "a log directory is offline",
            directory=str(home.path),
            reason=str(home.failure),
            partitions=len(lost),
            what_to_do=MEND,
        )
        if home.meta.directory_id in self._controller.image.brokers[self._config.node_id].log_dirs or lost:
            await self._controller.lose_directory(home.meta.directory_id, lost)

    def _log_events(self) -> None:
        for kind, reason, host, port, count in self._core.events():
            alike = (host, re.sub("[0-9]+", "", reason))  # sizes in it differ with every request
            self._repeats.warning(f"connection {kind}", alike, peer=f"{host}:{port}", reason=reason, count=count)

    def _tell(self, strays: Strays, advertised: list[Listener]) -> None:

        for unsupported in self._config.unsupported:
            self._log.warning(unsupported.sentence, setting=unsupported.name, value=unsupported.value)
        for resource, settings in self._controller.image.configs.items():
            if resource[0] != TOPIC_RESOURCE:  # a topic's were named when they were set
                self._tell_settings(self._controller.image, resource, settings)
        if self._replicas.homeless:
            self._log.error(
                "partitions lie in a log directory that is not there: they are offline until it is back",
                partitions=len(self._replicas.homeless),
                one_of_them="-".join(map(str, min(self._replicas.homeless))),
            )
        for path in strays.moved:
            self._log.warning("a partition that no topic owns was set aside", directory=str(path))
        for path in strays.kept:
            self._log.warning("a partition that no topic owns is kept: remove it if you can", directory=str(path))
        for path in strays.removed:
            self._log.info("what a deleted topic had left was removed", directory=str(path))
        self._tell_repairs()
        warn_of_replication(self._config, len(self._controller.image.brokers), self._log)
        bound = bound_listeners(self._config.listeners, self._core.addresses)
        warn_of_open_listeners(bound, self._log)
        self._log.info(
            "started",
            listeners=[str(one) for one in bound],
            advertised_listeners=[str(one) for one in advertised],
            node_id=self._config.node_id,
            cluster_id=self._log_dirs.cluster_id,
            log_dirs=[str(path) for path in self._config.log_dirs],
            topics=len(self._controller.image.topics),
        )

    def _tell_repairs(self) -> None:
        """What this start found damaged, and what it gave up or made anew."""
        for repair in self._controller.repairs:
            self._log.warning("the metadata log was repaired", what=repair)
        for home in self._log_dirs.dirs:
            for broken in home.broken:
                self._log.warning("a checkpoint cannot be read and is made anew", reason=str(broken))
        for topic, partition, end, reached in self._log_dirs.losses():
            self._log.error(
                "records that were on the disk are gone",
                topic=topic,
                partition=partition,
                log_end_offset=end,
                reached=reached,
            )

    async def _close_core(self) -> None:
        self._core.close()

    async def _release_log_dirs(self) -> None:
        self._log_dirs.release()


async def _in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    import asyncio

    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


def _make_core(config: Config, clock: BrokerClock, options: Mapping[str, Any]) -> Core:
    from kbroker.patience import processors

    memory = memory_bytes()
    queued = config.integer("queued.max.request.bytes")
    most, most_per_ip, per_ip_overrides, creation_rate = _connection_limits(config, NOT_CHANGED, None)
    cores = processors()
    network_threads = _given(config, "num.network.threads", 0)
    relief = {"relief_thread": network_threads == 0 and cores > 1}
    return Core(
        clock,
        node_id=config.node_id,
        network_threads=network_threads or min(4, max(1, cores // 2)),
        socket_request_max_bytes=config.integer("socket.request.max.bytes"),
        max_idle_ms=config.integer("connections.max.idle.ms"),
        max_connections=most,
        max_connections_per_ip=most_per_ip,
        per_ip_overrides=per_ip_overrides,
        max_connection_creation_rate=creation_rate,
        mailbox_slots=_given(config, "queued.max.requests", MAILBOX_SLOTS),
        request_bytes_max=queued if queued > 0 else memory // 4,
        reply_bytes_max=memory // 8,
        fetch_max_bytes=config.integer("fetch.max.bytes"),
        fetch_sessions_max=config.integer("max.incremental.fetch.session.cache.slots"),
        **{**relief, **options},
    )


def _connection_limits(
    config: Config, dynamic: Dynamic, warn: Callable[[str], None] | None
) -> tuple[int, int, list[tuple[bytes, int]], int]:
    """What Core is told of them, in its order. With `warn` a host without an address is left out, as Kafka does."""

    def limit(name: str) -> int:
        value = config.broker_value(name, dynamic)
        assert isinstance(value, int), (name, value)
        return value

    overrides = []
    for host, most in config.per_ip_overrides(dynamic):
        try:
            overrides.append((_packed_address(host), most))
        except ConfigError as problem:
            if warn is None:
                raise
            warn(str(problem))
    return limit("max.connections"), limit("max.connections.per.ip"), overrides, limit("max.connection.creation.rate")


def _packed_address(host: str) -> bytes:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
    except OSError as problem:
        raise ConfigError(f"max.connections.per.ip.overrides names {host}, which has no address: {problem}.") from None
    return socket.inet_pton(family, str(address[0]))


def _given(config: Config, name: str, otherwise: int) -> int:
    """A setting whose default is chosen for threads that block: taken when someone gave it, else ours."""
    return config.integer(name) if name in config.given else otherwise


def _listen(core: Core, listener: Listener, view: ViewHandle, config: Config) -> int:
    try:
        return core.listen(
            listener.host,
            listener.port,
            view,
            _given(config, "socket.listen.backlog.size", BACKLOG),
            receive_buffer_bytes=_given(config, "socket.receive.buffer.bytes", RECEIVE_BUFFER_BYTES),
            send_buffer_bytes=_given(config, "socket.send.buffer.bytes", THE_SYSTEMS),
        )
    except OSError as problem:
        where = f"{listener.host or 'every address'}, port {listener.port}"
        if problem.errno == errno.EADDRINUSE:
            raise StartError(f"Something listens on {where} already: stop it or choose another port.") from None
        raise StartError(f"Cannot listen on {where}: {problem.strerror or problem}.") from None


def _advertised(listener: Listener, port: int) -> Listener:
    """Where clients find a listener: its own host and real port, or this machine's name if it takes every address."""
    if listener.host in ("0.0.0.0", "::"):
        raise StartError(
            f"The listener {listener} takes every address, so clients must be told which one to use: "
            "set advertised.listeners."
        )
    host = listener.host or socket.gethostname()
    return Listener(listener.name, host, listener.port or port, listener.protocol)
