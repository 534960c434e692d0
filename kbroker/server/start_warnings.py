"""Warnings at start: settings that one broker cannot meet, and listeners that other machines can reach."""

from __future__ import annotations

from collections.abc import Sequence

from kbroker.config import Config
from kbroker.listeners import Listener
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


def bound_listeners(listeners: Sequence[Listener], addresses: Sequence[tuple[str, int]]) -> list[Listener]:
    """Returns the listeners with the address and port that each socket is bound to; every address is 0.0.0.0 or ::."""
    return [
        Listener(one.name, host, port, one.protocol) for one, (host, port) in zip(listeners, addresses, strict=True)
    ]


def warn_of_open_listeners(bound: Sequence[Listener], log: BrokerLog) -> None:
    """Logs the listeners that are bound to more than the loopback interface: nobody is asked for a password there."""
    reachable = [str(one) for one in bound if not _is_loopback(one.host)]
    if reachable:
        log.warning(
            "listeners open to other machines without authentication",
            listeners=reachable,
            what_to_do="bind to 127.0.0.1, or let only trusted networks reach the port",
        )


def _is_loopback(host: str) -> bool:
    return host == "::1" or host.startswith("127.")
