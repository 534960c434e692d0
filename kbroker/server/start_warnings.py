"""Warnings at start about settings that this broker cannot meet as they are written."""

from __future__ import annotations

from kbroker.config import Config
from kbroker.observe.logging import BrokerLog

# Counts of replicas that are lowered to the number of brokers. Kafka's defaults are for three brokers: a warning is
# only for values that somebody has written.
LOWERED = (
    "min.insync.replicas",
    "offsets.topic.replication.factor",
    "transaction.state.log.min.isr",
    "transaction.state.log.replication.factor",
)


def warn_of_replication(config: Config, brokers: int, log: BrokerLog) -> None:
    """Logs the settings that ask for more replicas than the cluster has brokers."""
    factor = config.integer("default.replication.factor")
    if factor > brokers:
        log.warning(
            "default.replication.factor above the number of brokers",
            value=factor,
            brokers=brokers,
            effect="topics without a replication factor of their own cannot be created, automatic creation included",
            what_to_do=f"set default.replication.factor={brokers}",
        )
    lowered = [name for name in LOWERED if name in config.given and config.integer(name) > brokers]
    if lowered:
        log.warning(
            "replica counts lowered to the number of brokers",
            settings=[f"{name}={config.integer(name)}" for name in lowered],
            brokers=brokers,
        )
