"""The broker that a long run goes against: one that is named, or a kbroker started for it."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from compat_tests.kbroker_server import KBroker
from compat_tests.oracle import ApacheKafka


def add_bootstrap_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bootstrap", help="host:port of a running broker; without it a kbroker is started")
    parser.add_argument("--apache", action="store_true", help="start an Apache Kafka instead of a kbroker")


@contextmanager
def chosen_broker(options: argparse.Namespace) -> Iterator[str]:
    """Its host:port."""
    if options.bootstrap:
        yield options.bootstrap
        return
    kind = ApacheKafka if options.apache else KBroker
    with tempfile.TemporaryDirectory(prefix="long-run-") as directory, kind(Path(directory)) as broker:
        yield broker.bootstrap
