"""Where each field of an encoded request stands, so that one can be replaced and the rest still parses.

A request is read along the rows of its schema, in plain Python and apart from the codec: what is attacked is not asked
where it is weak. Only well-formed requests are read here.
"""

from __future__ import annotations

from typing import NamedTuple

from kbroker.protocol import apis
from kbroker.protocol.message import Message, Struct

FIXED = {"bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "float64": 8, "uuid": 16}
WIDE = {"bytes", "records"}


class Span(NamedTuple):
    """One field: body[start:end]. `start` of an array is its count; `inner` is where what is counted begins.

    `kind` is the type in the schema, or `array` with its count, `tags`: a tag section, `marker` of a nullable struct.
    """

    name: str
    kind: str
    start: int
    end: int
    inner: int
    counted: int
    flexible: bool
    nullable: bool


class Frame(NamedTuple):
    """A well-formed request without its size prefix, and its fields."""

    key: int
    version: int
    data: bytes
    spans: tuple[Span, ...]


def uvarint(value: int) -> bytes:
    value &= 0xFFFFFFFF
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def take_uvarint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def length(value: int, flexible: bool, width: int) -> bytes:
    """A count or a length as it stands on the wire; -1 is null."""
    return uvarint(value + 1) if flexible else (value & (1 << 8 * width) - 1).to_bytes(width, "big")


def dissect(data: bytes) -> Frame:
    """The fields of a whole request, its header's included."""
    key, version = int.from_bytes(data[:2], "big"), int.from_bytes(data[2:4], "big")
    api = apis.by_key(key)
    flexible = api.is_flexible(version)
    walk = _Walk(data, version, flexible, api.request)
    client_id = walk.sized("client_id", "string", 8, False, True)
    at = walk.tags("header", client_id) if flexible else client_id
    if walk.struct(api.request, at) != len(data):
        raise ValueError(f"{api.name} v{version} is not whole: {data.hex()}")
    return Frame(key, version, data, tuple(walk.spans))


class _Walk:
    def __init__(self, data: bytes, version: int, flexible: bool, root: type[Message]) -> None:
        self.data, self.version, self.flexible, self.root = data, version, flexible, root
        self.spans: list[Span] = []

    def note(
        self, name: str, kind: str, start: int, end: int, *, inner: int = 0, counted: int = 0, null: bool = False
    ) -> int:
        flexible = self.flexible and name != "client_id"
        self.spans.append(Span(name, kind, start, end, inner or end, counted, flexible, null))
        return end

    def struct(self, struct: type[Struct], at: int) -> int:
        for name, shape, first, last, nullable, tag, _default, _ignorable in struct.FIELDS:
            if first <= self.version <= last and tag < 0:
                may_be_null = nullable is not None and nullable[0] <= self.version <= nullable[1]
                at = self.field(name, shape, at, may_be_null)
        return self.tags(struct.__name__, at) if self.flexible else at

    def field(self, name: str, shape: str, at: int, nullable: bool) -> int:
        base = shape.strip("[]")
        if not shape.startswith("["):
            if base[0].isupper() and nullable:
                self.note(name, "marker", at, at + 1, null=True)
                return self.struct(getattr(self.root, base), at + 1) if self.data[at] < 0x80 else at + 1
            return self.value(name, base, at, nullable)
        count, inner = self.length_at(at, self.flexible, 4)
        end = inner
        for _ in range(count):
            end = self.value(name, base, end, False)
        return self.note(name, "array", at, end, inner=inner, counted=max(count, 0), null=nullable)

    def value(self, name: str, base: str, at: int, nullable: bool) -> int:
        if base[0].isupper():
            return self.struct(getattr(self.root, base), at)
        if base in FIXED:
            return self.note(name, base, at, at + FIXED[base])
        return self.sized(name, base, at, self.flexible, nullable)

    def sized(self, name: str, kind: str, at: int, flexible: bool, nullable: bool) -> int:
        size, inner = self.length_at(at, flexible, 4 if kind in WIDE else 2)
        return self.note(name, kind, at, inner + max(size, 0), inner=inner, counted=max(size, 0), null=nullable)

    def length_at(self, at: int, flexible: bool, width: int) -> tuple[int, int]:
        if flexible:
            value, at = take_uvarint(self.data, at)
            return value - 1, at
        return int.from_bytes(self.data[at : at + width], "big", signed=True), at + width

    def tags(self, name: str, at: int) -> int:
        start = at
        count, at = take_uvarint(self.data, at)
        for _ in range(count):
            _tag, at = take_uvarint(self.data, at)
            size, at = take_uvarint(self.data, at)
            at += size
        return self.note(name, "tags", start, at, counted=count)
