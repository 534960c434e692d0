"""A partition's log: append, find a place by offset or by time, read it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kbroker._core.clock import BrokerClock
from kbroker._core.log.partition_log import PartitionLog
from kbroker._core.record.records import Record, build_batch


@pytest.fixture
def log(tmp_path: Path) -> Iterator[PartitionLog]:
    opened = PartitionLog.open(tmp_path / "orders-0", BrokerClock(), {})
    yield opened
    opened.close()


@pytest.mark.parametrize("size", [100, 16_384, 524_288])
def test_append(benchmark: BenchmarkFixture, log: PartitionLog, size: int) -> None:
    batch = build_batch([Record(value=os.urandom(min(size, 1024))) for _ in range(max(1, size // 1024))])
    benchmark(log.append, batch)
    assert log.log_end_offset > 0


@pytest.fixture
def filled(log: PartitionLog) -> PartitionLog:
    for number in range(2_000):
        log.append(build_batch([Record(timestamp=number, value=bytes(1024)) for _ in range(16)]))
    return log


def test_read_in_the_middle(benchmark: BenchmarkFixture, filled: PartitionLog) -> None:
    assert benchmark(filled.read, 16_005, 65_536)


def test_find_by_time(benchmark: BenchmarkFixture, filled: PartitionLog) -> None:
    assert benchmark(filled.offset_for_timestamp, 1_000).offset == 16_000
