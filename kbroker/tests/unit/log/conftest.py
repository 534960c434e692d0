"""Logs under test: a held clock, small batches, and a way to open them again."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker._core.clock import BrokerClock
from kbroker._core.log.partition_log import PartitionLog

NOW_MS = 1_700_000_000_000

OpenLog = Callable[..., PartitionLog]


@pytest.fixture
def clock() -> BrokerClock:
    clock = BrokerClock()
    clock.hold(NOW_MS)
    return clock


@pytest.fixture
def open_log(tmp_path: Path, clock: BrokerClock) -> Iterator[OpenLog]:
    opened: list[PartitionLog] = []

    def open_one(config: dict[str, Any] | None = None, **how: Any) -> PartitionLog:
        log = PartitionLog.open(tmp_path / "topic-0", clock, config or {}, **how)
        opened.append(log)
        return log

    yield open_one
    for log in opened:
        log.close(sync=False)
