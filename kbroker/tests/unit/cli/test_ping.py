"""`kbroker ping`: exit code 0 and a sentence if a broker answers, 1 and a reason if none does."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from threading import Thread

import pytest
from click.testing import CliRunner, Result

from kbroker.broker import Broker
from kbroker.cli import main


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def ping(*arguments: str, env: dict[str, str] | None = None) -> Result:
    unset = {name: None for name in os.environ if name.startswith("KAFKA_")}
    return CliRunner().invoke(main, ["ping", *arguments], env={**unset, **(env or {})})


def impostor(reply: bytes) -> int:
    """Returns the port of a server that answers the first bytes of one connection with `reply`, then closes it."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with server, server.accept()[0] as connection:
            connection.recv(4096)
            connection.sendall(reply)

    Thread(target=serve, daemon=True).start()
    port: int = server.getsockname()[1]
    return port


def test_a_running_broker_answers_and_the_exit_code_is_0(broker: Broker) -> None:
    result = ping("--bootstrap-server", broker.bootstrap_servers)
    assert result.exit_code == 0, result.output
    assert result.output.startswith(f"A broker answers at {broker.bootstrap_servers}: 1 broker in cluster ")
    assert result.output.count("\n") == 1
    requests = broker.counters()["requests"]
    assert requests[18] >= 1  # ApiVersions
    assert requests[3] >= 1  # Metadata


def test_without_an_address_the_listener_of_the_environment_is_asked(broker: Broker) -> None:
    variables = {
        "KAFKA_LISTENERS": f"CONTROLLER://:9093,PLAINTEXT://0.0.0.0:{broker.port}",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://broker.example:9092",
    }
    result = ping(env=variables)
    assert result.exit_code == 0, result.output
    assert f"localhost:{broker.port}" in result.output


def test_a_port_without_a_broker_is_exit_code_1_with_the_reason() -> None:
    with socket.socket() as bound:  # and not listening: connections are refused, nobody else can take the port
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        result = ping("--bootstrap-server", f"127.0.0.1:{port}")
    assert result.exit_code == 1
    assert result.output == f"kbroker: No broker answers at 127.0.0.1:{port}: Connection refused.\n"


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak Kafka's protocol"),
        (b"\x15\x03\x03\x00\x02\x02\x50", "does not speak Kafka's protocol, or only over TLS"),
        (b"", "closed without an answer"),
        (b"\0\0\0\6\0\0\0\1\0\x23", "cannot be decoded"),
    ],
)
def test_an_answer_that_is_not_a_brokers_is_exit_code_1(reply: bytes, reason: str) -> None:
    result = ping("--bootstrap-server", f"127.0.0.1:{impostor(reply)}")
    assert result.exit_code == 1
    assert reason in result.output
    assert result.output.count("\n") == 1


def test_a_server_that_never_answers_is_exit_code_1_after_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        result = ping("--bootstrap-server", f"127.0.0.1:{server.getsockname()[1]}", "--timeout", "0.1")
    assert result.exit_code == 1
    assert "the timeout is over" in result.output


@pytest.mark.parametrize("address", ["localhost", "localhost:", ":9092", "localhost:99999", "a:1,b:2"])
def test_an_address_that_cannot_be_used_is_exit_code_2(address: str) -> None:
    result = ping("--bootstrap-server", address)
    assert result.exit_code == 2
    assert address in result.output


def test_ping_loads_nothing_of_the_broker(broker: Broker) -> None:
    program = (
        "import sys; from kbroker.cli import main\n"
        f"main(['ping', '--bootstrap-server', '{broker.bootstrap_servers}'], standalone_mode=False)\n"
        "print(list(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    for module in ("kbroker.broker", "kbroker.server", "kbroker._core.core", "asyncio", "structlog", "rich"):
        assert f"'{module}'" not in ran.stdout, module
