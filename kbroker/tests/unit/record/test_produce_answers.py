"""What Apache Kafka 4.3.1 answered to raw produce requests, batch by batch, held against our validation.

Every row of the tables was sent to a live broker, compressed ones in each codec; the number is its error code. Where
ours differs on purpose the row says so. The tests below the tables that stand alone (caps, bombs, origins) are our own.
"""

import gzip
import struct

import cramjam
import pytest

from kbroker._core.record import batch as batches
from kbroker._core.record import codecs, records
from kbroker.tests.unit.record.crafting import NOW, batch, nullable, record, three, varint

FAR = 4_102_444_800_000
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
OK, CORRUPT, TOO_LARGE, BAD_TIMESTAMP, INVALID, UNKNOWN = 0, 2, 10, 32, 87, -1


def resized(batch_length: int, keep: int | None = None) -> bytes:
    whole = batch()
    return whole[:8] + struct.pack(">i", batch_length) + whole[12:keep]


def xerial(data: bytes) -> bytes:
    return codecs.compress(SNAPPY, data)


def packed(codec: int, data: bytes) -> bytes:
    if codec == GZIP:
        return gzip.compress(data, mtime=0)
    if codec == SNAPPY:
        return bytes(cramjam.snappy.compress_raw(data))
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data))
    return codecs.compress(codec, data)


FRAMING = [
    ("a good batch", batch(), OK),
    ("no bytes", b"", INVALID),
    ("eleven bytes", batch()[:11], INVALID),
    ("sixteen bytes", batch()[:16], INVALID),
    ("sixty bytes", batch()[:60], INVALID),
    ("cut short by one", batch()[:-1], INVALID),
    ("batch_length 13", resized(13), CORRUPT),
    ("batch_length 14 in a longer blob", resized(14), CORRUPT),
    ("batch_length 48 in a longer blob", resized(48), CORRUPT),
    ("batch_length 14 and no more", resized(14, 26), CORRUPT),  # Kafka: -1, it reads past its buffer
    ("batch_length 48 and no more", resized(48, 60), CORRUPT),
    ("batch_length -1", resized(-1), CORRUPT),
    ("batch_length overflows", resized(2**31 - 1), UNKNOWN),
    ("magic 0", batch(magic=0), INVALID),
    ("magic 1", batch(magic=1), INVALID),
    ("magic 3", batch(magic=3), CORRUPT),
    ("magic -1", batch(magic=-1), CORRUPT),
    ("wrong checksum", batch(crc_change=1), CORRUPT),
    ("two batches", batch() + batch(), INVALID),
    ("five bytes behind", batch() + b"hello", OK),
    ("thirteen zero bytes behind", batch() + bytes(13), CORRUPT),
    ("thirteen other bytes behind", batch() + b"\x7f" * 13, OK),
    ("twenty bytes behind, odd magic", batch() + b"\x7f" * 20, CORRUPT),
    ("most of a batch behind", batch() + batch()[:-3], OK),
    ("too large", batch(record(0) + record(1) + record(2, value=bytes(1_100_000))), TOO_LARGE),
    ("too large and a wrong checksum", batch(three(value=bytes(400_000)), crc_change=1), TOO_LARGE),
    ("too large at base offset 1", batch(three(value=bytes(400_000)), base_offset=1), INVALID),
]

