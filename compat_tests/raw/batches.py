"""Record batches written by hand, right or wrong in any chosen field. Shares nothing with the broker's own code."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import cramjam
import lz4.frame

FIRST_MS = 1_700_000_000_000
_CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ _TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


def varint(value: int) -> bytes:
    """Zigzag, as records have it."""
    left = (value << 1) ^ (value >> 63)
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


@dataclass(frozen=True)
class Rec:
    key: bytes | None = b"k"
    value: bytes | None = b"v"
    timestamp_delta: int = 0
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset_delta: int | None = None  # None: its place in the batch
    attributes: int = 0

    def encode(self, place: int) -> bytes:
        offset_delta = place if self.offset_delta is None else self.offset_delta
        body = struct.pack(">b", self.attributes) + varint(self.timestamp_delta) + varint(offset_delta)
        body += _sized(self.key) + _sized(self.value) + varint(len(self.headers))
        for name, value in self.headers:
            body += _sized(name.encode()) + _sized(value)
        return varint(len(body)) + body


@dataclass(frozen=True)
class Batch:
    """Every header field can be set; None means the right value."""

    records: Sequence[Rec] = (Rec(),)
    codec: str = "none"
    base_offset: int = 0
    length: int | None = None
    leader_epoch: int = -1
    magic: int = 2
    crc: int | None = None
    attributes: int | None = None
    last_offset_delta: int | None = None
    base_timestamp: int = FIRST_MS
    max_timestamp: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    count: int | None = None
    payload: bytes | None = None  # instead of the records, as they stand on the wire

    def with_(self, **changes: Any) -> Batch:
        return replace(self, **changes)

    def encode(self) -> bytes:
        body = b"".join(record.encode(place) for place, record in enumerate(self.records))
        payload = self.payload if self.payload is not None else compress(self.codec, body)
        attributes = _CODECS[self.codec] if self.attributes is None else self.attributes
        latest = max((record.timestamp_delta for record in self.records), default=0)
        behind_crc = struct.pack(
            ">hiqqqhii",
            attributes,
            len(self.records) - 1 if self.last_offset_delta is None else self.last_offset_delta,
            self.base_timestamp,
            self.base_timestamp + latest if self.max_timestamp is None else self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            len(self.records) if self.count is None else self.count,
        )
        behind_crc += payload
        crc = crc32c(behind_crc) if self.crc is None else self.crc
        head = struct.pack(">ibI", self.leader_epoch, self.magic, crc)
        length = len(head) + len(behind_crc) if self.length is None else self.length
        return struct.pack(">qi", self.base_offset, length) + head + behind_crc


def compress(codec: str, body: bytes) -> bytes:
    if codec == "gzip":
        return gzip.compress(body, mtime=0)
    if codec == "snappy":
        return xerial(body)
    if codec == "lz4":
        return bytes(lz4.frame.compress(body, block_linked=False))  # Kafka's readers want independent blocks
    if codec == "zstd":
        return bytes(cramjam.zstd.compress(body))
    return body


def raw_snappy(body: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(body))


def xerial(body: bytes) -> bytes:
    """Snappy in blocks of 32 KiB, as the Java library frames it."""
    out = bytearray(_XERIAL)
    for at in range(0, max(len(body), 1), 32768):
        block = raw_snappy(body[at : at + 32768])
        out += struct.pack(">i", len(block)) + block
    return bytes(out)


def legacy_message(magic: int, key: bytes | None = b"k", value: bytes | None = b"v", offset: int = 0) -> bytes:
    """One message of format 0 or 1."""
    body = struct.pack(">bb", magic, 0)
    if magic == 1:
        body += struct.pack(">q", FIRST_MS)
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    framed = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset, len(framed)) + framed
