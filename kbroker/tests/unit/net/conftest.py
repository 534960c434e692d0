from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .harness import House

# The native side is one piece: without the log there is no broker to connect to.
if find_spec("kbroker._core.log.partition_log") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(params=[False, True], ids=["epoll", "poll"])
def house(request: pytest.FixtureRequest) -> Iterator[House]:
    from .harness import House

    built = House(request.param)
    yield built
    built.close()
