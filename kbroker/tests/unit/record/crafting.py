"""Batches written field by field, wrong ones included: nothing here uses the code under test but the checksum."""

import struct

from kbroker._core.record.crc32c import checksum

NOW = 1_790_000_000_000  # in the past, so that a live broker takes it too


def varint(value: int) -> bytes:
    """Zigzag varint of a 32- or 64-bit value."""
    raw = (value << 1) if value >= 0 else ((-value) << 1) - 1
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def nullable(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def record(
    offset_delta: int = 0,
    *,
    timestamp_delta: int = 0,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    headers: bytes = b"\x00",
    attributes: int = 0,
    length_change: int = 0,
    extra: bytes = b"",
) -> bytes:
    """`headers` is the encoded count and headers; `length_change` makes the length a lie."""
    body = bytes([attributes]) + varint(timestamp_delta) + varint(offset_delta)
    body += nullable(key) + nullable(value) + headers + extra
    return varint(len(body) + length_change) + body


def three(**fields: object) -> bytes:
    return b"".join(record(i, **fields) for i in range(3))  # type: ignore[arg-type]


def batch(
    payload: bytes | None = None,
    *,
    base_offset: int = 0,
    batch_length: int | None = None,
    leader_epoch: int = -1,
    magic: int = 2,
    crc_change: int = 0,
    attributes: int = 0,
    last_offset_delta: int = 2,
    base_timestamp: int = NOW,
    max_timestamp: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    count: int = 3,
) -> bytes:
    payload = three() if payload is None else payload
    max_timestamp = base_timestamp if max_timestamp is None else max_timestamp
    covered = struct.pack(
        ">hiqqqhii",
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    covered += payload
    length = 9 + len(covered) if batch_length is None else batch_length
    head = struct.pack(">qiibI", base_offset, length, leader_epoch, magic, checksum(covered) ^ crc_change)
    return head + covered
