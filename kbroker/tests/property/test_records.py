"""Batches and codecs under generated and mutated input: equal or refused, never anything else."""

import contextlib
import subprocess
import sys
import textwrap

import cramjam
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker._core.record import batch as batches
from kbroker._core.record import codecs, crc32c, records
from kbroker._core.record.codecs import CodecError
from kbroker._core.record.compression import compress_bytes, decompress_bytes
from kbroker._core.record.records import BrokenRecords, Record

CAP = 1 << 20
NOW = 1_790_000_000_000

contents = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=10), contents), max_size=3).map(tuple)
record = st.builds(Record, st.just(-1), st.integers(0, 2**41), contents, contents, headers)
codec = st.integers(0, 4)
payload = st.one_of(
    st.binary(max_size=2000),
    st.lists(st.sampled_from([b"abc", b"hello world ", b"\x00" * 50, b"x", b"0123456789" * 9]), max_size=200).map(
        b"".join
    ),
)


def outcome(inflate, which: int, data: bytes, cap: int = CAP) -> bytes | None:  # type: ignore[no-untyped-def]
    try:
        found = inflate(which, data, cap)
    except CodecError:
        return None
    assert len(found) <= cap
    return bytes(found)


@given(st.lists(record, min_size=1, max_size=20), codec, st.integers(0, 2**50))
def test_records_come_back_from_any_batch(sent: list[Record], which: int, base: int) -> None:
    data = records.build_batch(sent, codec=which, base_offset=base)
    expected = [r._replace(offset=base + i) for i, r in enumerate(sent)]
    assert records.iterate(data) == expected
    assert records.iterate(data, disabled_codecs=0xFF) == expected
    found = batches.validate(records.build_batch(sent, codec=which), NOW, timestamp_after_max_ms=2**62)
    assert found.error == 0
    assert found.max_timestamp == max(r.timestamp for r in sent)
    assert sent[found.max_timestamp_offset_delta].timestamp == found.max_timestamp


@given(st.lists(record, min_size=1, max_size=10), codec, codec)
def test_another_codec_keeps_every_record(sent: list[Record], source: int, target: int) -> None:
    data = records.build_batch(sent, codec=source)
    found = batches.validate(data, NOW, target_codec=target, timestamp_after_max_ms=2**62)
    assert found.error == 0
    assert found.batch is not None
    assert [r[1:] for r in records.iterate(found.batch)] == [r[1:] for r in sent]


@given(st.lists(record, min_size=1, max_size=5), codec, st.data())
def test_a_cut_or_flipped_batch_is_refused_or_equal(sent: list[Record], which: int, data: st.DataObject) -> None:
    whole = records.build_batch(sent, codec=which)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    assert batches.validate(cut, NOW, timestamp_after_max_ms=2**62).error != 0
    at = data.draw(st.integers(0, len(whole) * 8 - 1))
    flipped = bytearray(whole)
    flipped[at // 8] ^= 1 << at % 8
    found = batches.validate(bytes(flipped), NOW, timestamp_after_max_ms=2**62)
    if found.error == 0:  # only the leader epoch is outside every check
        assert 12 <= at // 8 < 16
    try:
        read = records.iterate(bytes(flipped))
    except BrokenRecords:
        return
    assert [r[1:] for r in read] == [r[1:] for r in sent]


@given(st.lists(record, min_size=1, max_size=5), codec, codec, st.data())
@settings(max_examples=300)
def test_a_forged_batch_never_does_harm(sent: list[Record], which: int, target: int, data: st.DataObject) -> None:
    forged = bytearray(records.build_batch(sent, codec=which))
    for _ in range(data.draw(st.integers(1, 4))):
        forged[data.draw(st.integers(21, len(forged) - 1))] = data.draw(st.integers(0, 255))
    forged[17:21] = crc32c.checksum(bytes(forged[21:])).to_bytes(4, "big")  # the forger knows his trade
    found = batches.validate(bytes(forged), NOW, timestamp_after_max_ms=2**62, target_codec=target)
    if found.error == 0:
        assert found.batch is not None
        assert batches.check(found.batch) == 0
        (header,) = records.batches(found.batch)
        assert len(records.iterate(found.batch)) == header.records_count == header.last_offset_delta + 1


@given(st.binary(max_size=400))
def test_noise_is_refused_by_every_reader(noise: bytes) -> None:
    assert batches.validate(noise, NOW).error != 0
    assert batches.check(noise) == 2
    for partial in (False, True):
        with contextlib.suppress(BrokenRecords):
            records.batches(noise, partial_tail=partial)
        with contextlib.suppress(BrokenRecords):
            assert records.iterate(noise, partial_tail=partial) == []


@given(codec, payload)
def test_codecs_return_what_they_were_given(which: int, data: bytes) -> None:
    packed = compress_bytes(which, data)
    assert decompress_bytes(which, packed, CAP) == data
    assert codecs.decompress_fallback(which, packed, CAP) == data
    assert decompress_bytes(which, codecs.compress_fallback(which, data), CAP) == data


@given(payload)
def test_snappy_agrees_with_the_judge(data: bytes) -> None:
    assert decompress_bytes(2, bytes(cramjam.snappy.compress_raw(data)), CAP) == data


@given(st.integers(1, 4), payload, st.data())
@settings(max_examples=400)
def test_native_and_fallback_agree_on_mutated_data(which: int, plain: bytes, data: st.DataObject) -> None:
    packed = bytearray(compress_bytes(which, plain))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(packed) - 1))
        change = data.draw(st.sampled_from(["flip", "set", "cut", "insert"]))
        if change == "flip":
            packed[at] ^= 1 << data.draw(st.integers(0, 7))
        elif change == "set":
            packed[at] = data.draw(st.integers(0, 255))
        elif change == "cut":
            del packed[at + 1 :]
        else:
            packed[at:at] = data.draw(st.binary(max_size=6))
    native = outcome(decompress_bytes, which, bytes(packed))
    assert native == outcome(codecs.decompress_fallback, which, bytes(packed))


@given(codec, st.binary(max_size=200), st.integers(0, 1000))
def test_noise_never_passes_the_cap(which: int, noise: bytes, cap: int) -> None:
    native = outcome(decompress_bytes, which, noise, cap)
    assert native == outcome(codecs.decompress_fallback, which, noise, cap)


@given(st.integers(1, 4), st.binary(max_size=300), st.integers(0, 400))
def test_the_cap_is_exact(which: int, data: bytes, cap: int) -> None:
    packed = compress_bytes(which, data)
    assert outcome(decompress_bytes, which, packed, cap) == (data if len(data) <= cap else None)


def test_bombs_stay_under_the_cap_in_bounded_memory() -> None:
    """256 MB of zeroes per codec against a cap of 8 MB, in a process that could not hold the output."""
    program = """
        import resource
        from kbroker._core.record import codecs
        from kbroker._core.record.compression import compress_bytes, decompress_bytes
        import cramjam, zlib
        bombs = {which: compress_bytes(which, bytes(1 << 28)) for which in (1, 2, 3, 4)}
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (48 << 20),) * 2)
        for which, bomb in bombs.items():
            for inflate in (decompress_bytes, codecs.decompress_fallback):
                if inflate is not decompress_bytes and which == 3:
                    continue  # splits the frame first: the input's size again
                try:
                    inflate(which, bomb, 8 << 20)
                    raise SystemExit(f"codec {which} passed")
                except codecs.CodecError as e:
                    assert e.code == codecs.OVER_CAP, (which, e.code)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
