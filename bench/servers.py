"""The two brokers of a race, as processes: started, watched through /proc, stopped."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from compat_tests.oracle.apache import KAFKAS_OWN_JVM, ApacheKafka

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
READY = re.compile(r"127\.0\.0\.1:(\d+)")


@dataclass
class Server:
    """One running broker. CPU and memory are those of its process, as the kernel counts them."""

    name: str
    pid: int
    port: int
    started_in: float

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND

    def resident_mib(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None, status
        return int(found.group(1)) / 1024


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
        self.data_dir = data_dir or Path(tempfile.mkdtemp(prefix="kbroker-race-"))
        module = "bench.spinning" if spinning else "kbroker"
        command = [sys.executable, "-m", module, "start", "--listeners", f"PLAINTEXT://127.0.0.1:{port}"]
        command += ["--data-dir", str(self.data_dir)]
        for key, value in (config or {}).items():
            command += ["--config", f"{key}={value}"]
        began = time.monotonic()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = READY.search(line)
        if found is None:
            raise RuntimeError(f"kbroker did not start: {line!r}, exit code {self.process.poll()}")
        super().__init__("kbroker", self.process.pid, int(found.group(1)), time.monotonic() - began)

    def stop(self, *, keep_data: bool = False) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)
        if self._own_dir and not keep_data:
            shutil.rmtree(self.data_dir, ignore_errors=True)


class ApacheServer(Server):
    """Apache Kafka 4.3.1, one KRaft node, with the JVM settings of its own start script."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="apache-race-"))
        began = time.monotonic()
        self.node = ApacheKafka(self.directory, jvm_options=KAFKAS_OWN_JVM).start()
        port = int(self.node.bootstrap.rpartition(":")[2])
        super().__init__("apache", self.node.pid, port, time.monotonic() - began)

    def stop(self) -> None:
        self.node.stop()
        shutil.rmtree(self.directory, ignore_errors=True)
