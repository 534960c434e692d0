"""One Apache Kafka node, broker and controller in one process, on free ports of the loopback interface."""

from __future__ import annotations

import base64
import os
import random
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from collections import deque
from pathlib import Path
from typing import IO

from compat_tests.oracle.jars import java, kafka_class_path, quick_start

# Eligible leader replicas turn min.insync.replicas into a cluster-wide dynamic setting; kbroker, which does not have
# them, does not claim them, so the judge goes without as well.
_FEATURES = ("--feature", "eligible.leader.replicas.version=0")
_STARTED = "Kafka Server started"
_BOOTSTRAP = "bootstrap.checkpoint"
_formatted: list[bytes] = []  # that file, as Kafka's tool wrote it: a JVM less for each of dozens of brokers
_PORTS = range(16_000, 32_000)
_WORKERS_MOST = 16
_STOP_SECONDS = 60
_START_SECONDS = 120
# What Kafka's own start script gives the JVM: for a race. Tests go without, on a JVM quick to start and light.
KAFKAS_OWN_JVM = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
# Only the start-up sentence is wanted from INFO; everything else of interest is a warning. How long the controller took
# for an event is the machine's affair.
_LOGGING = """\
rootLogger.level=WARN
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%p %c{1} %m%n
logger.started.name=kafka.server.KafkaRaftServer
logger.started.level=INFO
logger.shutdown.name=org.apache.kafka.server.util
logger.shutdown.level=ERROR
logger.slow.name=org.apache.kafka.controller.EventPerformanceMonitor
logger.slow.level=OFF
"""


class ApacheKafka:
    """Starts on construction-time settings; `start` returns when the broker serves, `stop` when it has shut down.

    A `port` that is given is the same after every start.
    A directory that already holds a formatted log directory (Kafka's or kbroker's) is opened, not formatted.
    """

    name = "apache"

    def __init__(
        self,
        directory: Path,
        *,
        node_id: int = 1,
        settings: dict[str, str] | None = None,
        jvm_options: tuple[str, ...] | None = None,
        port: int = 0,
    ) -> None:
        self.directory = directory
        self.data_directory = directory / "data"
        self.node_id = node_id
        self.bootstrap = ""
        self._settings = settings or {}
        self._port = port
        self.spawned_at = 0.0  # by the monotonic clock: when the broker's process was started
        self._jvm_options = jvm_options
        self._process: subprocess.Popen[str] | None = None
        self._last_lines: deque[str] = deque(maxlen=200)
        self._reader: threading.Thread | None = None

    @classmethod
    def on_data_directory(cls, data_directory: Path, **options: object) -> ApacheKafka:
        """A node for a log directory that exists; its node id is the one written there."""
        properties = dict(
            line.split("=", 1) for line in (data_directory / "meta.properties").read_text().splitlines() if "=" in line
        )
        node = cls(Path(tempfile.mkdtemp(prefix="apache-")), node_id=int(properties["node.id"]), **options)  # type: ignore[arg-type]
        node.data_directory = data_directory
        return node

    def start(self) -> ApacheKafka:
        self.directory.mkdir(parents=True, exist_ok=True)
        free_port, controller_port = two_free_ports()
        broker_port = self._port or free_port
        self.bootstrap = f"127.0.0.1:{broker_port}"
        properties = self.directory / "server.properties"
        properties.write_text(self._properties(broker_port, controller_port))
        logging = self.directory / "log4j2.properties"
        logging.write_text(_LOGGING)
        if not (self.data_directory / "meta.properties").exists():
            self._format(properties, logging)
        self.spawned_at = time.monotonic()
        self._process = subprocess.Popen(
            [*_jvm("kafka.Kafka", logging, self._jvm_options), str(properties)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._await_started(self._process)
        return self

    def stop(self) -> None:
        """SIGTERM, so that the directory is left as a clean shutdown leaves it."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"Apache Kafka did not stop in {_STOP_SECONDS} s:\n{self.output()}") from None
        finally:
            if self._reader is not None:
                self._reader.join()

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL, for a node whose directory nobody will open again, or whose crash is the test."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            if self._reader is not None:
                self._reader.join()

    def output(self) -> str:
        return "\n".join(self._last_lines)

    def __enter__(self) -> ApacheKafka:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _format(self, properties: Path, logging: Path) -> None:
        """By Kafka's tool, the first time. What it wrote serves the next as well, under ids of their own."""
        alone = "log.dirs" not in self._settings  # several directories have to know of each other
        if alone and _formatted:
            self.data_directory.mkdir(parents=True, exist_ok=True)
            ids = {"cluster.id": random_uuid(), "directory.id": random_uuid(), "node.id": str(self.node_id)}
            meta = "".join(f"{name}={value}\n" for name, value in {"version": "1", **ids}.items())
            (self.data_directory / _BOOTSTRAP).write_bytes(_formatted[0])
            (self.data_directory / "meta.properties").write_text(meta)
            return
        asked = ("format", "-t", random_uuid(), "-c", str(properties), *_FEATURES)
        command = [*_jvm("kafka.tools.StorageTool", logging), *asked]
        formatted = subprocess.run(command, capture_output=True, text=True, check=False)
        if formatted.returncode != 0:
            raise AssertionError(f"Apache Kafka could not format its directory:\n{formatted.stdout}{formatted.stderr}")
        if alone:
            _formatted.append((self.data_directory / _BOOTSTRAP).read_bytes())

    def _await_started(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        started = threading.Event()
        self._reader = threading.Thread(target=self._read_output, args=(process.stdout, started), daemon=True)
        self._reader.start()
        if not started.wait(_START_SECONDS) or process.poll() is not None:
            process.kill()
            raise AssertionError(f"Apache Kafka did not start:\n{self.output()}")

    def _read_output(self, stream: IO[str], started: threading.Event) -> None:
        for line in stream:
            self._last_lines.append(line.rstrip())
            if _STARTED in line:
                started.set()
        started.set()  # the process is gone; the waiter looks at its exit code

    def _properties(self, broker_port: int, controller_port: int) -> str:
        settings = {
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "controller.quorum.voters": f"{self.node_id}@127.0.0.1:{controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{broker_port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{broker_port}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.data_directory),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            # Scenarios date their records to 2023: Apache's first retention run, 30 s after its start, would take them.
            "log.initial.task.delay.ms": "86400000",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self._settings,
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())


def _jvm(main_class: str, logging: Path, options: tuple[str, ...] | None = None) -> list[str]:
    chosen = options if options is not None else ("-Xmx768M", *quick_start(main_class))
    return [java(), *chosen, f"-Dlog4j2.configurationFile={logging}", "-cp", kafka_class_path(), main_class]


def random_uuid() -> str:
    """A uuid in Kafka's spelling, never starting with a dash: the tools would take it for an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def two_free_ports() -> tuple[int, int]:
    """For a broker that binds them seconds later. The system itself gives nobody ports below its own range.

    Each worker of a run has others to choose from.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    mine = range(_PORTS.start + worker % _WORKERS_MOST, _PORTS.stop, _WORKERS_MOST)
    free = (port for port in random.sample(mine, len(mine)) if _is_free(port))
    return next(free), next(free)


def _is_free(port: int) -> bool:
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            held.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def scratch_directory(prefix: str) -> Path:
    return Path(tempfile.mkdtemp(prefix=f"{prefix}-", dir=os.environ.get("TMPDIR")))
