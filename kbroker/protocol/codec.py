"""The codec's door: bytes to messages and back.

A frame is what stands behind its four size bytes: a header, then a body. Reading raises DecodeError and nothing else;
what is left behind a body is the caller's to judge (Kafka ignores it). Writing raises EncodeError when a value does not
fit its field, or when a version lacks a field that is neither ignorable nor at its default.
"""

from __future__ import annotations

from kbroker._core.wire import codec as walker
from kbroker._core.wire.codec import DecodeError, EncodeError
from kbroker.protocol.message import Message
from kbroker.protocol.messages.header import RequestHeader, ResponseHeader
from kbroker.protocol.plan import reading, writing

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from typing import TypeVar

    from _typeshed import ReadableBuffer

    M = TypeVar("M", bound=Message)

__all__ = [
    "DecodeError",
    "EncodeError",
    "decode",
    "decode_coordinator_key",
    "decode_coordinator_value",
    "decode_metadata_record",
    "decode_request_header",
    "decode_response",
    "encode",
    "encode_coordinator_key",
    "encode_coordinator_value",
    "encode_metadata_record",
    "encode_request",
    "encode_response",
    "prepare_response",
    "read_request_header",
    "request_header_version",
    "response_header_version",
]

API_VERSIONS_KEY = 18
METADATA_FRAME_VERSION = 1


def decode(
    cls: type[M], version: int, data: ReadableBuffer, offset: int = 0, budget: int | None = None
) -> tuple[M, int]:
    """The message at `offset`, and the offset behind it. `budget` bounds the bytes of memory its objects may take."""
    value, end = walker.decode(reading(cls, version), data, offset, budget)
    assert isinstance(value, cls)
    return value, end


def encode(message: Message, version: int, prefix: bytes = b"") -> bytes:
    """`prefix` followed by the message's body."""
    return walker.encode(writing(type(message), version), message, prefix)


def request_header_version(flexible: bool) -> int:
    return 2 if flexible else 1


def response_header_version(api_key: int, flexible: bool) -> int:
    """ApiVersions keeps header 0: its client does not yet know what the broker speaks (KIP-511)."""
    return 1 if flexible and api_key != API_VERSIONS_KEY else 0


def decode_request_header(frame: bytes | memoryview) -> tuple[RequestHeader, int]:
    """The header of a request, and where its body starts.

    As in Kafka a version that we do not know has the header of the newest one, and a key that we do not know has
    header 1: enough to refuse it.
    """
    from kbroker.protocol import apis

    api = apis.find(int.from_bytes(frame[:2], "big", signed=True))
    flexible = api is not None and api.is_flexible(int.from_bytes(frame[2:4], "big", signed=True))
    return decode(RequestHeader, request_header_version(flexible), frame)


def read_request_header(frame: bytes, flexible: bool) -> tuple[int, str | None, int]:
    """Correlation id, client id, and where the body starts, of a request whose key and version are known."""
    size = int.from_bytes(frame[8:10], "big", signed=True)
    end = 10 + max(size, 0)
    client_id = frame[10:end]
    if size < -1 or not client_id.isascii() or frame[end : end + flexible] != b"\0"[:flexible] or len(frame) < end:
        header, end = decode(RequestHeader, request_header_version(flexible), frame)
        return header.correlation_id, header.client_id, end
    correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
    return correlation_id, client_id.decode() if size >= 0 else None, end + flexible


def encode_request(request: Message, version: int, correlation_id: int, client_id: str | None = None) -> bytes:
    """A request's frame."""
    header = RequestHeader(
        request_api_key=request.KEY, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    flexible = version >= request.FLEXIBLE_FROM
    return encode(request, version, encode(header, request_header_version(flexible)))


def encode_response(response: Message, version: int, correlation_id: int) -> bytes:
    """A response's frame."""
    header = correlation_id.to_bytes(4, "big", signed=True)
    if response_header_version(response.KEY, version >= response.FLEXIBLE_FROM):
        header += b"\0"  # no tagged fields
    return encode(response, version, header)


def prepare_response(cls: type[Message], version: int) -> None:
    """Makes what encoding one for the first time would make, and is kept."""
    writing(cls, version)


def decode_response(cls: type[M], version: int, frame: ReadableBuffer, budget: int | None = None) -> tuple[int, M]:
    """A response's correlation id and body. From a peer that is trusted, a larger `budget` reads a large cluster."""
    header, at = decode(ResponseHeader, response_header_version(cls.KEY, version >= cls.FLEXIBLE_FROM), frame)
    body, _ = decode(cls, version, frame, at, budget)
    return header.correlation_id, body


def encode_metadata_record(record: Message, version: int | None = None) -> bytes:
    """The value of a record in __cluster_metadata; the newest version unless another is asked for."""
    chosen = record.VERSIONS[1] if version is None else version
    return encode(record, chosen, bytes((METADATA_FRAME_VERSION, *_uvarint(record.KEY), *_uvarint(chosen))))


def decode_metadata_record(value: bytes) -> tuple[Message, int]:
    """The record and its version."""
    from kbroker.protocol import records

    frame, at = _take_uvarint(value, 0)
    if frame != METADATA_FRAME_VERSION:
        raise DecodeError(f"has frame version {frame}", "metadata record", 0)
    key, at = _take_uvarint(value, at)
    version, at = _take_uvarint(value, at)
    if key not in records.METADATA_RECORDS:
        raise DecodeError(f"has the unknown key {key}", "metadata record", at)
    cls: type[Message] = getattr(records, records.METADATA_RECORDS[key])
    return decode(cls, version, value, at)[0], version


def encode_coordinator_key(key: Message) -> bytes:
    """int16 number of the key, then its fields (which have one version)."""
    return encode(key, 0, key.KEY.to_bytes(2, "big"))


def encode_coordinator_value(value: Message, version: int | None = None) -> bytes:
    """int16 version, then the fields; the newest version unless another is asked for."""
    chosen = value.VERSIONS[1] if version is None else version
    return encode(value, chosen, chosen.to_bytes(2, "big"))


def decode_coordinator_key(coordinator: str, key: bytes) -> Message | None:
    """The key of a record of the `group`, `transaction` or `share` coordinator; None for a number from the future."""
    from kbroker.protocol import records

    names = records.COORDINATOR_RECORDS[coordinator].get(_take_int16(key))
    if names is None:
        return None
    cls: type[Message] = getattr(records, names[0])
    return decode(cls, 0, key, 2)[0]


def decode_coordinator_value(coordinator: str, key: Message, value: bytes | None) -> Message | None:
    """The value that stands beside `key`; None, a tombstone, stays None."""
    from kbroker.protocol import records

    if value is None:
        return None
    cls: type[Message] = getattr(records, records.COORDINATOR_RECORDS[coordinator][key.KEY][1])
    return decode(cls, _take_int16(value), value, 2)[0]


def _take_int16(data: bytes) -> int:
    if len(data) < 2:
        raise DecodeError("runs past the end", "coordinator record", 0)
    return int.from_bytes(data[:2], "big", signed=True)


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _take_uvarint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise DecodeError("has a broken varint", "metadata record", at)
