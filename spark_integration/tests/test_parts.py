"""What the parts hold by themselves, without Spark and without a broker."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from confluent_kafka import KafkaException

from spark_integration.pipeline import Settings, events, kafka, skew
from spark_integration.pipeline.fates import DEAD, RETRY
from spark_integration.pipeline.picture import LEFT, TICKS_MOST, draw, ticks
from spark_integration.pipeline.progress import line_of
from spark_integration.pipeline.retry import delay_ms, outgoing
from spark_integration.tests.trial import arguments

SETTINGS = Settings("127.0.0.1:9092", "somewhere")
START_MS = 1_800_000_000_000


def _traffic(seed: int) -> tuple[list[events.Sent], events.Truth]:
    truth = events.Truth(SETTINGS.window_ms)
    return list(events.stream(5_000, seed, START_MS, truth)), truth


def test_the_same_seed_makes_the_same_traffic_and_the_same_truth() -> None:
    assert _traffic(3) == _traffic(3)
    assert _traffic(3) != _traffic(4)


def test_the_fates_add_up_to_the_input_and_the_counted_ones_to_the_totals() -> None:
    sent, truth = _traffic(5)
    assert sum(truth.fates_first.values()) == sum(truth.fates_repaired.values()) == len(sent)
    for totals, fates in ((truth.first, truth.fates_first), (truth.repaired, truth.fates_repaired)):
        assert sum(count for count, _ in totals.values()) == fates["counted"] + fates["retried"]


def test_the_truth_survives_its_file() -> None:
    _, truth = _traffic(5)
    assert events.Truth.from_json(truth.to_json()) == truth


def test_a_repair_undoes_every_bug_but_junk() -> None:
    sent, _ = _traffic(6)
    assert {record.kind for record in sent} == {"plain", *events.SHARES}
    for record in sent:
        mended = events.repair(record.value)
        if record.kind == "junk":
            assert mended is None
            continue
        assert mended is not None
        event = json.loads(mended)
        assert (event["page"], event["quantity"], event["at"]) == (record.page, record.quantity, record.at)


def test_delays_double() -> None:
    assert [delay_ms(attempt, SETTINGS) for attempt in (1, 2, 3, 4)] == [1000, 2000, 4000, 8000]


@pytest.mark.parametrize(("fate", "topic", "due"), [(RETRY, "clicks.retry", "4500"), (DEAD, "clicks.dead", None)])
def test_a_failed_record_carries_its_history(fate: str, topic: str, due: str | None) -> None:
    failed = {"fate": fate, "attempt": 3, "origin": "clicks/0/7", "first_seen_ms": 5, "admitted": True, "error": "so"}
    record = outgoing(failed | {"key": b"k", "value": bytearray(b"v")}, 500, SETTINGS)
    assert (record.topic, record.key, record.value, record.headers.get("kb.due")) == (topic, b"k", b"v", due)
    assert record.headers["kb.attempt"] == "3"
    assert record.partition == (2 if fate == RETRY else 0)


class _Stuck:
    """A producer whose send_offsets_to_transaction does not return before it is released."""

    def __init__(self) -> None:
        self.released, self.committed = threading.Event(), False

    def send_offsets_to_transaction(self, *_: object) -> None:
        self.released.wait()

    def commit_transaction(self, *_: object) -> None:
        self.committed = True

    def consumer_group_metadata(self) -> None:
        """A consumer's part."""


def test_a_call_of_librdkafka_that_never_returns_fails_the_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "SECONDS", 0.02)
    monkeypatch.setattr(kafka, "GRACE_SECONDS", 0.02)
    client: Any = _Stuck()
    try:
        with pytest.raises(KafkaException, match="send_offsets_to_transaction did not return"):
            kafka.commit_transaction(client, client, [])
        assert not client.committed
    finally:
        client.released.set()
    kafka.commit_transaction(client, client, [])
    assert client.committed


def test_a_hot_key_is_cut_and_a_cool_one_is_not() -> None:
    found = skew.Skew(100, {0: 0.7, 1: 0.3}, [("hot", 0, 0.6), ("cool", 1, 0.1)])
    assert found.hottest == pytest.approx(1.4)
    assert found.salts() == {"hot": 4}
    key_of = skew.salted(found.salts())
    assert [key_of("hot", number) for number in (0, 5)] == ["hot:0", "hot:1"]
    assert key_of("cool", 5) == "cool"


def test_a_report_of_spark_becomes_a_line_and_lines_a_picture() -> None:
    source = {"latestOffset": '{"clicks":{"0":10,"1":5}}', "endOffset": {"clicks": {"0": 7, "1": 5}}}
    state = {"numRowsTotal": 4, "numRowsDroppedByWatermark": 0, "customMetrics": {"numDroppedDuplicateRows": 2}}
    report = {"timestamp": "2026-01-01T00:00:00.000Z", "batchId": 3, "numInputRows": 12, "batchDuration": 70}
    line = line_of(report | {"sources": [source], "stateOperators": [state]})
    assert (line["lag"], line["duplicates"], line["batch"]) == (3, 2, 3)
    assert line["input_rate"] is None, "the first batch after a start has no rate"
    again = line_of(report | {"sources": [source | {"latestOffset": None, "inputRowsPerSecond": 6.0}]})
    assert (again["lag"], again["input_rate"]) == (None, 6.0)
    at = line["at"] or 0
    drawn = draw([{"started": at - 1}, line, {"started": at + 1}, again], "clicks & more")
    assert "clicks &amp; more: 24 rows in 2 batches over 2 s, 1 restarts" in drawn
    assert draw([], "nothing yet").startswith("<svg")


def test_picture_draws_batches_as_points_and_joins_lag_only_within_a_run() -> None:
    figures = {"input_rows": 1, "input_rate": 5.0, "processing_rate": 5.0, "lag": 4, "batch_ms": 99_999_999}
    batches = [{"batch": number, "at": 10.0 * number, **figures} for number in (1, 2, 4, 5)]
    drawn = draw([{"started": 5.0}, *batches[:2], {"started": 30.0}, *batches[2:]], "clicks")
    lag = "#e08e0b"
    assert drawn.count("r='3'") == 4 * 4 + 1
    assert drawn.count(f"fill='none' stroke='{lag}'") == drawn.count("fill='none'") == 2
    assert all(words in drawn for words in ("one batch", "lag between batches", "restart of the driver"))
    left = LEFT - 8 - 0.62 * 12 * len("99,999,999")
    assert 8 + 0.68 * 12 * len("batch time") < left


@pytest.mark.parametrize(("seconds", "named"), [(0, [0]), (205, [0, 50, 100, 150, 200]), (7, list(range(8)))])
def test_time_axis_names_round_seconds(seconds: float, named: list[int]) -> None:
    assert ticks(seconds) == named


@pytest.mark.parametrize("seconds", [0.4, 9.9, 59, 3_601, 86_400.5])
def test_time_axis_has_room_for_its_labels(seconds: float) -> None:
    assert 1 <= len(ticks(seconds)) <= TICKS_MOST


def test_a_driver_is_told_all_settings() -> None:
    told = arguments(SETTINGS)
    assert told[told.index("--backoff-ms") + 1] == "1000"
    assert told[told.index("--warehouse") + 1] == "somewhere"
