from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.tests.unit.core.api.given import (
    Node,
    ask,
    batch,
    measures_memory,
    of,
    only,
    produce_request,
    resident_bytes,
    values_of,
)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(tmp_path)
    node.topic("t", partitions=2)
    return node


@pytest.mark.parametrize(("version", "error"), [(6, 76), (7, 0)])
def test_zstd_needs_version_7(node: Node, version: int, error: int) -> None:
    (topic,) = node.produce([(0, batch(b"a" * 100, codec=4))], version).responses
    assert topic.partition_responses[0].error_code == error


def test_a_codec_without_an_engine_leaves_with_nothing_appended(tmp_path: Path) -> None:
    node = Node(tmp_path, force_fallback_codecs=1 << 1)
    one, two = node.topic("t", partitions=2)
    outcome, reply, _ = node.send(produce_request([(0, batch()), (1, batch(b"a" * 100, codec=1))]), 9)
    assert (outcome, reply) == ("POST", None)
    assert (one.high_watermark, two.high_watermark) == (0, 0)


def test_the_control_side_can_append_what_it_inflated(node: Node) -> None:
    partition = node.topics["t"][0]
    plain = batch(b"a", b"b")
    result = partition.produce(batch(b"a", b"b", codec=1), -1, plain[61:])
    assert (result.error, result.base_offset, result.log_start_offset) == (0, 0, 0)
    assert partition.high_watermark == 2
    assert values_of(only(node.fetch([of("t", ask())])).records) == [b"a", b"b"]


@pytest.mark.parametrize(("code", "error"), [(-1, -1), (-2, 10)])
def test_what_the_control_side_could_not_inflate_is_refused_in_its_turn(node: Node, code: int, error: int) -> None:
    partition = node.topics["t"][0]
    packed = batch(b"a" * 100, codec=1)
    assert partition.produce(packed, -1, code).error == error
    assert partition.produce(packed[:-1] + b"?", -1, code).error == 2  # the checksum comes first
    assert partition.high_watermark == 0


@measures_memory
@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_batch_that_grows_large_is_not_remembered_by_the_memory_it_took(node: Node, codec: int) -> None:
    packed = batch(bytes(20 << 20), codec=codec)
    before = resident_bytes()
    (topic,) = node.produce([(0, packed)]).responses
    assert topic.partition_responses[0].error_code == (0 if len(packed) <= 1048588 else 10)
    assert resident_bytes() - before < 8 << 20