HEADERS = [
    ("base offset 7", batch(base_offset=7), INVALID),
    ("base offset -1", batch(base_offset=-1), INVALID),
    ("base offset 7 and a wrong checksum", batch(base_offset=7, crc_change=1), INVALID),
    ("no records", batch(b"", count=0, last_offset_delta=-1), INVALID),
    ("no records, delta 0", batch(b"", count=0, last_offset_delta=0), INVALID),
    ("count 2, delta 2", batch(count=2), INVALID),
    ("count 2 of 3", batch(count=2, last_offset_delta=1), INVALID),
    ("count 4 of 3", batch(count=4, last_offset_delta=3), INVALID),
    ("count 3, delta 5", batch(last_offset_delta=5), INVALID),
    ("count -1", batch(count=-1), INVALID),
    ("count and delta at their limit", batch(count=2**31 - 1, last_offset_delta=2**31 - 2), INVALID),
    ("control", batch(attributes=0x20), INVALID),
    ("a producer id without a sequence", batch(producer_id=5, producer_epoch=0), INVALID),
    ("producer id -2 without a sequence", batch(producer_id=-2), OK),
    ("a sequence without a producer id", batch(base_sequence=3), OK),
    ("codec 5", batch(attributes=5), UNKNOWN),
    ("codec 6", batch(attributes=6), UNKNOWN),
    ("codec 7", batch(attributes=7), UNKNOWN),
    ("codec 5 and a wrong checksum", batch(attributes=5, crc_change=1), CORRUPT),
    ("codec 5 without records", batch(attributes=5, count=0), UNKNOWN),
    ("unknown attribute bits", batch(attributes=0x4180), OK),
    ("delete horizon", batch(attributes=0x40), OK),
]

TIMESTAMPS = [
    ("far ahead", batch(base_timestamp=FAR), BAD_TIMESTAMP, (0, 1, 2)),
    ("the second far ahead", batch(record(0) + record(1, timestamp_delta=FAR - NOW) + record(2)), BAD_TIMESTAMP, (1,)),
    ("none", batch(base_timestamp=-1), OK, ()),
    ("-2", batch(base_timestamp=-2), OK, ()),
    ("0", batch(base_timestamp=0), OK, ()),
    ("the smallest", batch(base_timestamp=-(2**63)), BAD_TIMESTAMP, (0, 1, 2)),
    ("the largest", batch(base_timestamp=2**63 - 1), BAD_TIMESTAMP, (0, 1, 2)),
    ("wrapping round", batch(three(timestamp_delta=-1), base_timestamp=-(2**63)), BAD_TIMESTAMP, (0, 1, 2)),
    ("a log append batch", batch(attributes=8), OK, ()),
    ("a log append batch without a time", batch(attributes=8, base_timestamp=-1), BAD_TIMESTAMP, (0, 1, 2)),
    ("a log append batch far ahead", batch(attributes=8, max_timestamp=FAR), BAD_TIMESTAMP, (0, 1, 2)),
]

HEADER = varint(1) + nullable(b"h")
# The third record, its answer uncompressed and compressed.
LAST_RECORDS = [
    ("good", record(2), OK, OK),
    ("too long", record(2, length_change=1), INVALID, INVALID),  # compressed Kafka: 0, and no consumer can read it
    ("too short", record(2, length_change=-1), INVALID, INVALID),  # likewise
    ("of length 0", b"\x00", INVALID, INVALID),
    ("of length -1", b"\x01", INVALID, INVALID),
    ("of length 2 GiB", varint(2**31 - 1) + record(2)[1:], INVALID, INVALID),  # likewise; written anew: -1
    ("of endless length", b"\x80" * 5, UNKNOWN, INVALID),
    ("of endless length, longer", b"\xff" * 12, UNKNOWN, INVALID),
    ("with a length of spare bits", bytes([record(2)[0] | 0x80]) + b"\x80\x80\x80\x70" + record(2)[1:], OK, OK),
    ("with bytes to spare", record(2, extra=b"zz"), INVALID, INVALID),
    ("followed by a byte", record(2) + b"\x00", INVALID, INVALID),
    ("followed by a record", record(2) + record(3), INVALID, INVALID),
    ("missing", b"", INVALID, INVALID),
    ("with attributes", record(2, attributes=7), OK, OK),
    ("with key length -2", varint(11) + b"\x00\x00\x04" + varint(-2) + nullable(b"value") + b"\x00", OK, OK),
    ("with a key past its end", varint(12) + b"\x00\x00\x04" + varint(100) + b"keyvalue", INVALID, INVALID),
    ("with -1 headers", record(2, headers=varint(-1)), INVALID, INVALID),
    ("with headers it does not have", record(2, headers=varint(50)), INVALID, INVALID),
    ("with a header", record(2, headers=HEADER + nullable(b"1")), OK, OK),
    ("with a null header", record(2, headers=HEADER + nullable(None)), OK, OK),
    ("with a header value of length -5", record(2, headers=HEADER + varint(-5)), OK, OK),
    ("with a nameless header", record(2, headers=varint(1) + varint(-1) + nullable(b"x")), INVALID, INVALID),
    ("with a header that is not text", record(2, headers=varint(1) + nullable(b"\xff") + nullable(b"")), OK, OK),
    ("with a header past its end", record(2, headers=varint(1) + varint(90) + b"ab"), INVALID, INVALID),
    ("with an endless timestamp", varint(20) + b"\x00" + b"\xff" * 19, INVALID, INVALID),
    ("with an endless offset", varint(20) + b"\x00\x00" + b"\xff" * 18, INVALID, INVALID),
    (
        "with a timestamp of ten bytes",
        varint(23) + b"\x00" + b"\x80" * 9 + b"\x7e\x04" + nullable(b"key") + nullable(b"value") + b"\x00",
        OK,
        OK,
    ),
]

