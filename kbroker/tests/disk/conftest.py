from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

SHIM = Path(__file__).with_name("shim.c")
SOON_S = 30


class Disk:
    """A broker in a process of its own, whose file calls obey orders()."""

    def __init__(self, directory: Path, shim: Path, config: dict[str, object], dirs: list[Path] | None = None) -> None:
        self.dirs = dirs or [directory / "data"]
        self.data = self.dirs[0]
        self._orders = directory / "orders"
        self._said = directory / "said"
        self._said_before = self._said.stat().st_size if self._said.exists() else 0
        pairs = [word for key, value in config.items() for word in ("--config", f"{key}={value}")]
        command = [sys.executable, "-m", "kbroker", "start", "--listeners", "PLAINTEXT://127.0.0.1:0"]
        with self._said.open("a") as said:
            self.process = subprocess.Popen(
                [*command, "--data-dir", ",".join(map(str, self.dirs)), "--log-format", "json", *pairs],
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                env={**os.environ, "LD_PRELOAD": str(shim), "KBROKER_DISK_ORDERS": str(self._orders)},
            )
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        if "ready" not in ready:
            self.process.wait(SOON_S)
            raise DidNotStartError(self.process.returncode, self.said())
        self.bootstrap = ready.split()[-1]
        self.port = int(self.bootstrap.rpartition(":")[2])

    def orders(self, *lines: str) -> None:
        """What file calls do from now on; none: what they always do."""
        beside = self._orders.with_suffix(".new")
        beside.write_text("".join(f"{line}\n" for line in lines))
        beside.rename(self._orders)

    def told(self) -> list[str]:
        """The calls that orders were about: `fsync /path`."""
        told = Path(f"{self._orders}.told")
        return told.read_text().splitlines() if told.exists() else []

    def said(self) -> str:
        """All that this process has written to standard error."""
        with self._said.open() as said:
            said.seek(self._said_before)
            return said.read()

    def lines(self, event: str) -> list[dict[str, Any]]:
        """Its log lines of one kind."""
        found = (json.loads(line) for line in self.said().splitlines() if line.startswith("{"))
        return [line for line in found if line["event"] == event]

    def await_line(self, event: str) -> dict[str, Any]:
        deadline = time.monotonic() + SOON_S
        while not self.lines(event):
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.01)
        return self.lines(event)[0]

    def ended(self) -> int:
        """Waits for it to end by itself."""
        return self.process.wait(SOON_S)

    def stop(self, signal_number: int = signal.SIGTERM) -> tuple[int, str]:
        """Its exit code and all it logged."""
        self.process.send_signal(signal_number)
        self.process.wait(60)
        return self.process.returncode, self.said()


class DidNotStartError(Exception):
    def __init__(self, exit_code: int, said: str) -> None:
        super().__init__(said)
        self.exit_code = exit_code


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if sys.platform != "linux":
        pytest.skip("file calls are intercepted by LD_PRELOAD")
    compiler = shutil.which(os.environ.get("CC", "cc"))
    assert compiler is not None, "no C compiler"
    built = tmp_path_factory.mktemp("shim") / "shim.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(built), str(SHIM), "-ldl"], check=True)
    return built


@pytest.fixture
def disk(tmp_path: Path, shim: Path) -> Iterator[Callable[..., Disk]]:
    started: list[Disk] = []

    def start(dirs: list[Path] | None = None, **config: object) -> Disk:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        started.append(Disk(tmp_path, shim, settings, dirs))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A real filesystem of two megabytes."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "kbroker-test", str(place)]
    if sys.platform != "linux" or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a tmpfs is not permitted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def remount(place: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(place)], check=True)
