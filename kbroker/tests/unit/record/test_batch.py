"""What validation writes into a batch, and what it reports besides the error."""

import pytest

from kbroker._core.record import batch as batches
from kbroker._core.record import codecs, records
from kbroker._core.record.records import Record
from kbroker.tests.unit.record.crafting import NOW, batch, nullable, record, three, varint

RAGGED = (
    record(4, timestamp_delta=7, attributes=3)
    + record(1, timestamp_delta=-7, key=None)
    + record(9, headers=varint(1) + nullable(b"h") + nullable(b"1"), value=b"v" * 200)
)


def accepted(data: bytes, **rules: object) -> batches.Validated:
    found = batches.validate(data, NOW, **rules)  # type: ignore[arg-type]
    assert found.error == 0
    assert found.batch is not None
    assert batches.check(found.batch) == 0
    return found


def header(found: batches.Validated) -> records.BatchHeader:
    assert found.batch is not None
    return records.batches(found.batch)[0]


def test_an_honest_batch_is_not_touched() -> None:
    for data in (batch(), batch(attributes=0x4180), batch(codecs.compress(4, three()), attributes=4)):
        assert accepted(data).batch == data


@pytest.mark.parametrize("codec", range(5))
def test_a_wrong_max_timestamp_is_set_right(codec: int) -> None:
    data = batch(codecs.compress(codec, three()), attributes=codec, max_timestamp=5)
    assert accepted(data).batch == batch(codecs.compress(codec, three()), attributes=codec)


def test_setting_right_drops_unknown_attribute_bits_only() -> None:
    assert accepted(batch(attributes=0x41F0 & ~0x20, max_timestamp=5)).batch == batch(attributes=0x50)


def test_the_first_record_with_the_largest_timestamp_is_reported() -> None:
    payload = b"".join(record(i, timestamp_delta=delta) for i, delta in enumerate([3, 9, 1, 9]))
    found = accepted(batch(payload, count=4, last_offset_delta=3, max_timestamp=NOW + 9))
    assert (found.max_timestamp, found.max_timestamp_offset_delta) == (NOW + 9, 1)


@pytest.mark.parametrize("timestamp", [-1, -2, -500])
def test_without_timestamps_there_is_no_largest(timestamp: int) -> None:
    found = accepted(batch(base_timestamp=timestamp))
    assert (found.max_timestamp, found.max_timestamp_offset_delta) == (-1, -1)
    assert header(found).max_timestamp == -1


@pytest.mark.parametrize("codec", range(5))
def test_log_append_time_is_the_brokers(codec: int) -> None:
    payload = codecs.compress(codec, three(timestamp_delta=4))
    found = accepted(batch(payload, attributes=codec, base_timestamp=NOW + 10**10), log_append_time=True)
    assert found.batch == batch(payload, attributes=codec | 8, base_timestamp=NOW + 10**10, max_timestamp=NOW)
    assert (found.max_timestamp, found.max_timestamp_offset_delta) == (NOW, 0)
    assert {r.timestamp for r in records.iterate(found.batch)} == {NOW}


def test_a_producer_may_not_claim_log_append_time_where_it_is_the_rule() -> None:
    found = batches.validate(batch(attributes=8), NOW, log_append_time=True)
    assert (found.error, found.record_errors) == (32, (0, 1, 2))
    assert accepted(batch(attributes=8)).batch == batch()


def test_the_timestamp_window_is_inclusive_on_both_sides() -> None:
    window = {"timestamp_before_max_ms": 1000, "timestamp_after_max_ms": 500}
    for offset in (-1000, 0, 500):
        accepted(batch(base_timestamp=NOW + offset), **window)
    for offset in (-1001, 501):
        assert batches.validate(batch(base_timestamp=NOW + offset), NOW, **window).error == 32


@pytest.mark.parametrize("target", range(5))
@pytest.mark.parametrize("source", range(5))
def test_a_topics_codec_is_applied(source: int, target: int) -> None:
    sent = [Record(-1, NOW + i, b"k%d" % i, b"value " * i, (("h", b"x"),)) for i in range(50)]
    data = records.build_batch(sent, codec=source, producer_id=3, producer_epoch=1, base_sequence=7, transactional=True)
    found = accepted(data, target_codec=target)
    assert found.batch is not None
    assert header(found).codec == target
    assert header(found)[7:] == records.batches(data)[0][7:]
    assert header(found).transactional
    assert [r[1:] for r in records.iterate(found.batch)] == [r[1:] for r in sent]
    if source == target:
        assert found.batch == data


@pytest.mark.parametrize("target", [1, 2, 3, 4])
def test_records_written_anew_are_numbered_and_stamped_anew(target: int) -> None:
    found = accepted(batch(RAGGED, max_timestamp=3, attributes=0x40), target_codec=target)
    assert found.batch is not None
    made = header(found)
    assert (made.base_timestamp, made.max_timestamp, made.attributes) == (NOW + 7, NOW + 7, target)
    expected = record(0) + record(1, timestamp_delta=-14, key=None)
    expected += record(2, timestamp_delta=-7, headers=varint(1) + nullable(b"h") + nullable(b"1"), value=b"v" * 200)
    assert codecs.decompress(target, found.batch[61:], 1 << 20) == expected


def test_log_append_time_and_another_codec_go_together() -> None:
    found = accepted(batch(base_timestamp=NOW - 5), target_codec=4, log_append_time=True)
    made = header(found)
    assert (made.base_timestamp, made.max_timestamp, made.attributes) == (NOW - 5, NOW, 4 | 8)


def test_a_level_is_used_when_writing_anew() -> None:
    data = records.build_batch([Record(-1, NOW, None, bytes(range(256)) * 40 + b"%d" % i) for i in range(20)])
    sizes = {level: len(accepted(data, target_codec=1, target_level=level).batch or b"") for level in (1, 9)}
    assert sizes[9] < sizes[1]


@pytest.mark.parametrize(("source", "target"), [(4, -1), (4, 1), (0, 1)])
def test_a_missing_engine_asks_for_the_fallback_and_changes_nothing(source: int, target: int) -> None:
    data = batch(codecs.compress(source, three()), attributes=source, max_timestamp=1)
    found = batches.validate(data, NOW, target_codec=target, disabled_codecs=1 << 4 | 1 << 1)
    assert found.needs_fallback
    assert (found.error, found.batch) == (0, None)


def test_the_fallbacks_failures_get_the_same_codes() -> None:
    data = batch(b"whatever", attributes=3)
    assert batches.validate(data, NOW, inflated=codecs.UNDECODABLE, disabled_codecs=0xFF).error == -1
    assert batches.validate(data, NOW, inflated=codecs.OVER_CAP, disabled_codecs=0xFF).error == 10
    assert batches.validate(data, NOW, inflated=three(), disabled_codecs=0xFF).batch == data


@pytest.mark.parametrize("length", [0, 1, 12, 60, 61])
def test_check_wants_a_whole_batch(length: int) -> None:
    assert batches.check(batch()[:length]) == 2
    assert batches.check(batch() + b"more") == 0


def test_check_minds_length_magic_count_and_checksum_only() -> None:
    assert batches.check(batch(base_offset=12, attributes=0x20, last_offset_delta=99)) == 0
    for broken in (
        batch(magic=1),
        batch(count=-1),
        batch(crc_change=1),
        batch(batch_length=48),
        batch(batch_length=2**31 - 1),
    ):
        assert batches.check(broken) == 2
