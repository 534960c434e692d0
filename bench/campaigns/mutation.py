"""From a well-formed request to a hostile one.

Three hands: `one_field` replaces whole fields by hostile values, so that most frames still parse and reach the
handlers; `bytes_of` changes bytes anywhere and cuts frames short, for the parsers; `batch` changes one field of a
record batch and puts the checksum right again, for what stands behind the checksum.
"""

from __future__ import annotations

import random
import struct

from bench.campaigns.anatomy import FIXED, WIDE, Frame, Span, length, uvarint
from kbroker._core.record import crc32c
from kbroker._core.record.compression import compress_bytes

INTS = (0, 1, -1, 2, -2, 3, 7, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF, -0x80000000, 100_000_000)
LONGS = (*INTS, 1 << 31, 1 << 32, (1 << 63) - 1, -(1 << 63), 1_790_000_000_000)
COUNTS = (0, 1, 2, 100, 1_000, 65_535, 1_000_000, 0x7FFFFFFE, 0x7FFFFFFF, -2, -0x80000000)
STRINGS = (
    b"",
    b"fuzzed",
    b"shelf",
    b"__cluster_metadata",
    b"__consumer_offsets",
    b".",
    b"..",
    b"a" * 249,
    b"a" * 250,
    b"x" * 32_767,
    b"with space",
    b"nul\0nul",
    b"../../etc",
    b"%s%n%p{0}",
    b"\xff\xfe",
    b"\xc3\x28",
    b"\xed\xa0\x80",
    "名前".encode(),
)
# A wait of minutes or a partition count of thousands is the broker's to grant: not an attack, only slow.
SPARED = {
    "max_wait_ms": (0, 1, 2, -1, -0x80000000, 20),
    "timeout_ms": (0, 1, -1, -0x80000000, 1_000),
    "num_partitions": (0, 1, 2, -1, -2, 0x7FFFFFFF, -0x80000000, 10_001),
    "count": (0, 1, 2, -1, 3, 0x7FFFFFFF, -0x80000000, 10_004),
    "min_bytes": (0, 1, -1, 2, -0x80000000),
}
BATCH_FIELDS = {
    "base_offset": (0, 8),
    "batch_length": (8, 4),
    "leader_epoch": (12, 4),
    "magic": (16, 1),
    "attributes": (21, 2),
    "last_offset_delta": (23, 4),
    "base_timestamp": (27, 8),
    "max_timestamp": (35, 8),
    "producer_id": (43, 8),
    "producer_epoch": (51, 2),
    "base_sequence": (53, 4),
    "records_count": (57, 4),
}
BATCH_HEADER_BYTES = 61


def number(chance: random.Random, width: int, name: str = "") -> bytes:
    if name in SPARED:
        value = chance.choice(SPARED[name])
    elif chance.random() < 0.3:
        value = chance.getrandbits(8 * width)
    else:
        value = chance.choice(LONGS if width == 8 else INTS)
    return (value & (1 << 8 * width) - 1).to_bytes(width, "big")


def sized(chance: random.Random, content: bytes | None, flexible: bool, width: int) -> bytes:
    """The content behind its length; now and then the length is a lie."""
    if content is None:
        return length(-1, flexible, width)
    said = len(content) if chance.random() < 0.95 else chance.choice(COUNTS)
    return length(said, flexible, width) + content


def tags(chance: random.Random) -> bytes:
    """A section of tagged fields that nobody knows, or that is not what it says."""
    kind = chance.randrange(6)
    if kind == 0:
        return uvarint(chance.choice(COUNTS))
    if kind == 1:
        return b"\1" + uvarint(chance.choice((0, 1, 99))) + uvarint(chance.choice(COUNTS))
    count = chance.choice((1, 2, 5, 1024, 1025)) if kind == 2 else chance.choice((1, 2, 3))
    out = uvarint(count)
    for tag in range(count):
        content = chance.randbytes(chance.randrange(4))
        name = chance.getrandbits(31) if kind == 3 else tag % (count if kind < 5 else 2) + (0 if kind == 4 else 1_000)
        out += uvarint(name) + uvarint(len(content)) + content
    return out


def array(chance: random.Random, span: Span, data: bytes) -> bytes:
    elements = data[span.inner : span.end]
    kind = chance.randrange(5)
    if kind == 0:
        return length(chance.choice((0, -1)), span.flexible, 4)
    if kind == 1:
        return length(span.counted + chance.choice((-1, 1)), span.flexible, 4) + elements
    if kind == 2:
        return length(chance.choice(COUNTS), span.flexible, 4) + elements
    times = chance.choice((2, 3, 50)) if len(elements) < 1_000 else 2
    return length(span.counted * times, span.flexible, 4) + elements * times


