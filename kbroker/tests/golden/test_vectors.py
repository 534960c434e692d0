"""vectors.jsonl: a message, a version, its value and the bytes that Apache Kafka 4.3.1's own classes wrote for it."""

import json
from pathlib import Path
from typing import Any

import pytest

from kbroker.protocol import codec, messages, records
from kbroker.protocol.message import Message, Struct

VECTORS = [json.loads(line) for line in (Path(__file__).parent / "vectors.jsonl").read_text("utf-8").splitlines()]


def message_class(name: str) -> type[Message]:
    cls: type[Message] = getattr(messages if name in messages.HOMES else records, name)
    return cls


def build(root: type[Message], struct: type[Struct], value: dict[str, Any]) -> Any:
    """The object that a vector's value describes."""
    shapes = {row[0]: row[1].strip("[]") for row in struct.FIELDS}

    def convert(name: str, part: Any) -> Any:
        if isinstance(part, list):
            return [convert(name, element) for element in part]
        if isinstance(part, dict) and part.keys() == {"hex"}:
            return bytes.fromhex(part["hex"])
        if isinstance(part, dict):
            return build(root, getattr(root, shapes[name]), part)
        return float(part) if shapes[name] == "float64" else part

    return struct(**{name: convert(name, part) for name, part in value.items()})


@pytest.mark.parametrize(("name", "version", "value", "encoded"), VECTORS, ids=[f"{v[0]}-{v[1]}" for v in VECTORS])
def test_reads_to_the_value_and_writes_the_same_bytes(name: str, version: int, value: Any, encoded: str) -> None:
    cls = message_class(name)
    data = bytes.fromhex(encoded)
    expected = build(cls, cls, value)
    read, end = codec.decode(cls, version, data)
    assert end == len(data)
    assert read == expected
    assert codec.encode(read, version) == data
    assert codec.encode(expected, version) == data


def test_every_message_and_version_has_a_vector() -> None:
    names = [*messages.HOMES, *records.HOMES]
    every = {
        (name, v) for name in names for v in range(message_class(name).VERSIONS[0], message_class(name).VERSIONS[1] + 1)
    }
    assert every == {(name, version) for name, version, _, _ in VECTORS}
