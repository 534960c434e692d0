"""kbroker as its users run it: a process of its own that says on one line where it listens."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import IO

from compat_tests.oracle.jars import REPOSITORY_ROOT

# Scenarios date their records to 2023: a retention check would take them. Apache is told the same, and of the offsets.
_SETTINGS = (
    *("--config", "log.initial.task.delay.ms=86400000"),
    *("--config", "offsets.topic.num.partitions=1"),
    *("--config", "transaction.state.log.num.partitions=1"),
)
_READY = re.compile(r"(127\.0\.0\.1|localhost):(\d+)")
_ERROR = re.compile(r"\[(error|critical)\s*\]")
_START_SECONDS = 60
_STOP_SECONDS = 60


class KBroker:
    """`python -m kbroker start` on a free port, or on `port`. `stop` is SIGTERM and waits for a clean shutdown.

    `module` is what Python runs in kbroker's place; it takes the same command line.
    """

    name = "kbroker"

    def __init__(
        self, directory: Path, *, options: tuple[str, ...] = (), port: int = 0, module: str = "kbroker"
    ) -> None:
        self.directory = directory
        self.data_directory = directory / "data"
        self.bootstrap = ""
        self.spawned_at = 0.0  # by the monotonic clock: when the process was started
        self.errors: list[str] = []  # lines of that level, of every start
        self._options = options
        self._port, self._module = port, module
        self._process: subprocess.Popen[str] | None = None
        self._last_lines: deque[str] = deque(maxlen=400)
        self._readers: list[threading.Thread] = []

    @classmethod
    def on_data_directory(cls, data_directory: Path, *, options: tuple[str, ...] = ()) -> KBroker:
        broker = cls(data_directory.parent, options=options)
        broker.data_directory = data_directory
        return broker

    def start(self) -> KBroker:
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", self._module, "start", "--listeners", f"PLAINTEXT://127.0.0.1:{self._port}"]
        command += ["--data-dir", str(self.data_directory), *_SETTINGS, *self._options]
        self.spawned_at = time.monotonic()
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY_ROOT
        )
        self._process = process
        ready = threading.Event()
        assert process.stdout is not None
        assert process.stderr is not None
        self._readers = [
            threading.Thread(target=self._read_ready, args=(process.stdout, ready), daemon=True),
            threading.Thread(target=self._read_log, args=(process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        if not ready.wait(_START_SECONDS) or not self.bootstrap:
            process.kill()
            process.wait()
            raise AssertionError(f"kbroker did not start:\n{self.output()}")
        return self

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            code = process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"kbroker did not stop in {_STOP_SECONDS} s:\n{self.output()}") from None
        for reader in self._readers:
            reader.join()
        self.bootstrap = ""
        if code != 0:
            raise AssertionError(f"kbroker ended with {code}:\n{self.output()}")

    def kill(self) -> None:
        """SIGKILL: what a crash leaves is the test."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            self.bootstrap = ""

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def output(self) -> str:
        return "\n".join(self._last_lines)

    def __enter__(self) -> KBroker:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _read_ready(self, stream: IO[str], ready: threading.Event) -> None:
        for line in stream:
            self._last_lines.append(line.rstrip())
            place = _READY.search(line)
            if place is not None and not ready.is_set():
                self.bootstrap = f"127.0.0.1:{place.group(2)}"
                ready.set()
        ready.set()  # the process is gone; the waiter finds no address

    def _read_log(self, stream: IO[str]) -> None:
        for line in stream:
            self._last_lines.append(line.rstrip())
            if _ERROR.search(line):
                self.errors.append(line.rstrip())
