"""Clients that are set up for another listener: the log says what to change, once a minute, not with every attempt."""

import http.client
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress

import pytest

import kbroker

TLS = "a TLS ClientHello on a PLAINTEXT listener: set security.protocol=PLAINTEXT on the client"
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
