from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SHIM = Path(__file__).with_name("shim.c")


class Disk:
    """A broker in a process of its own, whose file calls obey orders()."""

    def __init__(self, directory: Path, shim: Path, config: dict[str, object]) -> None:
        self.data = directory / "data"
        self._orders = directory / "orders"
        pairs = [word for key, value in config.items() for word in ("--config", f"{key}={value}")]
        command = [sys.executable, "-m", "kbroker", "start", "--listeners", "PLAINTEXT://127.0.0.1:0"]
        self.process = subprocess.Popen(
            [*command, "--data-dir", str(self.data), "--log-format", "json", *pairs],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "LD_PRELOAD": str(shim), "KBROKER_DISK_ORDERS": str(self._orders)},
        )
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        assert "ready" in ready, self.process.communicate()
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

    def stop(self, signal_number: int = signal.SIGTERM) -> tuple[int, str]:
        """Its exit code and all it logged."""
        self.process.send_signal(signal_number)
        told, errors = self.process.communicate(timeout=60)
        return self.process.returncode, told + errors


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

    def start(**config: object) -> Disk:
        started.append(Disk(tmp_path, shim, {key.replace("_", "."): value for key, value in config.items()}))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate()