DELTAS = [(0, 0, 0), (2, 1, 0), (0, 5, 9), (-1, 0, 1)]

# What follows or replaces a good payload: name, change, and the answers for gzip, raw snappy, xerial, lz4, zstd.
PAYLOADS = [
    ("as it is", lambda c: c, (OK, OK, OK, OK, OK)),
    ("cut by one", lambda c: c[:-1], (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)),
    ("cut by eight", lambda c: c[:-8], (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)),
    ("gone", lambda c: b"", (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, INVALID)),
    ("and a zero byte", lambda c: c + b"\x00", (OK, UNKNOWN, OK, OK, UNKNOWN)),
    ("and twenty", lambda c: c + bytes(20), (OK, UNKNOWN, UNKNOWN, OK, UNKNOWN)),
    ("and words", lambda c: c + b"garbage garbage garbage", (OK, UNKNOWN, UNKNOWN, OK, UNKNOWN)),
    ("twice", lambda c: c + c, (INVALID, UNKNOWN, INVALID, OK, INVALID)),
    ("replaced by words", lambda c: b"no compressed data at all " * 2, (UNKNOWN,) * 5),
    ("not compressed", lambda c: three(), (UNKNOWN,) * 5),
]


def answer(data: bytes, **rules: object) -> batches.Validated:
    return batches.validate(data, NOW + 60_000, **rules)  # type: ignore[arg-type]


def rows(table: list[tuple]) -> list:  # type: ignore[type-arg]
    return [pytest.param(*row[1:], id=row[0]) for row in table]


@pytest.mark.parametrize(("data", "code"), rows(FRAMING + HEADERS))
def test_a_produced_blob_is_answered_as_kafka_answers(data: bytes, code: int) -> None:
    found = answer(data)
    assert found.error == code
    assert (found.batch is None) == (code != OK)
    assert found.record_errors == ()


@pytest.mark.parametrize(("data", "code", "offenders"), rows(TIMESTAMPS))
def test_timestamps_are_judged_as_kafka_judges_them(data: bytes, code: int, offenders: tuple[int, ...]) -> None:
    found = answer(data)
    assert (found.error, found.record_errors) == (code, offenders)
    assert (found.record_message is None) == (offenders == ())


@pytest.mark.parametrize(("last", "plain", "compressed"), rows(LAST_RECORDS))
def test_every_record_is_parsed(last: bytes, plain: int, compressed: int) -> None:
    payload = record(0) + record(1) + last
    assert answer(batch(payload)).error == plain
    for codec in (GZIP, SNAPPY, LZ4, ZSTD):
        assert answer(batch(packed(codec, payload), attributes=codec)).error == compressed
    # Written anew the compressed one is parsed in full on Kafka too.
    assert answer(batch(packed(ZSTD, payload), attributes=ZSTD), target_codec=GZIP).error == compressed


@pytest.mark.parametrize("deltas", DELTAS)
def test_offset_deltas_out_of_order_pass_uncompressed_and_fail_compressed(deltas: tuple[int, ...]) -> None:
    payload = b"".join(record(delta) for delta in deltas)
    found = answer(batch(payload))
    assert (found.error, found.batch) == (OK, batch(payload))
    for codec in (GZIP, SNAPPY, LZ4, ZSTD):
        assert answer(batch(packed(codec, payload), attributes=codec)).error == UNKNOWN
        assert answer(batch(packed(codec, payload), attributes=codec), target_codec=codec).error == UNKNOWN


