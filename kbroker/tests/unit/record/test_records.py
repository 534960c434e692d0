import pytest
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from kbroker._core.record import batch, records
from kbroker._core.record.records import BrokenRecords, Record

SAMPLE = [
    Record(0, 1_700_000_000_000, b"k", b"v"),
    Record(1, 1_700_000_000_007, None, b""),
    Record(2, 1_699_999_999_000, b"", None, (("h", b"1"), ("h", None), ("é", b""))),
    Record(3, 1_700_000_000_001, b"k" * 300, b"v" * 70_000),
]


def kafka_python_batch(sample: list[Record], codec: int = 0) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for record in sample:
        builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    return bytes(builder.build())


def test_a_batch_is_what_kafka_python_builds() -> None:
    theirs = kafka_python_batch(SAMPLE)
    ours = records.build_batch(SAMPLE, leader_epoch=records.batches(theirs)[0].leader_epoch)
    assert ours == theirs


@pytest.mark.parametrize("codec", range(5))
def test_what_kafka_python_compresses_is_accepted_and_read(codec: int) -> None:
    theirs = kafka_python_batch(SAMPLE, codec)
    assert records.batches(theirs)[0].codec == codec
    assert batch.validate(theirs, SAMPLE[0].timestamp).batch == theirs
    assert records.iterate(theirs) == SAMPLE


@pytest.mark.parametrize("codec", range(5))
def test_kafka_python_reads_our_batch(codec: int) -> None:
    batch = DefaultRecordBatch(records.build_batch(SAMPLE, base_offset=0, codec=codec))
    assert batch.validate_crc()
    read = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    assert read == SAMPLE


def test_records_come_back_as_they_went_in() -> None:
    data = records.build_batch(SAMPLE[:2]) + records.build_batch([r._replace(offset=-1) for r in SAMPLE], base_offset=2)
    assert [r.offset for r in records.iterate(data)] == [0, 1, 2, 3, 4, 5]
    assert [r[1:] for r in records.iterate(data)] == [r[1:] for r in SAMPLE[:2] + SAMPLE]


def test_a_header_view_tells_every_field() -> None:
    data = records.build_batch(
        SAMPLE,
        base_offset=0,
        producer_id=9,
        producer_epoch=2,
        base_sequence=5,
        transactional=True,
        control=True,
        leader_epoch=3,
        append_time_ms=1_800_000_000_000,
        last_offset=10,
    )
    (header,) = records.batches(data)
    assert (header.position, header.size, header.base_offset, header.last_offset) == (0, len(data), 0, 10)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.leader_epoch) == (9, 2, 5, 3)
    assert (header.records_count, header.max_timestamp, header.magic) == (4, 1_800_000_000_000, 2)
    assert header.transactional
    assert header.control
    assert header.log_append_time
    assert not header.delete_horizon
    assert {r.timestamp for r in records.iterate(data)} == {1_800_000_000_000}
    assert records.iterate(data, control=False) == []


def test_offsets_may_leave_gaps_but_not_go_back() -> None:
    kept = [Record(10, 1, b"a"), Record(17, 2, b"b")]
    data = records.build_batch(kept, base_offset=8, last_offset=20)
    assert records.iterate(data) == kept
    assert records.batches(data)[0].last_offset == 20
    with pytest.raises(ValueError, match="does not fit"):
        records.build_batch(list(reversed(kept)), base_offset=8)
    with pytest.raises(ValueError, match="last offset"):
        records.build_batch(kept, base_offset=8, last_offset=16)


def test_an_emptied_batch_keeps_its_range() -> None:
    (header,) = records.batches(records.build_batch([], base_offset=5, last_offset=9))
    assert (header.base_offset, header.last_offset, header.records_count) == (5, 9, 0)


@pytest.mark.parametrize("cut", [1, 11, 12, 60, 61, 100])
def test_a_cut_batch_is_broken_unless_a_partial_tail_is_expected(cut: int) -> None:
    whole = records.build_batch(SAMPLE)
    data = whole + whole[:cut]
    with pytest.raises(BrokenRecords):
        records.iterate(data)
    assert len(records.batches(data, partial_tail=True)) == 1
    assert records.iterate(data, partial_tail=True) == SAMPLE


def test_a_wrong_checksum_is_noticed() -> None:
    data = bytearray(records.build_batch(SAMPLE))
    data[-1] ^= 1
    assert len(records.batches(data)) == 1
    with pytest.raises(BrokenRecords, match="corrupt"):
        records.iterate(data)
