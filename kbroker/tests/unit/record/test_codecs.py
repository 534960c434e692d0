import gzip
import random
import struct
import zlib
from collections.abc import Callable

import cramjam
import pytest

from kbroker._core.record import codecs, lz4_frame
from kbroker._core.record.codecs import GZIP, LZ4, NONE, SNAPPY, ZSTD, CodecError
from kbroker._core.record.compression import compress_bytes, decompress_bytes

CAP = 1 << 24
COMPRESSED = [GZIP, SNAPPY, LZ4, ZSTD]
NAMES = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}

SAMPLES = {
    "empty": b"",
    "one byte": b"x",
    "text": b"the quick brown fox jumps over the lazy dog; " * 400,
    "zeroes": bytes(300_000),
    "noise": random.Random(1).randbytes(200_001),
    "mixed": b"".join(random.Random(i).randbytes(i % 40) + b"abcd" * (i % 9) for i in range(9_000)),
    "short repeats": b"ab" * 70 + b"abc" * 50 + b"x" * 64 + b"y" * 65 + b"z" * 67 + b"w" * 68,
}

Inflate = Callable[[int, bytes, int], bytes]
BOTH_WAYS = pytest.mark.parametrize(
    "inflate", [decompress_bytes, codecs.decompress_fallback], ids=["native", "fallback"]
)


def judge_inflates(codec: int, data: bytes) -> bytes:
    """An independent opinion: cramjam, given plain frames."""
    if codec == SNAPPY:
        out, at = b"", 16
        while at < len(data):
            (length,) = struct.unpack_from(">i", data, at)
            out += bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + length]))
            at += 4 + length
        return out
    return bytes(getattr(cramjam, NAMES[codec]).decompress(data))


def code_of(inflate: Inflate, codec: int, data: bytes, cap: int = CAP) -> int:
    with pytest.raises(CodecError) as caught:
        inflate(codec, data, cap)
    return caught.value.code


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES.keys())
@pytest.mark.parametrize("codec", COMPRESSED)
def test_what_we_compress_an_independent_codec_reads(codec: int, sample: bytes) -> None:
    assert judge_inflates(codec, compress_bytes(codec, sample)) == sample


@BOTH_WAYS
@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES.keys())
@pytest.mark.parametrize("codec", [NONE, *COMPRESSED])
def test_every_codec_returns_what_it_was_given(codec: int, sample: bytes, inflate: Inflate) -> None:
    assert inflate(codec, codecs.compress(codec, sample), CAP) == sample
    assert inflate(codec, codecs.compress_fallback(codec, sample), CAP) == sample


@pytest.mark.parametrize(("codec", "level"), [(GZIP, 1), (GZIP, 9), (LZ4, 1), (LZ4, 17), (ZSTD, -5), (ZSTD, 19)])
def test_levels_are_taken(codec: int, level: int) -> None:
    data = SAMPLES["mixed"]
    packed = codecs.compress(codec, data, level)
    assert codecs.decompress(codec, packed, CAP) == data
    assert packed != codecs.compress(codec, data)


def test_snappy_gets_as_small_as_the_judge_makes_it() -> None:
    for name in ("text", "zeroes", "mixed"):
        theirs = len(codecs.compress_fallback(SNAPPY, SAMPLES[name]))
        assert len(compress_bytes(SNAPPY, SAMPLES[name])) < 1.15 * theirs


@BOTH_WAYS
@pytest.mark.parametrize("codec", COMPRESSED)
def test_output_stops_at_the_cap(codec: int, inflate: Inflate) -> None:
    packed = codecs.compress(codec, bytes(1_000_000))
    assert len(inflate(codec, packed, 1_000_000)) == 1_000_000
    assert code_of(inflate, codec, packed, 999_999) == codecs.OVER_CAP
    assert code_of(inflate, codec, packed, 10) == codecs.OVER_CAP


@BOTH_WAYS
@pytest.mark.parametrize("codec", COMPRESSED)
def test_truncated_data_is_undecodable(codec: int, inflate: Inflate) -> None:
    packed = codecs.compress(codec, SAMPLES["mixed"])
    for cut in (1, 2, 3, 4, 5, 9, len(packed) // 2, len(packed) - 8, len(packed) - 1):
        assert code_of(inflate, codec, packed[:-cut]) == codecs.UNDECODABLE, cut


@BOTH_WAYS
@pytest.mark.parametrize("codec", COMPRESSED)
def test_garbage_is_undecodable(codec: int, inflate: Inflate) -> None:
    for seed in range(50):
        assert code_of(inflate, codec, random.Random(seed).randbytes(seed + 1)) == codecs.UNDECODABLE


@pytest.mark.parametrize("codec", [-1, 5, 6, 7, 100])
def test_unknown_codecs_are_undecodable(codec: int) -> None:
    for inflate in (decompress_bytes, codecs.decompress_fallback):
        assert code_of(inflate, codec, b"abc") == codecs.UNDECODABLE


def test_a_disabled_engine_is_no_engine() -> None:
    for codec in (GZIP, SNAPPY):
        with pytest.raises(CodecError):
            compress_bytes(codec, b"abc", disabled_codecs=1 << codec)
    for codec in COMPRESSED:
        packed = codecs.compress(codec, b"abc")
        with pytest.raises(CodecError) as caught:
            decompress_bytes(codec, packed, CAP, disabled_codecs=1 << codec)
        assert caught.value.code == codecs.NO_ENGINE
        assert decompress_bytes(codec, packed, CAP, disabled_codecs=0xFF & ~(1 << codec)) == b"abc"


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES.keys())
@pytest.mark.parametrize("codec", [LZ4, ZSTD])
def test_without_an_engine_blocks_are_stored(codec: int, sample: bytes) -> None:
    stored = compress_bytes(codec, sample, disabled_codecs=0xFF)
    assert len(stored) >= len(sample)
    assert judge_inflates(codec, stored) == sample
    assert decompress_bytes(codec, stored, CAP) == sample