@pytest.mark.parametrize(("change", "codes"), rows(PAYLOADS))
@pytest.mark.parametrize("fallback", [False, True], ids=["native", "fallback"])
def test_compressed_payloads_are_taken_or_refused_as_kafka_does(change, codes, fallback: bool) -> None:  # type: ignore[no-untyped-def]
    samples = [
        packed(GZIP, three()),
        packed(SNAPPY, three()),
        xerial(three()),
        packed(LZ4, three()),
        packed(ZSTD, three()),
    ]
    for codec, sample, code in zip([GZIP, SNAPPY, SNAPPY, LZ4, ZSTD], samples, codes, strict=True):
        data = batch(change(sample), attributes=codec)
        found = answer(data, disabled_codecs=0xFF if fallback else 0)
        if fallback:
            assert found.needs_fallback
            assert found.batch is None
            found = answer(data, disabled_codecs=0xFF, inflated=worker_result(codec, data))
        assert found.error == code, codec
        assert found.batch == (data if code == OK else None)


def worker_result(codec: int, data: bytes) -> bytes | int:
    try:
        return codecs.decompress_fallback(codec, data[61:], 1 << 27)
    except codecs.CodecError as e:
        return e.code


def test_a_compacted_topic_wants_keys() -> None:
    keyless = record(0, key=None) + record(1) + record(2, key=None)
    for data in (batch(keyless), batch(packed(GZIP, keyless), attributes=GZIP)):
        found = answer(data, keys_required=True)
        assert (found.error, found.record_errors) == (INVALID, (0, 2))
        assert found.record_message is not None
    assert answer(batch(three(key=b"", value=None)), keys_required=True).error == OK
    mixed = batch(record(0, key=None) + record(1, timestamp_delta=FAR - NOW) + record(2))
    found = answer(mixed, keys_required=True)
    assert (found.error, found.record_errors) == (BAD_TIMESTAMP, (0, 1))


def test_at_most_a_hundred_record_errors_are_listed() -> None:
    many = b"".join(record(i, key=None) for i in range(250))
    found = answer(batch(many, count=250, last_offset_delta=249), keys_required=True)
    assert found.record_errors == tuple(range(100))


def test_a_batch_of_exactly_the_largest_size_is_taken() -> None:
    data = batch()
    assert answer(data, max_message_bytes=len(data)).error == OK
    assert answer(data, max_message_bytes=len(data) - 1).error == TOO_LARGE


def test_a_batch_that_outgrows_the_largest_size_when_written_anew_is_too_large() -> None:
    data = batch(packed(GZIP, three(value=bytes(10_000))), attributes=GZIP)
    assert answer(data, max_message_bytes=5_000).error == OK
    assert answer(data, max_message_bytes=5_000, target_codec=0).error == TOO_LARGE


def test_a_bomb_is_too_large() -> None:
    bomb = codecs.compress(ZSTD, bytes(1 << 28))
    assert len(bomb) < 1_000_000
    assert answer(batch(bomb, attributes=ZSTD)).error == TOO_LARGE


def test_only_clients_are_kept_from_control_batches_and_offsets() -> None:
    coordinator, leader = 1, 2
    marker = records.build_batch(
        [records.Record(key=b"\0\0\0\1", value=b"\0" * 6, timestamp=NOW)], base_offset=9, control=True
    )
    assert answer(marker).error == INVALID
    assert answer(marker, origin=coordinator).error == OK
    assert answer(marker, origin=coordinator, target_codec=GZIP).batch == marker
    kept = answer(batch(base_offset=77, max_timestamp=5, count=9), origin=leader, max_message_bytes=10)
    assert (kept.error, kept.max_timestamp, kept.max_timestamp_offset_delta) == (OK, 5, 2)
    assert answer(batch(crc_change=1), origin=leader).error == CORRUPT
