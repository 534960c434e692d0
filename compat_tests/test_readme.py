"""The Python examples and the console commands of the README run as they are written, on a free port."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kbroker import Broker

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_readme_examples_produce_a_record_and_list_its_topic(capfd: pytest.CaptureFixture[str]) -> None:
    embedded, listing = re.findall(r"```python\n(.*?)```", README, re.S)
    exec(embedded, {})
    with Broker() as broker:
        address = f"'{broker.bootstrap_servers}'"
        into = embedded.replace("with kbroker.Broker() as broker:", "if True:").replace(
            "broker.bootstrap_servers", address
        )
        exec(into, {})
        exec(listing.replace('"localhost:9092"', address), {})
    assert "orders 1" in capfd.readouterr().out.splitlines()


def _commands(name: str) -> list[str]:
    """Returns the README's console commands `kbroker <name>`, without their comments."""
    return re.findall(rf"^\$ (kbroker {name}\b[^#\n]*)", README, re.M)


def _words(command: str, port: int) -> list[str]:
    return [sys.executable, "-m", *shlex.split(command.replace("9092", str(port)))]


def _run(command: str, port: int, at: Path) -> str:
    ran = subprocess.run(_words(command, port), cwd=at, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@contextmanager
def _started(command: str, port: int, at: Path) -> Iterator[str]:
    """Starts a broker, yields its first line of output, and stops the broker with SIGTERM."""
    with subprocess.Popen(_words(command, port), cwd=at, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().rstrip()
        finally:
            process.terminate()


def test_readme_commands_check_a_directory_start_a_broker_and_ping_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    (doctor,), (ping,) = _commands("doctor"), _commands("ping")
    plain, with_options = _commands("start")
    assert plain == "kbroker start"
    (ready,) = re.findall(r"^kbroker is ready at .*$", README, re.M)
    _run(doctor, port, tmp_path)
    with _started(with_options, port, tmp_path) as line:
        assert line == ready.replace("9092", str(port))
        assert f"localhost:{port}: 1 broker" in _run(ping, port, tmp_path)
    assert (tmp_path / "data" / "meta.properties").exists()
