"""The two brokers of a race, as processes: started, watched through the kernel's own counts, stopped."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from compat_tests.kbroker_server import KBroker
from compat_tests.oracle.apache import KAFKAS_OWN_JVM, ApacheKafka

# Works delete their topics and wait until the files are gone, so that neither disk nor page cache fills. Both brokers
# would keep them for a minute, and Apache Kafka would first look for them half a minute after its start.
SETTINGS = {"log.segment.delete.delay.ms": "200"}
APACHE_SETTINGS = {**SETTINGS, "log.initial.task.delay.ms": "1000"}


@dataclass
class Server:
    """One running broker. CPU and memory are those of its process, as the kernel counts them."""

    name: str
    pid: int
    port: int
    spawned_at: float  # by the monotonic clock
    data_dir: Path

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cpu_seconds(self) -> float:
        """The process's CPU clock, in nanoseconds: /proc/PID/stat would count ticks of 10 ms."""
        return time.clock_gettime(((~self.pid) << 3) | 2)

    def resident_mib(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None, status
        return int(found.group(1)) / 1024

    def open_files(self) -> int:
        """Descriptors of files and directories; sockets, pipes and the like are not counted."""
        return sum(target.startswith("/") and not target.startswith("/dev/") for target in self._descriptors())

    def mapped_files(self) -> int:
        """Data files that are mapped into memory: they hold no descriptor, but the system bounds them too."""
        maps = Path(f"/proc/{self.pid}/maps").read_text()
        return sum(str(self.data_dir) in line for line in maps.splitlines())

    def _descriptors(self) -> Iterator[str]:
        for path in Path(f"/proc/{self.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                yield os.readlink(path)

    def await_deleted(self, topics: Collection[str]) -> None:
        """Returns once no directory of these topics is left. Apache Kafka answers a deletion before it is applied."""
        deadline = time.monotonic() + 60
        while left := [
            path
            for path in (*self.data_dir.glob("*-*"), *self.data_dir.glob("data/*-*"))
            if path.name.endswith("-delete") or path.name.rpartition("-")[0] in topics
        ]:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(left)} directories of deleted topics are left on {self.name}")
            time.sleep(0.02)

    def another(self, data_dir: Path | None = None) -> Server:
        """A second broker of the same kind, on a directory of its own or on `data_dir`."""
        raise NotImplementedError

    def stop(self, *, keep_data: bool = False) -> None:
        """A clean shutdown. A directory that was given stays; one of its own goes, unless it is to be kept."""
        raise NotImplementedError

    def kill(self) -> None:
        """SIGKILL; the directory stays."""
        raise NotImplementedError


class KbrokerServer(Server):
    """kbroker as its users start it: the command in the foreground, one ready line."""

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        port: int = 0,
        spinning: bool = False,
        config: dict[str, str] | None = None,
    ) -> None:
        self._own_dir = data_dir is None
        self._config = config
        directory = data_dir or Path(tempfile.mkdtemp(prefix="kbroker-race-"))
        options = tuple(word for key, value in (config or {}).items() for word in ("--config", f"{key}={value}"))
        module = "bench.spinning" if spinning else "kbroker"
        self.broker = KBroker(directory.parent, options=options, port=port, module=module)
        self.broker.data_directory = directory
        self.process = self.broker.start().process
        bound = int(self.broker.bootstrap.rpartition(":")[2])
        super().__init__("kbroker", self.process.pid, bound, self.broker.spawned_at, directory)

    def another(self, data_dir: Path | None = None) -> Server:
        return KbrokerServer(data_dir, config=self._config)

    def kill(self) -> None:
        self.broker.kill()

    def stop(self, *, keep_data: bool = False) -> None:
        self.broker.stop()
        if self._own_dir and not keep_data:
            shutil.rmtree(self.data_dir, ignore_errors=True)


class ApacheServer(Server):
    """Apache Kafka 4.3.1, one KRaft node, with the JVM settings of its own start script. Formatted before the clock."""

    def __init__(self, data_dir: Path | None = None, *, config: dict[str, str] | None = None) -> None:
        self._own_dir = data_dir is None
        self._config = config
        directory = data_dir or Path(tempfile.mkdtemp(prefix="apache-race-"))
        settings = {**APACHE_SETTINGS, **(config or {})}
        self.node = ApacheKafka(directory, jvm_options=KAFKAS_OWN_JVM, settings=settings).start()
        port = int(self.node.bootstrap.rpartition(":")[2])
        super().__init__("apache", self.node.pid, port, self.node.spawned_at, directory)

    def another(self, data_dir: Path | None = None) -> Server:
        return ApacheServer(data_dir, config=self._config)

    def kill(self) -> None:
        self.node.kill()

    def stop(self, *, keep_data: bool = False) -> None:
        self.node.stop()
        if self._own_dir and not keep_data:
            shutil.rmtree(self.data_dir, ignore_errors=True)