def test_engines_are_named() -> None:
    found = codecs.engines()
    assert set(found) == {"gzip", "snappy", "lz4", "zstd"}
    assert found["snappy"] == "built in"


@BOTH_WAYS
def test_gzip_members_follow_one_another_and_other_bytes_end_the_stream(inflate: Inflate) -> None:
    member = gzip.compress(b"abc", mtime=0)
    assert inflate(GZIP, member + member, CAP) == b"abcabc"
    assert inflate(GZIP, member + gzip.compress(b"", mtime=0), CAP) == b"abc"
    assert inflate(GZIP, member + bytes(40), CAP) == b"abc"
    assert inflate(GZIP, member + b"trailing words, more than a member needs", CAP) == b"abc"
    assert inflate(GZIP, member + member[:18], CAP) == b"abc"
    assert inflate(GZIP, member + b"\x1f\x8b\x08\x08" + bytes(6) + b"a name without an end", CAP) == b"abc"
    assert code_of(inflate, GZIP, member + member[:-1]) == codecs.UNDECODABLE
    assert code_of(inflate, GZIP, zlib.compress(b"abc")) == codecs.UNDECODABLE


@BOTH_WAYS
@pytest.mark.parametrize("at", [-8, -1], ids=["checksum", "size"])
def test_a_gzip_trailer_is_verified(at: int, inflate: Inflate) -> None:
    packed = bytearray(gzip.compress(b"abc" * 100))
    packed[at] ^= 1
    assert code_of(inflate, GZIP, bytes(packed)) == codecs.UNDECODABLE


@BOTH_WAYS
def test_snappy_is_read_raw_and_framed(inflate: Inflate) -> None:
    data = SAMPLES["mixed"]
    assert inflate(SNAPPY, bytes(cramjam.snappy.compress_raw(data)), CAP) == data
    framed = codecs.compress(SNAPPY, data)
    assert framed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    assert inflate(SNAPPY, framed + framed, CAP) == data + data
    assert inflate(SNAPPY, framed + b"\x00\x00\x00", CAP) == data
    for rest in (bytes(4), b"\xff\xff\xff\xfd", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x09abc"):
        assert code_of(inflate, SNAPPY, framed + rest) == codecs.UNDECODABLE


@BOTH_WAYS
@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\x05\x00a",  # claims five, gives one
        b"\x00\x00a",  # claims none, gives one
        b"\x04\x01\x01",  # a copy before anything was written
        b"\x05\x00a\x01\x00",  # a copy from offset zero
        b"\x05\x00a\x01\x02",  # a copy from before the start
        b"\x05\x00a\x0e\x01",  # a two-byte offset cut short
        b"\x05\x00a\x0f\x01\x00\x00",  # a four-byte offset cut short
        b"\x05\xf0",  # a literal length cut short
        b"\x05\xfc\xff\xff\xff\xff",  # a literal of four gigabytes
        b"\xff\xff\xff\xff\x0f\x00a",  # a claim of four gigabytes
        b"\xff\xff\xff\xff\xff\x01",  # a claim that does not fit
        b"\x80",
    ],
)
def test_broken_snappy_blocks_are_undecodable(block: bytes, inflate: Inflate) -> None:
    assert code_of(inflate, SNAPPY, block) == codecs.UNDECODABLE


@BOTH_WAYS
def test_snappy_copies_of_every_kind_are_followed(inflate: Inflate) -> None:
    text = b"abcdefghij"
    literal = bytes([(len(text) - 1) << 2]) + text
    assert inflate(SNAPPY, b"\x0e" + literal + b"\x01\x0a", CAP) == text + b"abcd"
    assert inflate(SNAPPY, b"\x14" + literal + b"\x26\x03\x00", CAP) == text + b"hijhijhijh"
    assert inflate(SNAPPY, b"\x4a" + literal + b"\xff\x01\x00\x00\x00", CAP) == text + b"j" * 64
    assert inflate(SNAPPY, b"\x4a" + literal + b"\xff\x09\x00\x00\x00", CAP) == text + (b"bcdefghij" * 8)[:64]


