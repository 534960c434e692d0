"""The hash that Kafka keeps of a group's topics. The expected values are the reference implementation's."""

from __future__ import annotations

import pytest

from kbroker.coordinator.group.metadata_hash import MetadataHashes
from kbroker.coordinator.group.xxh3 import xxh3_64
from kbroker.tests.unit.coordinator.world import KnownTopics

# The reference's, of bytes 0, 7, 14 … modulo 256: one of each form that the algorithm has.
KNOWN = {
    0: 0x2D06800538D394C2,
    1: 0xC44BDFF4074EECDB,
    4: 0xD3D60C1519014E89,
    9: 0x3688DCAD730D826,
    17: 0xF34C3C9CF5A112D1,
    129: 0x28065C6EC25F5B25,
    241: 0x541B19226F0052E8,
    1025: 0xE1D9CD946277AE26,
    3000: 0x6168BB188259CCCF,
}


@pytest.mark.parametrize(("size", "value"), KNOWN.items())
def test_xxh3_is_the_references(size: int, value: int) -> None:
    assert xxh3_64(bytes(index * 7 & 255 for index in range(size))) == value


def test_it_tells_every_change_of_a_topic_and_nothing_else() -> None:
    topics = KnownTopics()
    topics.make("a", 2)
    topics.make("b", 1)
    hashes = MetadataHashes(topics)
    seen = {hashes.of(["a"]), hashes.of(["b"]), hashes.of(["a", "b"])}
    assert hashes.of(["b", "a", "nowhere"]) == hashes.of(["a", "b"])
    topics.make("a", 3)
    assert hashes.of(["a"]) in seen, "it is kept until it is forgotten"
    hashes.forget("a")
    seen.add(hashes.of(["a"]))
    topics.rack = ["r"]
    hashes.forget("a")
    seen.add(hashes.of(["a"]))
    assert len(seen) == 5
    assert hashes.of([]) == hashes.of(["nowhere"]) == 0
