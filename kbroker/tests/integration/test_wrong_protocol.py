"""Clients that are set up for another listener: the log says what to change, once a minute, not with every attempt."""

import http.client
import logging
import ssl
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
from confluent_kafka.admin import AdminClient

import kbroker
from kbroker.protocol.messages import ApiVersionsRequest, SaslAuthenticateRequest, SaslHandshakeRequest
from kbroker.tests.integration.wire import Connection

TLS = "a TLS ClientHello on a PLAINTEXT listener: set security.protocol=PLAINTEXT on the client"
SASL = "SASL client on a listener without SASL"
HTTP = "an HTTP request: this port serves only the Kafka protocol"


@pytest.fixture(autouse=True)
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[str], list[str]]:
    """Returns the warnings whose text contains a string; complete once the broker has stopped."""
    caplog.set_level(logging.WARNING, logger="kbroker")

    def containing(text: str) -> list[str]:
        return [record.getMessage() for record in caplog.records if text in record.getMessage()]

    return containing


def test_tls_and_http_clients_on_a_plaintext_port_are_one_line_each(warnings: Callable[[str], list[str]]) -> None:
    with kbroker.Broker() as broker:
        for _ in range(3):
            with suppress(ssl.SSLError, ConnectionError):
                ssl.get_server_certificate(("127.0.0.1", broker.port), timeout=10)
            with suppress(http.client.HTTPException, ConnectionError):
                connection = http.client.HTTPConnection("127.0.0.1", broker.port, timeout=10)
                connection.request("GET", "/")
                connection.getresponse()
        assert broker.counters()["connections_closed"]["frame_size"] == 6
    for reason in (TLS, HTTP):
        (line,) = warnings(reason)
        assert line.startswith("connection closed peer='127.0.0.1:")


def test_a_sasl_handshake_on_a_plaintext_listener_is_illegal_sasl_state_and_the_connection_stays(
    warnings: Callable[[str], list[str]],
) -> None:
    with kbroker.Broker() as broker, Connection(broker.port) as client:
        for version in (0, 1):
            answer = client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), version)
            assert (answer.error_code, answer.mechanisms) == (34, [])
        assert client.ask(SaslAuthenticateRequest(auth_bytes=b"\0user\0secret"), 2).error_code == 34
        assert client.ask(ApiVersionsRequest(), 0).error_code == 0
    (line,) = warnings(SASL)
    assert line.startswith(f"{SASL} peer='127.0.0.1:")
    assert "client_id='wire' listener='PLAINTEXT' mechanism='SCRAM-SHA-512'" in line
    assert "set security.protocol=PLAINTEXT on the client" in line
    assert "secret" not in line


def test_librdkafka_with_sasl_on_a_plaintext_listener_leaves_one_line(warnings: Callable[[str], list[str]]) -> None:
    with kbroker.Broker() as broker:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "billing", "reconnect.backoff.ms": 10}
        sasl = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "a"}
        client = AdminClient({**settings, **sasl, "sasl.password": "s3cret", "log_level": 0})
        deadline = time.monotonic() + 20
        while broker.counters()["requests"].get(17, 0) < 2:  # it tries again
            assert time.monotonic() < deadline
            client.poll(0.01)
    (line,) = warnings(SASL)
    assert "client_id='billing'" in line
    assert "s3cret" not in line
