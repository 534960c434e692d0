"""Kafka's codecs for Python code: the native engines where the machine has them, cramjam where it does not.

The control side's worker uses `decompress_fallback` for a batch whose codec has no native engine: it must answer as the
native engine would, so framing is read by our own code and cramjam only inflates. cramjam and zlib are imported when
first used: a machine with every library never loads them.
"""

from kbroker._core.record import lz4_frame
from kbroker._core.record.compression import CodecError, compress_bytes, decompress_bytes, engines, native

__all__ = [
    "GZIP",
    "LZ4",
    "NONE",
    "NO_ENGINE",
    "OVER_CAP",
    "SNAPPY",
    "UNDECODABLE",
    "ZSTD",
    "CodecError",
    "compress",
    "compress_fallback",
    "decompress",
    "decompress_fallback",
    "engines",
    "native",
]

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
UNDECODABLE, OVER_CAP, NO_ENGINE = -1, -2, -3

_FIRST_BYTES = 65_536
_LZ4_BLOCK_WRITTEN = 65_536
_LZ4_WORST_RATIO = 255
_SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_HEADER_BYTES = 16
_SNAPPY_BLOCK_WRITTEN = 32_768
_SNAPPY_WORST_RATIO = 22
_GZIP_SMALLEST_REST = 18
_ZSTD_DEFAULT_LEVEL = 3


def compress(codec: int, data: bytes, level: int | None = None) -> bytes:
    """`data` in the shape in which Kafka's broker writes it."""
    return compress_bytes(codec, data, level or 0) if native(codec) else compress_fallback(codec, data, level)


def decompress(codec: int, data: bytes, cap: int) -> bytes:
    """At most `cap` bytes out of `data`; raises CodecError."""
    return decompress_bytes(codec, data, cap) if native(codec) else decompress_fallback(codec, data, cap)


def decompress_fallback(codec: int, data: bytes, cap: int) -> bytes:
    """As `decompress`, without any native engine. Memory grows with the output and stays under `cap`."""
    if codec == NONE:
        if len(data) > cap:
            raise CodecError(OVER_CAP, "the data is larger than allowed")
        return data
    inflate = {GZIP: _gunzip, SNAPPY: _unsnappy, LZ4: _unlz4, ZSTD: _unzstd}.get(codec)
    if inflate is None:
        raise CodecError(UNDECODABLE, f"no codec {codec}")
    return inflate(data, cap)


def compress_fallback(codec: int, data: bytes, level: int | None = None) -> bytes:
    """As `compress`, without any native engine."""
    import cramjam

    if codec == NONE:
        return data
    if codec == GZIP:
        return bytes(cramjam.gzip.compress(data, level))
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data, level or _ZSTD_DEFAULT_LEVEL))
    if codec == SNAPPY:
        blocks = [
            bytes(cramjam.snappy.compress_raw(data[at : at + _SNAPPY_BLOCK_WRITTEN]))
            for at in range(0, len(data), _SNAPPY_BLOCK_WRITTEN)
        ]
        return _SNAPPY_MAGIC + b"\x00\x00\x00\x01" * 2 + b"".join(len(b).to_bytes(4, "big") + b for b in blocks)
    if codec == LZ4:
        pieces = []
        for at in range(0, len(data), _LZ4_BLOCK_WRITTEN):
            plain = data[at : at + _LZ4_BLOCK_WRITTEN]
            packed = bytes(cramjam.lz4.compress_block(plain, store_size=False))
            pieces.append((packed, True) if len(packed) < len(plain) else (plain, False))
        return lz4_frame.frame(pieces)
    raise CodecError(UNDECODABLE, f"no codec {codec}")


def _undecodable(why: object) -> CodecError:
    return CodecError(UNDECODABLE, f"the data cannot be decoded: {why}")


def _over_cap() -> CodecError:
    return CodecError(OVER_CAP, "the data is larger than allowed once decompressed")


def _gunzip(data: bytes, cap: int) -> bytes:
    # The interpreter's own zlib stops at a given length, which cramjam's gzip does not.
    import zlib

    out = bytearray()
    rest = data
    while True:
        inflater = zlib.decompressobj(wbits=31)
        try:
            out += inflater.decompress(rest, cap + 1 - len(out))
        except zlib.error as e:
            raise _undecodable(e) from e
        if len(out) > cap:
            raise _over_cap()
        if not inflater.eof:
            raise _undecodable("the stream is cut short")
        rest = inflater.unused_data
        if not _gzip_member_starts(rest):
            return bytes(out)


def _gzip_member_starts(rest: bytes) -> bool:
    """Whether a whole member header stands here; anything else behind a member ends the stream, as in Java's reader."""
    if len(rest) <= _GZIP_SMALLEST_REST or rest[:3] != b"\x1f\x8b\x08":
        return False
    flags, at = rest[3], 10
    if flags & 4:
        at += 2 + int.from_bytes(rest[at : at + 2], "little")
    for flag in (8, 16):
        if flags & flag:
            found = rest.find(b"\x00", at)
            if found < 0:
                return False
            at = found + 1
    return at + (2 if flags & 2 else 0) <= len(rest)


def _unsnappy(data: bytes, cap: int) -> bytes:
    if data[:8] != _SNAPPY_MAGIC or len(data) < _SNAPPY_HEADER_BYTES:
        return _snappy_block(data, cap)
    out = bytearray()
    at = 0
    while len(data) - at >= 4:
        if data[at : at + 8] == _SNAPPY_MAGIC and len(data) - at >= _SNAPPY_HEADER_BYTES:
            at += _SNAPPY_HEADER_BYTES
            continue
        length = int.from_bytes(data[at : at + 4], "big", signed=True)
        at += 4
        if length <= 0 or length > len(data) - at:
            raise _undecodable("a block is cut short")
        out += _snappy_block(data[at : at + length], cap - len(out))
        at += length
    return bytes(out)


def _snappy_block(block: bytes, cap: int) -> bytes:
    import cramjam

    try:
        claimed = cramjam.snappy.decompress_raw_len(block)
        if not block or claimed > _SNAPPY_WORST_RATIO * len(block):
            raise _undecodable("a block claims more than it can hold")
        if claimed > cap:
            raise _over_cap()
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as e:
        raise _undecodable(e) from e


def _unlz4(data: bytes, cap: int) -> bytes:
    import cramjam

    blocks = lz4_frame.blocks(data)
    if blocks is None:
        raise _undecodable("not a frame that Kafka reads")
    block_max = 1 << (8 + 2 * (data[5] >> 4))
    out = bytearray()
    for block, compressed in blocks:
        if compressed:
            into = bytearray(min(block_max, _LZ4_WORST_RATIO * len(block) + 16))
            try:
                out += into[: cramjam.lz4.decompress_block_into(block, into, output_len=len(into))]
            except cramjam.DecompressionError as e:
                raise _undecodable(e) from e
        else:
            out += block
        if len(out) > cap:
            raise _over_cap()
    return bytes(out)


def _unzstd(data: bytes, cap: int) -> bytes:
    import cramjam

    if not data:
        return b""
    room = min(max(_FIRST_BYTES, 4 * len(data)), cap)
    while True:
        into = bytearray(room)
        try:
            return bytes(into[: cramjam.zstd.decompress_into(data, into)])
        except cramjam.DecompressionError as e:
            # The only sign of a full buffer that cramjam gives.
            if "whole buffer" not in str(e):
                raise _undecodable(e) from e
        if room == cap:
            raise _over_cap()
        room = min(2 * room, cap)
