"""`kbroker start` as a process: one line when ready, signals, exit codes, sentences."""

import os
import random
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

READY = re.compile(r"^kbroker is ready at 127\.0\.0\.1:(\d+)\n$")

Run = Callable[..., "subprocess.Popen[str]"]


def listeners(port: int = 0) -> list[str]:
    return ["--listeners", f"PLAINTEXT://127.0.0.1:{port}"]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Starts `kbroker start` with arguments; whatever still runs at the test's end is killed."""
    processes = []

    def start(*arguments: str, data_dir: Path = tmp_path / "data") -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-m", "kbroker", "start", "--data-dir", str(data_dir), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def port_of(process: "subprocess.Popen[str]") -> int:
    assert process.stdout is not None
    line = process.stdout.readline()
    ready = READY.match(line)
    assert ready is not None, (line, process.stderr.read() if process.stderr is not None else "")
    return int(ready[1])


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_listens_and_stops_cleanly_on_a_signal(run: Run, tmp_path: Path, sign: signal.Signals) -> None:
    process = run(*listeners())
    with socket.create_connection(("127.0.0.1", port_of(process)), timeout=10):
        pass
    process.send_signal(sign)
    rest, log = process.communicate(timeout=30)
    assert (process.returncode, rest) == (0, ""), log
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_a_setting_nobody_knows_is_one_sentence_and_exit_code_2(run: Run) -> None:
    process = run(*listeners(), "--config", "num.partitons=3")
    out, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert out == ""
    assert errors.count("\n") == 1
    assert "num.partitons" in errors
    assert "num.partitions" in errors  # what was probably meant


@pytest.mark.parametrize(
    "arguments",
    [
        ["--config", "num.partitions=many"],
        ["--config", "num.partitions"],
        ["--listeners", "PLAINTEXT//nowhere"],
        ["--config-file", "/no/such/file.properties"],
        ["--log-format", "xml"],
    ],
)
def test_what_cannot_be_used_is_exit_code_2_without_a_traceback(run: Run, arguments: list[str]) -> None:
    process = run(*arguments)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "Traceback" not in errors


def test_a_port_in_use_is_one_sentence_and_exit_code_1(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = run(*listeners(port))
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert errors.count("\n") == 1
    assert str(port) in errors


def test_a_second_broker_on_the_same_directory_is_refused(run: Run, tmp_path: Path) -> None:
    first = run(*listeners())
    port_of(first)
    second = run(*listeners())
    _, errors = second.communicate(timeout=30)
    assert second.returncode == 1
    assert errors.count("\n") == 1
    assert str(tmp_path / "data") in errors


def test_settings_come_from_a_file_and_are_overruled_by_options(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=PLAINTEXT://127.0.0.1:1\nnum.partitions=3\n")
    process = run("--config-file", str(file), *listeners())
    assert port_of(process) > 1


def test_json_log_lines_go_to_standard_error(run: Run) -> None:
    import json

    process = run(*listeners(), "--log-format", "json")
    port_of(process)
    process.terminate()
    _, errors = process.communicate(timeout=30)
    assert {"started", "stopped"} <= {json.loads(line)["event"] for line in errors.splitlines()}


def test_every_log_directory_is_named_at_start(run: Run, tmp_path: Path) -> None:
    import json

    both = [str(tmp_path / "one"), str(tmp_path / "two")]
    process = run(*listeners(), "--log-format", "json", data_dir=Path(",".join(both)))
    port_of(process)
    process.terminate()
    _, errors = process.communicate(timeout=30)
    (started,) = (line for line in map(json.loads, errors.splitlines()) if line["event"] == "started")
    assert started["log_dirs"] == both


def test_the_environment_of_a_compose_file_for_the_apache_image_starts(tmp_path: Path) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    port = free_port()
    variables = {
        "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:9093",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://127.0.0.1:{port}",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "KAFKA_NUM_PARTITIONS": "3",
        "KAFKA_LOG_DIRS": str(tmp_path / "from-environment"),
        "KAFKA_HEAP_OPTS": "-Xmx1G",
        "KAFKA_PORT": "tcp://10.0.0.1:9092",
    }
    command = [sys.executable, "-m", "kbroker", "start"]
    process = subprocess.Popen(
        command, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port_of(process)}"})
        admin.create_topics([NewTopic("t")])["t"].result(10)
        assert len(admin.list_topics("t", timeout=10).topics["t"].partitions) == 3
    finally:
        process.terminate()
        _, log = process.communicate(timeout=30)
    assert (tmp_path / "from-environment" / "t-2").is_dir()
    assert "KAFKA_HEAP_OPTS" in log
    assert "KAFKA_PORT" in log


def test_port_is_short_for_a_listener_on_loopback(run: Run) -> None:
    port = free_port()
    assert port_of(run("--port", str(port))) == port


def test_a_port_above_65535_is_named_with_its_range(run: Run) -> None:
    for arguments in (["--port", "99999"], listeners(99999)):
        process = run(*arguments)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 2
        assert "99999" in errors
        assert "65535" in errors


def free_port() -> int:
    """Returns a port that nothing listens on, from below the ports that the system hands out by itself."""
    while True:
        port = random.randrange(20_000, 30_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
