"""What a broker warns of at its start, as the embedding program's logging receives it."""

import logging
import re

import pytest

import kbroker

OPEN = "listeners open to other machines without authentication"
MAP = "OPEN:PLAINTEXT,PLAINTEXT:PLAINTEXT"
FACTOR = "default.replication.factor above the number of brokers"
LOWERED = "replica counts lowered to the number of brokers"


def warnings_of(caplog: pytest.LogCaptureFixture, **settings: object) -> list[str]:
    """Starts and stops a broker; returns its warnings."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="kbroker"), kbroker.Broker(**settings):
        pass
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_a_default_start_warns_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert warnings_of(caplog) == []


def test_a_default_replication_factor_of_three_on_one_node_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    (line,) = warnings_of(caplog, default_replication_factor=3)
    assert line.startswith(f"{FACTOR} value=3 brokers=1 ")
    assert "what_to_do='set default.replication.factor=1'" in line


def test_replica_counts_of_a_cluster_are_named_in_one_warning_on_one_node(caplog: pytest.LogCaptureFixture) -> None:
    counts = {"offsets_topic_replication_factor": 3, "min_insync_replicas": 2, "transaction_state_log_min_isr": 1}
    (line,) = warnings_of(caplog, **counts)
    assert line == f"{LOWERED} settings=['min.insync.replicas=2', 'offsets.topic.replication.factor=3'] brokers=1"


def started_line(caplog: pytest.LogCaptureFixture, listeners: str, advertised: str) -> str:
    caplog.clear()
    config = {"listeners": listeners, "advertised.listeners": advertised, "listener.security.protocol.map": MAP}
    with caplog.at_level(logging.INFO, logger="kbroker"), kbroker.Broker(config=config):
        pass
    (line,) = (one for record in caplog.records if (one := record.getMessage()).startswith("started "))
    return line


def test_bound_addresses_are_logged_besides_the_advertised_ones(caplog: pytest.LogCaptureFixture) -> None:
    line = started_line(caplog, "PLAINTEXT://localhost:0", "PLAINTEXT://broker.example:9092")
    assert re.search(r" listeners=\['PLAINTEXT://(127\.0\.0\.1|\[::1\]):[1-9][0-9]+'\] ", line), line
    assert " advertised_listeners=['PLAINTEXT://broker.example:9092'] " in line
    assert not any(OPEN in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("host", ["0.0.0.0", ""])
def test_a_listener_on_every_address_is_a_warning_that_names_only_it(
    host: str, caplog: pytest.LogCaptureFixture
) -> None:
    line = started_line(
        caplog,
        f"OPEN://{host}:0,PLAINTEXT://127.0.0.1:0",
        "OPEN://broker.example:9092,PLAINTEXT://127.0.0.1:9093",
    )
    bound = re.search(r"listeners=\['(OPEN://(?:0\.0\.0\.0|\[::\]):[0-9]+)', 'PLAINTEXT://127", line)
    assert bound is not None, line
    (warning,) = (one for record in caplog.records if (one := record.getMessage()).startswith(OPEN))
    assert f"{OPEN} listeners=['{bound[1]}'] what_to_do=" in warning
