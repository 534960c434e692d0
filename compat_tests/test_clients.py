"""Every client, every scenario, on both brokers."""

from __future__ import annotations

import pytest

from compat_tests.aiokafka_client import AiokafkaClient
from compat_tests.client import Client
from compat_tests.confluent import ConfluentClient
from compat_tests.go import FranzGoClient
from compat_tests.harness import Broker, Results
from compat_tests.java import JavaClient
from compat_tests.kafka_python import KafkaPythonClient
from compat_tests.node import KafkaJsClient
from compat_tests.oracle import MissingToolError
from compat_tests.plugin import Compare
from compat_tests.scenarios import SCENARIOS

CLIENTS: tuple[type[Client], ...] = (
    ConfluentClient,
    KafkaPythonClient,
    AiokafkaClient,
    JavaClient,
    FranzGoClient,
    KafkaJsClient,
)


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("kind", CLIENTS, ids=lambda kind: kind.name)
def test_a_client_sees_no_difference(
    *,
    request: pytest.FixtureRequest,
    kind: type[Client],
    scenario: str,
    topic: str,
    comparing: Compare,
    results: Results,
) -> None:
    request.node.compat_row = (kind.name, scenario)
    results.client_versions[kind.name] = kind.version

    def run(broker: Broker) -> object:
        try:
            with kind(broker.bootstrap) as client:
                return SCENARIOS[scenario].run(client, topic)
        except MissingToolError as missing:
            pytest.skip(str(missing))

    comparing(kind.name, scenario, run)
