"""Fixtures that tests of several rooms share."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import settings

import kbroker
from kbroker._core.core import IS_PORTABLE_BUILD

settings.register_profile("untimed", deadline=None)  # a busy machine makes any example late
settings.load_profile("untimed")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the tests of Linux's own system calls out of a run on the portable build, which makes none of them."""
    if IS_PORTABLE_BUILD:
        config.hook.pytest_deselected(items=[one for one in items if one.get_closest_marker("linux_calls")])
        items[:] = [one for one in items if not one.get_closest_marker("linux_calls")]


@pytest.fixture
def broker() -> Iterator[kbroker.Broker]:
    """A running broker of the test's own, in a directory that goes with it."""
    with kbroker.Broker() as running:
        yield running


@pytest.fixture
def start_broker() -> Iterator[Callable[..., kbroker.Broker]]:
    """Starts brokers as the test asks for; those still running at its end are stopped."""
    started: list[kbroker.Broker] = []

    def start(*positional: Any, **named: Any) -> kbroker.Broker:
        broker = kbroker.Broker(*positional, **named)
        started.append(broker)
        return broker.start()

    yield start
    for broker in reversed(started):
        broker.stop()
