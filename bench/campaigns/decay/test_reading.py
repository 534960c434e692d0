"""What recovery never read may be past reading; what it has read is asked for all the same."""

from __future__ import annotations

import pytest

from bench.campaigns.decay import reading
from bench.campaigns.decay.reading import KAFKA_STORAGE_ERROR, Content, Key
from bench.client import Client
from kbroker._core.record.records import Record, build_batch

KEY, END = ("topic", 0), 8


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Offsets whose fetch answers KAFKA_STORAGE_ERROR; every other one of eight is served, a record a batch."""
    offsets: set[int] = set()

    def fetch(_client: Client, _key: Key, offset: int) -> tuple[int, bytes]:
        if offset in offsets:
            return KAFKA_STORAGE_ERROR, b""
        return 0, build_batch([Record(timestamp=1, value=b"v")], base_offset=offset)

    monkeypatch.setattr(reading, "fetch", fetch)
    monkeypatch.setattr(reading, "ask_offset", lambda _client, _key, timestamp: (0, 0 if timestamp == -2 else END))
    return offsets


def read(since: int | None) -> Content:
    return reading.read(None, KEY, since)  # type: ignore[arg-type]  # nobody asks it


def test_an_error_before_what_recovery_has_read_is_noted_and_passed_over(refused: set[int]) -> None:
    refused |= {2, 3}
    found = read(4)
    assert (found.error, found.wrong, sorted(found.records)) == (0, [2], [0, 1, 4, 5, 6, 7])


@pytest.mark.parametrize("since", [0, 4])
def test_an_error_in_what_recovery_has_read_is_one(refused: set[int], since: int) -> None:
    refused |= {5}
    found = read(since)
    assert (found.error, found.wrong, sorted(found.records)) == (KAFKA_STORAGE_ERROR, [], [0, 1, 2, 3, 4])


def test_a_partition_that_fails_as_a_whole_is_not_passed_over(refused: set[int]) -> None:
    refused |= set(range(2, END))
    assert read(4).error == read(None).error == KAFKA_STORAGE_ERROR
