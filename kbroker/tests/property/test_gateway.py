"""Whatever a client sends, the gateway answers once or closes, and none of it is an exception of ours."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kbroker.api import REGISTRY
from kbroker.protocol import apis, codec
from kbroker.tests.property.two_ways import harmed
from kbroker.tests.unit.api.desk import Desk

ASKED = [
    (row.key, version)
    for row in REGISTRY
    if row.handler is not None and not row.native
    for version in range(row.min_version, row.max_version + 1)
]


def serve(frame: bytes) -> None:
    desk = Desk()
    token = desk.post(frame)
    answered, closed = token in desk.mailbox.replies, token in desk.mailbox.closed
    assert answered != closed
    logged = desk.logged()
    assert "a request failed" not in logged, logged


@st.composite
def default_requests(draw: st.DrawFn) -> bytes:
    """Of some API and version."""
    key, version = draw(st.sampled_from(ASKED))
    return codec.encode_request(apis.by_key(key).request(), version, draw(st.integers(0, 2**31 - 1)), "c")


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(harmed(default_requests(), st.integers(0, 4)))
def test_mutated_requests_are_answered_or_closed(frame: bytes) -> None:
    serve(frame)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=64))
@example(b"")
def test_random_bytes_are_answered_or_closed(frame: bytes) -> None:
    serve(frame)


def test_default_requests_of_every_version_are_answered() -> None:
    desk = Desk()
    for key, version in ASKED:
        token = desk.post(codec.encode_request(apis.by_key(key).request(), version, 1))
        assert desk.mailbox.replies.get(token) is not None, (key, version)


@settings(max_examples=500, deadline=None)
@given(harmed(default_requests(), st.integers(0, 4)))
def test_a_header_is_read_as_the_codec_reads_it(frame: bytes) -> None:
    flexible = apis.by_key(frame[1]).is_flexible(frame[3])
    try:
        header, body_at = codec.decode_request_header(frame)
    except codec.DecodeError:
        with pytest.raises(codec.DecodeError):
            codec.read_request_header(frame, flexible)
    else:
        expected = header.correlation_id, header.client_id, body_at
        assert codec.read_request_header(frame, flexible) == expected
