from __future__ import annotations

from collections.abc import Iterator

import pytest

from .harness import House


@pytest.fixture(params=[False, True], ids=["epoll", "poll"])
def house(request: pytest.FixtureRequest) -> Iterator[House]:
    built = House(request.param)
    yield built
    built.close()
