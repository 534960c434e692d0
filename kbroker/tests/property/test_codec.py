"""The codec over every message and version: what is written reads back, and no bytes can do harm."""

import json
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kbroker.tests.golden
from kbroker.protocol import codec, messages, records
from kbroker.protocol.message import Message, Struct

GOLDEN = Path(kbroker.tests.golden.__file__).parent / "vectors.jsonl"
CLASSES: list[type[Message]] = [
    *(getattr(messages, name) for name in messages.HOMES),
    *(getattr(records, name) for name in records.HOMES),
]
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-0x80, 0x7F),
    "int16": st.integers(-0x8000, 0x7FFF),
    "uint16": st.integers(0, 0xFFFF),
    "int32": st.integers(-0x80000000, 0x7FFFFFFF),
    "uint32": st.integers(0, 0xFFFFFFFF),
    "int64": st.integers(-(1 << 63), (1 << 63) - 1),
    "float64": st.floats(allow_nan=False),
    "uuid": st.binary(min_size=16, max_size=16),
    "string": TEXT,
    "classic_string": TEXT,
    "bytes": st.binary(max_size=200),
    "records": st.binary(max_size=200),
}


def values(root: type[Message], struct: type[Struct], version: int) -> st.SearchStrategy[Any]:
    """Objects whose fields of this version are anything, and whose others are at their defaults."""
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for name, shape, first, last, nullable, _tag, _default, _ignorable in struct.FIELDS:
        if not first <= version <= last:
            continue
        base = shape.strip("[]")
        value = values(root, getattr(root, base), version) if base[0].isupper() else SCALARS[base]
        if shape.startswith("["):
            value = st.lists(value, max_size=2)
        if nullable is not None and nullable[0] <= version <= nullable[1]:
            value = st.none() | value
        fields[name] = value
    return st.builds(struct, **fields)


def outcome(cls: type[Message], version: int, data: bytes) -> Message | None:
    """The value, or None if the bytes were refused; anything else that is raised fails the test."""
    value: Message | None
    try:
        value, end = codec.decode(cls, version, data)
    except codec.DecodeError as refused:
        value, end = None, refused.offset
    assert 0 <= end <= len(data)
    return value


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_version_reads_back_what_it_wrote(cls: type[Message]) -> None:
    def round_trip(version: int, value: Message) -> None:
        written = codec.encode(value, version)
        read, end = codec.decode(cls, version, written)
        assert end == len(written)
        assert read == value
        assert codec.encode(read, version) == written

    for version in range(cls.VERSIONS[0], cls.VERSIONS[1] + 1):
        anything = given(st.just(version), values(cls, cls, version))
        settings(max_examples=5, deadline=None, database=None)(anything(round_trip))()


def test_every_truncation_of_a_message_is_refused_or_a_value() -> None:
    for line in GOLDEN.read_text("utf-8").splitlines():
        name, version, _, encoded = json.loads(line)
        cls: type[Message] = getattr(messages if name in messages.HOMES else records, name)
        data = bytes.fromhex(encoded)
        for cut in range(len(data)):
            assert outcome(cls, version, data[:cut]) is None, (name, version, cut)


@settings(max_examples=1500, deadline=None)
@given(st.sampled_from(CLASSES), st.data())
def test_random_bytes_are_refused_or_a_value_that_writes_and_reads(cls: type[Message], data: st.DataObject) -> None:
    version = data.draw(st.integers(*cls.VERSIONS))
    value = outcome(cls, version, data.draw(st.binary(max_size=300)))
    if value is not None:
        written = codec.encode(value, version)
        assert codec.encode(codec.decode(cls, version, written)[0], version) == written


VECTORS = [json.loads(line) for line in GOLDEN.read_text("utf-8").splitlines()]


@settings(max_examples=1500, deadline=None)
@given(st.sampled_from(VECTORS), st.data())
def test_a_changed_message_is_refused_or_a_value(vector: list[Any], data: st.DataObject) -> None:
    name, version, _, encoded = vector
    cls: type[Message] = getattr(messages if name in messages.HOMES else records, name)
    changed = bytearray.fromhex(encoded)
    for _ in range(data.draw(st.integers(1, 3))):
        if changed:
            at = data.draw(st.integers(0, len(changed) - 1))
            changed[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    outcome(cls, version, bytes(changed))


@pytest.mark.parametrize("budget", [4096, 65536])
def test_no_kilobyte_takes_more_memory_than_its_budget(budget: int) -> None:
    """Fillers that read as empty structs, short strings, large counts and null markers."""
    fillers = [bytes((byte,)) * 1024 for byte in (0, 1, 2, 3, 5, 0x20, 0x7F, 0xFF)]
    fillers += [b"\x00\x00\x00\x80" * 256, b"\xff\x07" + bytes(1022), b"\x00\x00\x03\xff" + bytes(1020)]
    tracemalloc.start()
    try:
        for cls in CLASSES:
            for version in range(cls.VERSIONS[0], cls.VERSIONS[1] + 1):
                with suppress(codec.DecodeError):
                    codec.decode(cls, version, b"", 0, budget)  # what is made once and kept is no message's
                for filler in fillers:
                    tracemalloc.reset_peak()
                    before = tracemalloc.get_traced_memory()[0]
                    with suppress(codec.DecodeError):
                        codec.decode(cls, version, filler, 0, budget)
                    peak = tracemalloc.get_traced_memory()[1] - before
                    assert peak <= budget + 8192, (cls.__name__, version, filler[:4], peak)
    finally:
        tracemalloc.stop()


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=64), st.sampled_from(["group", "transaction", "share"]))
def test_random_records_of_logs_are_refused_or_a_value(data: bytes, coordinator: str) -> None:
    with suppress(codec.DecodeError):
        codec.decode_metadata_record(data)
    with suppress(codec.DecodeError):
        key = codec.decode_coordinator_key(coordinator, data)
        if key is not None:
            codec.decode_coordinator_value(coordinator, key, data)
