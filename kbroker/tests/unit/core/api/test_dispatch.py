from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kbroker.protocol import codec
from kbroker.protocol.messages.k03_metadata import MetadataRequest
from kbroker.protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from kbroker.tests.unit.core.api.given import BODIES, Node, ask, fetch_request, of, produce_request, unframe


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def hello(version: int, name: str = "client", software_version: str = "1.0") -> bytes:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=software_version)
    return codec.encode_request(request, version, 7, "test")


@pytest.mark.parametrize("version", range(5))
def test_api_versions_is_answered_from_the_published_bytes_with_header_0(node: Node, version: int) -> None:
    outcome, reply, _ = node.calls.call(hello(version))
    assert outcome == "READY"
    assert unframe(reply) == struct.pack(">i", 7) + BODIES[version]


@pytest.mark.parametrize("version", [5, 60, 32767])
def test_api_versions_of_an_unknown_version_gets_the_fallback(node: Node, version: int) -> None:
    frame = struct.pack(">hhi", 18, version, 9) + b"whatever follows"
    outcome, reply, _ = node.calls.call(frame)
    assert outcome == "READY"
    assert unframe(reply) == struct.pack(">i", 9) + BODIES[5]


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("-a", "1"), ("a b", "1"), ("a", "1."), ("a", "")])
def test_a_bad_client_software_name_is_an_invalid_request(node: Node, name: str, version: str) -> None:
    outcome, reply, _ = node.calls.call(hello(3, name, version))
    assert outcome == "READY"
    _, response = codec.decode_response(ApiVersionsResponse, 3, unframe(reply))
    assert response.error_code == 42
    assert response.api_keys == []


def test_an_api_that_is_not_native_is_posted(node: Node) -> None:
    outcome, reply, _ = node.send(MetadataRequest(topics=None), 12)
    assert (outcome, reply) == ("POST", None)


@pytest.mark.parametrize(
    ("key", "version"),
    [(4, 0), (7, 0), (-1, 0), (127, 0), (128, 0), (32767, 0), (0, 14), (1, 3), (1, 19), (3, 14), (3, -1)],
)
def test_unknown_keys_and_versions_close_the_connection(node: Node, key: int, version: int) -> None:
    outcome, _, reason = node.calls.call(struct.pack(">hhih", key, version, 1, -1) + bytes(64))
    assert outcome == "CLOSE"
    assert reason


@pytest.mark.parametrize("version", [0, 1, 2])
def test_produce_before_version_3_is_advertised_and_yet_closes(node: Node, version: int) -> None:
    outcome, _, reason = node.calls.call(struct.pack(">hhih", 0, version, 1, -1) + bytes(64))
    assert outcome == "CLOSE"
    assert reason == "a version of Produce before 3"


@pytest.mark.parametrize("length", range(10))
def test_a_frame_shorter_than_its_header_closes(node: Node, length: int) -> None:
    outcome, _, reason = node.calls.call(hello(3)[:length])
    assert outcome == "CLOSE"
    assert reason


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_cut_anywhere_closes_and_appends_nothing(node: Node, version: int) -> None:
    (partition,) = node.topic("t")
    frame = codec.encode_request(produce_request([(0, b"x" * 80)]), version, 7, "test")
    for length in range(8, len(frame)):
        assert node.calls.call(frame[:length])[0] == "CLOSE"
    assert partition.high_watermark == 0


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_cut_anywhere_closes(node: Node, version: int) -> None:
    node.topic("t")
    frame = codec.encode_request(fetch_request([of("t", ask())]), version, 7, "test")
    for length in range(8, len(frame)):
        assert node.calls.call(frame[:length])[0] == "CLOSE"


@pytest.mark.parametrize("version", [4, 12, 18])
def test_bytes_behind_the_body_are_ignored(node: Node, version: int) -> None:
    node.topic("t")
    frame = codec.encode_request(fetch_request([of("t", ask())]), version, 7, "test")
    assert node.calls.call(frame + b"more")[0] == "READY"
