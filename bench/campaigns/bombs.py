"""Record batches that inflate to far more than they weigh, or that say so, one list for each codec.

Every payload stands in a batch whose header and checksum are right: the decompressor is what is attacked.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from bench.campaigns.anatomy import uvarint
from kbroker._core.record import crc32c
from kbroker._core.record.compression import compress_bytes

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
NOW = 1_790_000_000_000
HUGE = 1 << 28  # bytes once inflated: twice what one batch may become
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


class Bomb(NamedTuple):
    name: str
    batch: bytes
    harmless: bool = False  # Kafka's reader stops before what is hostile, and so may ours


def record(value: bytes, offset_delta: int = 0) -> bytes:
    """One record with a value and nothing else."""
    body = b"\0\0" + zigzag(offset_delta) + b"\1" + zigzag(len(value)) + value + b"\0"
    return zigzag(len(body)) + body


def zigzag(value: int) -> bytes:
    return uvarint(value << 1 if value >= 0 else (-value << 1) - 1)


def wrapped(which: int, payload: bytes, count: int = 1, crc_change: int = 0) -> bytes:
    """The payload as the records of a batch whose header and checksum are right."""
    covered = struct.pack(">hiqqqhii", which, count - 1, NOW, NOW, -1, -1, -1, count) + payload
    head = struct.pack(">qiibI", 0, 9 + len(covered), -1, 2, crc32c.checksum(covered) ^ crc_change)
    return head + covered


def gzip_bombs() -> list[Bomb]:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeroes = b"".join(packer.compress(bytes(1 << 20)) for _ in range(HUGE >> 20)) + packer.flush()
    small = compress_bytes(GZIP, record(b"v"))
    return [
        Bomb("gzip: 256 MiB of zeroes", wrapped(GZIP, zeroes)),
        Bomb("gzip: a gzip inside a gzip", wrapped(GZIP, compress_bytes(GZIP, zeroes))),
        Bomb("gzip: 20,000 members", wrapped(GZIP, small * 20_000, 20_000)),
        Bomb("gzip: its size is a lie", wrapped(GZIP, small[:-4] + b"\xff\xff\xff\xff")),
        Bomb("gzip: cut short", wrapped(GZIP, small[:-9])),
        Bomb("gzip: a header without end", wrapped(GZIP, b"\x1f\x8b\x08\x08" + b"x" * 65_536)),
        Bomb("gzip: nothing", wrapped(GZIP, b"")),
    ]


def snappy_bombs() -> list[Bomb]:
    small = compress_bytes(SNAPPY, record(b"v"))[16:]  # xerial's header goes; its first block stays
    # A preamble of n bytes, one literal zero, then copies of 64 bytes each from one byte back: 3 bytes for 64.
    copies = HUGE // 64
    zeroes = uvarint(1 + 64 * copies) + b"\0\0" + b"\xfe\1\0" * copies
    return [
        Bomb("snappy: 256 MiB of zeroes", wrapped(SNAPPY, zeroes)),
        Bomb("snappy: claims 4 GiB", wrapped(SNAPPY, uvarint(0xFFFFFFFF) + b"\0\0")),
        Bomb("snappy: claims 127 MiB", wrapped(SNAPPY, uvarint(127 << 20) + b"\0\0")),
        Bomb("snappy: copies from before its beginning", wrapped(SNAPPY, uvarint(64) + b"\xfe\xff\xff")),
        Bomb("snappy: cut short", wrapped(SNAPPY, uvarint(1_000) + b"\xf4\xe7\x03")),
        Bomb("xerial: blocks of 128 MiB without end", wrapped(SNAPPY, XERIAL + sized(zeroes) * 2)),
        Bomb("xerial: a block of 2 GiB", wrapped(SNAPPY, XERIAL + b"\x7f\xff\xff\xff" + small[4:])),
        Bomb("xerial: a negative block", wrapped(SNAPPY, XERIAL + b"\xff\xff\xff\xff" + small[4:])),
        Bomb("xerial: 100,000 headers", wrapped(SNAPPY, XERIAL * 100_000)),
        Bomb("xerial: the header alone", wrapped(SNAPPY, XERIAL)),
    ]


def lz4_bombs() -> list[Bomb]:
    zeroes = compress_bytes(LZ4, bytes(HUGE))
    small = compress_bytes(LZ4, record(b"v"))
    endless = small[:7] + (b"\xff\xff\0\0" + b"\x1f\0\1\0" + b"\xff" * (0xFFFF - 4)) * 40
    return [
        Bomb("lz4: 256 MiB of zeroes", wrapped(LZ4, zeroes)),
        Bomb("lz4: 5,000 frames", wrapped(LZ4, small * 5_000), harmless=True),
        Bomb("lz4: blocks that run past their end", wrapped(LZ4, endless)),
        Bomb("lz4: a block of 2 GiB", wrapped(LZ4, small[:7] + b"\xff\xff\xff\x7f" + small[11:])),
        Bomb("lz4: cut short", wrapped(LZ4, small[: len(small) // 2])),
        Bomb("lz4: a frame to be skipped", wrapped(LZ4, b"\x50\x2a\x4d\x18\xff\xff\xff\xff" + small)),
        Bomb("lz4: nothing", wrapped(LZ4, b"")),
    ]


def zstd_bombs() -> list[Bomb]:
    zeroes = compress_bytes(ZSTD, bytes(HUGE))
    small = compress_bytes(ZSTD, record(b"v"))
    magic = b"\x28\xb5\x2f\xfd"
    repeat = 3 | 1 << 20 << 3  # one byte, repeated: an RLE block that claims a mebibyte
    return [
        Bomb("zstd: 256 MiB of zeroes", wrapped(ZSTD, zeroes)),
        Bomb("zstd: claims 2^62 bytes", wrapped(ZSTD, magic + b"\xe0" + b"\xff" * 7 + b"\x3f" + small[6:])),
        Bomb(
            "zstd: claims 100 MiB, holds nothing",
            wrapped(ZSTD, magic + b"\xa0" + struct.pack("<I", 100 << 20) + b"\1\0\0"),
        ),
        Bomb("zstd: a window of 2 TiB", wrapped(ZSTD, magic + b"\0\xf8" + b"\1\0\0")),
        Bomb(
            "zstd: a repeated byte, too often",
            wrapped(ZSTD, magic + b"\0\x58" + repeat.to_bytes(4, "little")[:3] + b"\0"),
        ),
        Bomb("zstd: 5,000 frames", wrapped(ZSTD, small * 5_000)),
        Bomb("zstd: a frame to be skipped", wrapped(ZSTD, b"\x50\x2a\x4d\x18\xff\xff\xff\xff" + small)),
        Bomb("zstd: cut short", wrapped(ZSTD, small[:-3])),
        Bomb("zstd: nothing", wrapped(ZSTD, b"")),
    ]


def sized(block: bytes) -> bytes:
    return struct.pack(">i", len(block)) + block


def nested_message_sets(depth: int = 1_000) -> bytes:
    """Kafka's old format, in which a compressed message holds messages, which hold messages: a gzip in a gzip in …"""
    message = b""
    for _ in range(depth):
        packer = zlib.compressobj(1, zlib.DEFLATED, 31)
        value = packer.compress(message) + packer.flush() if message else b"v"
        body = b"\1" + (b"\1" if message else b"\0") + struct.pack(">qi", NOW, -1) + sized(value)
        message = struct.pack(">qi", 0, 4 + len(body)) + struct.pack(">I", zlib.crc32(body)) + body
    return message


def every() -> list[Bomb]:
    return [*gzip_bombs(), *snappy_bombs(), *lz4_bombs(), *zstd_bombs()]