def lz4(data: bytes, flags: int = 0x60, sizes: int = 0x40, *, described: bytes = b"", sums: bytes = b"") -> bytes:
    """A frame of one stored block; the header checksum comes from a frame of the judge's when it can."""
    header = bytes([flags, sizes]) + described
    block = struct.pack("<I", len(data) | 0x80000000) + data
    return b"\x04\x22\x4d\x18" + header + bytes([xxh32(header) >> 8 & 0xFF]) + block + sums + bytes(4)


def xxh32(data: bytes) -> int:
    """XXH32 of up to fifteen bytes, straight from its description."""
    mask = 0xFFFFFFFF
    value = (374761393 + len(data)) & mask
    at = 0
    while at + 4 <= len(data):
        value = (value + int.from_bytes(data[at : at + 4], "little") * 3266489917) & mask
        value = ((value << 17 | value >> 15) & mask) * 668265263 & mask
        at += 4
    for byte in data[at:]:
        value = (value + byte * 374761393) & mask
        value = ((value << 11 | value >> 21) & mask) * 2654435761 & mask
    value = (value ^ value >> 15) * 2246822519 & mask
    value = (value ^ value >> 13) * 3266489917 & mask
    return value ^ value >> 16


@BOTH_WAYS
def test_lz4_frames_that_kafka_reads(inflate: Inflate) -> None:
    assert inflate(LZ4, lz4(b"abc"), CAP) == b"abc"
    assert inflate(LZ4, lz4(b"abc", sizes=0x70), CAP) == b"abc"
    assert inflate(LZ4, lz4(b"abc", 0x68, described=struct.pack("<Q", 999)), CAP) == b"abc"
    assert inflate(LZ4, lz4(b"abc", 0x70, sums=struct.pack("<I", xxh32(b"abc"))), CAP) == b"abc"
    assert inflate(LZ4, lz4(b"abc", 0x64) + b"\x00\x00\x00\x4d", CAP) == b"abc"
    assert inflate(LZ4, lz4(b"abc") + b"whatever follows", CAP) == b"abc"


@BOTH_WAYS
@pytest.mark.parametrize(
    "frame",
    [
        lz4(b"abc", 0x40),  # linked blocks
        lz4(b"abc", 0x20),  # version 0
        lz4(b"abc", 0x62),  # a reserved flag
        lz4(b"abc", 0x61, described=bytes(4)),  # a dictionary
        lz4(b"abc", sizes=0x30),
        lz4(b"abc", sizes=0x41),
        lz4(b"abc", sizes=0xC0),
        lz4(b"abc", 0x70, sums=b"\x01\x02\x03\x04"),  # a wrong block checksum
        lz4(b"abc", 0x64),  # a content checksum that is not there
        lz4(b"abc")[:-4],  # no end mark
        lz4(b"abc")[:6] + b"\x00" + lz4(b"abc")[7:],  # a wrong header checksum
        lz4(bytes(65_537)),  # a block larger than the frame allows
        b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd" + lz4(b"abc"),  # a skippable frame
        b"\x02\x21\x4c\x18" + lz4(b"abc")[7:],  # the legacy frame
        bytes(cramjam.lz4.compress(b"abc" * 100)),  # linked blocks again, by someone else
        b"",
    ],
)
def test_lz4_frames_that_kafka_does_not_read(frame: bytes, inflate: Inflate) -> None:
    assert code_of(inflate, LZ4, frame) == codecs.UNDECODABLE


def test_lz4_blocks_are_told_apart() -> None:
    packed = codecs.compress(LZ4, SAMPLES["noise"] + SAMPLES["text"])
    blocks = lz4_frame.blocks(packed)
    assert blocks is not None
    assert {compressed for _, compressed in blocks} == {True, False}
    assert lz4_frame.frame(blocks) == packed
    assert lz4_frame.blocks(b"") is None


def zstd(data: bytes, descriptor: bytes) -> bytes:
    return b"\x28\xb5\x2f\xfd" + descriptor + (len(data) << 3 | 1).to_bytes(3, "little") + data


def test_zstd_frames_follow_one_another_and_claims_are_not_believed() -> None:
    member = bytes(cramjam.zstd.compress(b"abc"))
    skippable = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"
    assert decompress_bytes(ZSTD, member + skippable + member, CAP) == b"abcabc"
    assert decompress_bytes(ZSTD, b"", CAP) == b""
    assert decompress_bytes(ZSTD, zstd(b"abc", bytes([0, 17 << 3])), CAP) == b"abc"
    for descriptor in (bytes([0, 17 << 3 | 1]), bytes([0, 18 << 3]), b"\xa0" + b"\xff" * 4, b"\xa0\x40\x42\x0f\x00"):
        assert code_of(decompress_bytes, ZSTD, zstd(b"abc", descriptor)) == codecs.UNDECODABLE
    assert code_of(decompress_bytes, ZSTD, member + b"x") == codecs.UNDECODABLE
