"""Checksums, building and reading batches."""

import os

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kbroker._core.record.crc32c import checksum as crc32c
from kbroker._core.record.records import Record, build_batch, iterate


@pytest.mark.parametrize("size", [100, 16_384, 1_048_576])
def test_crc32c(benchmark: BenchmarkFixture, size: int) -> None:
    data = os.urandom(size)
    assert benchmark(crc32c, data) == crc32c(data)


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4], ids=["none", "gzip", "snappy", "lz4", "zstd"])
def test_read_a_batch_of_160_records_of_100_bytes(benchmark: BenchmarkFixture, codec: int) -> None:
    batch = build_batch([Record(value=os.urandom(50) + bytes(50)) for _ in range(160)], codec=codec)
    assert len(benchmark(iterate, batch)) == 160


def test_build_a_batch_of_160_records_of_100_bytes(benchmark: BenchmarkFixture) -> None:
    records = [Record(value=os.urandom(100)) for _ in range(160)]
    assert len(benchmark(build_batch, records)) > 16_000
