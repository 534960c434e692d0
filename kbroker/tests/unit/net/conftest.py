from __future__ import annotations

from collections.abc import Iterator

import pytest

from kbroker._core.core import IS_PORTABLE_BUILD

from .harness import House


@pytest.fixture(params=["poll", "moving"] if IS_PORTABLE_BUILD else ["epoll", "poll", "moving"])
def house(request: pytest.FixtureRequest) -> Iterator[House]:
    """`moving`: every connection moves to another network thread after each of its requests."""
    built = House(request.param == "poll", moving=request.param == "moving")
    yield built
    built.close()