def field(chance: random.Random, span: Span, data: bytes, batches: list[bytes], ids: tuple[bytes, ...]) -> bytes:
    """A hostile value in the place of one field."""
    if span.kind == "bool":
        return bytes((chance.choice((0, 1, 2, 0x80, 0xFF)),))
    if span.kind == "marker":
        return bytes((chance.choice((0, 1, 0x7F, 0x80, 0xFF)),))
    if span.kind == "uuid":
        return chance.choice((bytes(16), b"\xff" * 16, bytes(15) + b"\1", chance.randbytes(16), *ids))
    if span.kind in FIXED:
        return number(chance, FIXED[span.kind], span.name)
    if span.kind == "tags":
        return tags(chance)
    if span.kind == "array":
        return array(chance, span, data)
    if span.kind in WIDE:
        content = chance.choice((None, b"", chance.randbytes(30), *(batch(chance, batches) for _ in range(2))))
        return sized(chance, content, span.flexible, 4)
    text = None if chance.random() < 0.15 else chance.choice(STRINGS)
    return sized(chance, text, span.flexible, 2)


def one_field(chance: random.Random, frame: Frame, batches: list[bytes], ids: tuple[bytes, ...]) -> bytes:
    """One field hostile, seldom more, the rest as it was. Records, where there are any, are hostile half the time."""
    data = frame.data
    spans = [span for span in frame.spans if span.kind == "records"] if frame.key == 0 else []
    if not spans or chance.random() < 0.5:
        spans = [chance.choice(frame.spans) for _ in range(chance.choice((1, 1, 1, 2)))]
    if len(spans) > 1:  # from the back, so that places stay right; one that holds another would undo it
        spans = sorted(set(spans), key=lambda span: span.start, reverse=True)
        spans = [span for i, span in enumerate(spans) if i == 0 or span.end <= spans[i - 1].start]
    for span in spans:
        data = data[: span.start] + field(chance, span, data, batches, ids) + data[span.end :]
    return data


def batch(chance: random.Random, batches: list[bytes]) -> bytes:
    """A record batch with one thing wrong, or none; its checksum is right unless that is what is wrong."""
    body = bytearray(chance.choice(batches))
    kind = chance.randrange(10)
    if kind <= 2:
        at, width = BATCH_FIELDS[chance.choice(tuple(BATCH_FIELDS))]
        body[at : at + width] = number(chance, width)
    elif kind == 3 and len(body) > BATCH_HEADER_BYTES:
        body[BATCH_HEADER_BYTES:] = bytes_of(chance, bytes(body[BATCH_HEADER_BYTES:]), keep=0)
    elif kind in (4, 5) and not body[22] & 7:
        # Broken records inside a sound stream: what the inflater cannot refuse, the walk over the records must.
        which = chance.randrange(5)
        records = bytes_of(chance, bytes(body[BATCH_HEADER_BYTES:]), keep=0)
        body[21:23] = struct.pack(">h", which)
        body[BATCH_HEADER_BYTES:] = compress_bytes(which, records)
        body[8:12] = struct.pack(">i", len(body) - 12)
    elif kind == 6:
        del body[chance.randrange(len(body)) :]
    elif kind == 7:
        return bytes(body) + chance.choice(batches)
    elif kind == 8:
        body[17:21] = chance.randbytes(4)
        return bytes(body)
    if len(body) >= 21:
        body[17:21] = struct.pack(">I", crc32c.checksum(bytes(body[21:])))
    return bytes(body)


def bytes_of(chance: random.Random, frame: bytes, keep: int = 4) -> bytes:
    """Bytes flipped, set, cut, inserted. The first `keep`, which choose API and version, mostly stay."""
    body = bytearray(frame)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        if len(body) <= keep:
            break
        at = chance.randrange(0 if chance.random() < 0.05 else keep, len(body))
        match chance.randrange(7):
            case 0:
                body[at] ^= 1 << chance.randrange(8)
            case 1:
                body[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))
            case 2:
                del body[at:]
            case 3:
                body[at:at] = chance.randbytes(chance.randrange(1, 64))
            case 4:
                body[at : at + 4] = number(chance, 4)
            case 5:
                body[at : at + 5] = b"\xff\xff\xff\xff" + chance.choice((b"\x07", b"\x0f", b"\x7f", b"\xff"))
            case _:
                del body[at : at + chance.randrange(1, 32)]
    return bytes(body)
