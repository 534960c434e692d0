"""What a broker warns of at its start, as the embedding program's logging receives it."""

import logging

import pytest

import kbroker

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
