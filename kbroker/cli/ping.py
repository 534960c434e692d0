"""`kbroker ping`: does a broker answer? One ApiVersions and one Metadata request, as any Kafka client sends them.

Exit code 0 and one sentence on standard output if both are answered within the timeout, else 1 and one sentence on
standard error. Meant for health checks: it loads the codec and the settings, and nothing of the broker.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from typing import NamedTuple

import click

CLIENT_ID = "kbroker-ping"
REPLY_BYTES_MAX = 16_777_216  # Metadata without topics is far smaller: a larger size is no reply of a broker
EVERY_ADDRESS = ("", "0.0.0.0", "::")


class PingError(Exception):
    """Raised when a broker does not answer; its text is the rest of a sentence."""


class Answer(NamedTuple):
    brokers: int
    cluster_id: str | None


@click.command("ping", context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--bootstrap-server",
    metavar="HOST:PORT",
    help="The broker to ask.  [default: the first listener of KAFKA_LISTENERS, else 127.0.0.1:9092]",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="For connecting and both answers together.",
)
def command(bootstrap_server: str | None, timeout_s: float) -> None:
    """Ask a broker whether it answers; exit code 0 if it does, 1 if not."""
    began = time.monotonic()
    host, port = _split(bootstrap_server) if bootstrap_server is not None else _own_listener()
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        answer = ping(host, port, began + timeout_s)
    except PingError as problem:
        click.echo(f"kbroker: No broker answers at {where}: {problem}.", err=True)
        sys.exit(1)
    brokers = "1 broker" if answer.brokers == 1 else f"{answer.brokers} brokers"
    click.echo(
        f"A broker answers at {where}: {brokers} in cluster {answer.cluster_id}, "
        f"{(time.monotonic() - began) * 1000:.0f} ms."
    )


def ping(host: str, port: int, deadline: float) -> Answer:
    """Returns what Metadata says of the cluster. Raises PingError if there is no answer by `deadline` (monotonic)."""
    from kbroker.protocol import codec

    try:
        with socket.create_connection((host, port), timeout=_left(deadline)) as connection:
            return _ask_both(connection, deadline)
    except TimeoutError:
        raise PingError("the timeout is over") from None
    except codec.DecodeError as problem:
        raise PingError(f"the reply cannot be decoded ({problem})") from None
    except OSError as problem:
        raise PingError(problem.strerror or str(problem)) from None


def _ask_both(connection: socket.socket, deadline: float) -> Answer:
    from kbroker.protocol import codec
    from kbroker.protocol.messages import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse

    frame = _exchange(connection, codec.encode_request(ApiVersionsRequest(), 0, 1, CLIENT_ID), deadline)
    _, versions = codec.decode_response(ApiVersionsResponse, 0, frame)
    _check(versions.error_code, "ApiVersions")
    offered = {one.api_key: one.max_version for one in versions.api_keys}
    if MetadataRequest.KEY not in offered:
        raise PingError("ApiVersions does not offer Metadata")
    version = min(offered[MetadataRequest.KEY], MetadataRequest.VERSIONS[1])
    frame = _exchange(connection, codec.encode_request(MetadataRequest(topics=[]), version, 2, CLIENT_ID), deadline)
    _, metadata = codec.decode_response(MetadataResponse, version, frame)
    _check(metadata.error_code, "Metadata")
    if not metadata.brokers:
        raise PingError("Metadata names no broker")
    return Answer(len(metadata.brokers), metadata.cluster_id)


def _check(error_code: int, what: str) -> None:
    if error_code:
        from kbroker.errors import name_of

        raise PingError(f"{what} is answered with {name_of(error_code)}")


def _exchange(connection: socket.socket, frame: bytes, deadline: float) -> bytes:
    connection.settimeout(_left(deadline))
    connection.sendall(len(frame).to_bytes(4, "big") + frame)
    size = int.from_bytes(_receive(connection, 4, deadline), "big")
    if size > REPLY_BYTES_MAX:
        raise PingError("what listens there does not speak Kafka's protocol, or only over TLS")
    return _receive(connection, size, deadline)


def _receive(connection: socket.socket, size: int, deadline: float) -> bytes:
    found = bytearray()
    while len(found) < size:
        connection.settimeout(_left(deadline))
        part = connection.recv(size - len(found))
        if not part:
            raise PingError("the connection was closed without an answer")
        found += part
    return bytes(found)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or "," in host or not port.isdecimal() or not 0 < int(port) <= 65535:
        raise click.UsageError(f"--bootstrap-server is {address!r}: write one broker as HOST:PORT.")
    return host.strip("[]"), int(port)


def _own_listener() -> tuple[str, int]:
    """Where a broker that was started with this environment listens; a client of it uses localhost."""
    from kbroker.config import ConfigError
    from kbroker.sources import gather

    try:
        listener = gather(variables=os.environ).config.listeners[0]
    except ConfigError as problem:
        raise click.UsageError(f"{problem} Or give --bootstrap-server.") from None
    if not listener.port:
        raise click.UsageError(f"The listener {listener} has no fixed port: give --bootstrap-server.")
    return "localhost" if listener.host in EVERY_ADDRESS else listener.host, listener.port
