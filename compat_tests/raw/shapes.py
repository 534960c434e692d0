"""Between dictionaries and the codec's classes. A field that a version lacks is left out: one body serves all."""

from __future__ import annotations

from typing import Any

from kbroker.protocol.message import Message, Struct


def build(root: type[Message], version: int, values: dict[str, Any]) -> Message:
    message = _build(root, root, version, values)
    assert isinstance(message, Message)
    return message


def _build(root: type[Message], cls: type[Struct], version: int, values: dict[str, Any]) -> Struct:
    known = {row[0]: row for row in cls.FIELDS}
    strange = values.keys() - known.keys()
    if strange:
        raise KeyError(f"{cls.__qualname__} has no {sorted(strange)}")
    taken: dict[str, Any] = {}
    for name, value in values.items():
        _, shape, first, last, *_ = known[name]
        if first <= version <= last:
            taken[name] = _value(root, shape, version, value)
    return cls(**taken)


def _value(root: type[Message], shape: str, version: int, value: Any) -> Any:
    base = shape.strip("[]")
    if value is None or not base[0].isupper():
        return value
    nested = getattr(root, base)
    if shape.startswith("["):
        return [_build(root, nested, version, one) for one in value]
    return _build(root, nested, version, value)


def plain(value: Any, version: int) -> Any:
    """JSON values, and of a message only what its version has. Bytes become hexadecimal text."""
    if isinstance(value, Struct):
        return {
            name: plain(getattr(value, name), version)
            for name, _, first, last, *_ in value.FIELDS
            if first <= version <= last
        }
    if isinstance(value, list):
        return [plain(one, version) for one in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    return value
