"""The gateway: what cannot be read closes, what breaks is answered and logged, what waits does not hold up others."""

import json
import struct
from collections.abc import Callable
from typing import Any

import pytest

from kbroker.api import registry
from kbroker.api.context import NO_REPLY
from kbroker.errors import NotControllerError
from kbroker.protocol import codec, plan
from kbroker.protocol.message import Message
from kbroker.protocol.messages import (
    CreateTopicsRequest,
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    ProduceRequest,
)
from kbroker.tests.unit.api.desk import Desk

Put = Callable[..., None]
ADDING = ProduceRequest(transactional_id="a-transaction")


def failed(_request: Any, code: int, _version: int) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code)


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> Put:
    """Puts another handler in DescribeCluster's place."""

    def replace(handler: registry.Handler, failure: registry.Failure | None = failed, **more: Any) -> None:
        row = registry.Row(60, 0, 2, 0, handler, failure, native=False, **more)
        monkeypatch.setitem(registry.REGISTRY._rows, 60, row)

    return replace


def broken(_request: Any, _ctx: Any) -> Any:
    raise KeyError("no such thing")


async def elsewhere(_request: Any, _ctx: Any) -> Any:
    raise NotControllerError


def test_an_unknown_exception_is_an_unknown_server_error_and_logged_with_the_request(put: Put) -> None:
    put(broken)
    desk = Desk()
    assert desk.ask(DescribeClusterRequest(), 2).error_code == -1
    line = json.loads(desk.logged())
    assert (line["api_key"], line["api_version"], line["client_id"], line["correlation_id"]) == (60, 2, "a-client", 77)
    assert "KeyError" in json.dumps(line["exception"])


def test_a_kafka_error_is_answered_with_its_code_and_not_logged(put: Put) -> None:
    put(elsewhere)
    desk = Desk()
    assert desk.ask(DescribeClusterRequest(), 0).error_code == NotControllerError.code
    assert desk.logged() == ""


def test_an_answer_that_its_version_cannot_carry_is_our_error_and_told_so(put: Put) -> None:
    put(lambda _request, _ctx: DescribeClusterResponse(endpoint_type=2))
    desk = Desk()
    assert desk.ask(DescribeClusterRequest(), 0).error_code == -1
    assert "EncodeError" in desk.logged()


def test_a_failure_without_a_reply_of_its_own_closes_the_connection(put: Put) -> None:
    put(broken, None)
    desk = Desk()
    token = desk.post(codec.encode_request(DescribeClusterRequest(), 0, 1))
    assert token in desk.mailbox.closed


def test_a_handler_may_send_nothing(put: Put) -> None:
    put(lambda _request, _ctx: NO_REPLY)
    desk = Desk()
    token = desk.post(codec.encode_request(DescribeClusterRequest(), 0, 1))
    assert desk.mailbox.replies == {token: None}


UNREADABLE = {
    "empty": b"",
    "cut header": b"\x00\x03",
    "no body": struct.pack(">hhih", 3, 9, 1, -1),
    "huge compact count": struct.pack(">hhih", 3, 9, 1, -1) + b"\x00\xff\xff\xff\xff\x0f",
    "huge count": struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", 2**31 - 1),
    "unserved key": struct.pack(">hhih", 11, 0, 1, -1),
    "unknown version": struct.pack(">hhih", 3, 99, 1, -1),
    "unknown key": struct.pack(">hhih", 999, 0, 1, -1),
    "natively answered key": struct.pack(">hhih", 1, 4, 1, -1),
}


@pytest.mark.parametrize("frame", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_what_cannot_be_read_or_is_not_served_closes_the_connection(frame: bytes) -> None:
    desk = Desk()
    token = desk.post(frame)
    assert token in desk.mailbox.closed
    assert not desk.mailbox.replies
    assert "a connection was closed" in desk.logged()


def test_bytes_behind_the_body_are_ignored() -> None:
    desk = Desk()
    token = desk.post(codec.encode_request(MetadataRequest(topics=[]), 12, 5) + b"left over")
    assert token in desk.mailbox.replies


def ask_for_metadata(desk: Desk, *names: str, correlation_id: int = 5) -> bytes:
    request = MetadataRequest(topics=[MetadataRequest.Topic(name=name) for name in names])
    payload = desk.mailbox.replies[desk.post(codec.encode_request(request, 12, correlation_id))]
    assert payload is not None
    return payload


def test_the_same_question_gets_the_kept_answer_under_its_own_correlation_id(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    ask_for_metadata(desk, "t")  # creates it
    first = ask_for_metadata(desk, "t", correlation_id=5)
    monkeypatch.setattr(codec, "decode", broken)
    second = ask_for_metadata(desk, "t", correlation_id=6)
    assert (first[:4], second[:4]) == (b"\x00\x00\x00\x05", b"\x00\x00\x00\x06")
    assert first[4:] == second[4:]


def test_a_kept_answer_is_forgotten_when_the_image_changes() -> None:
    desk = Desk(auto_create_topics_enable=False)
    before = ask_for_metadata(desk, "t")
    desk.ask(
        CreateTopicsRequest(
            topics=[CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)]
        ),
        7,
    )
    assert ask_for_metadata(desk, "t") != before


def test_large_requests_that_wait_are_decoded_a_few_at_a_time(put: Put) -> None:
    decoded = []

    async def wait(_request: Any, ctx: Any) -> DescribeClusterResponse:
        return DescribeClusterResponse()

    def count(request: Any, ctx: Any) -> Any:
        decoded.append(ctx.correlation_id)
        return wait(request, ctx)

    def ask(correlation_id: int, size: int) -> int:
        return desk.begin(codec.encode_request(DescribeClusterRequest(), 2, correlation_id) + bytes(size))

    put(count)
    desk = Desk()
    tokens = [ask(i, 3_000_000) for i in range(3)] + [ask(i, 100) for i in range(3, 6)]
    assert decoded == [0, 3, 4, 5]  # one large one, and the small ones behind it
    assert desk.go_on()
    assert decoded == [0, 3, 4, 5, 1]
    while desk.go_on():
        pass
    assert decoded == [0, 3, 4, 5, 1, 2]
    assert sorted(desk.mailbox.replies) == tokens


def test_a_request_larger_than_all_that_may_be_under_way_is_served(put: Put) -> None:
    async def wait(_request: Any, _ctx: Any) -> DescribeClusterResponse:
        raise NotControllerError

    put(wait)
    desk = Desk()
    for _ in range(2):
        token = desk.post(codec.encode_request(DescribeClusterRequest(), 2, 1) + bytes(9_000_000))
        assert token in desk.mailbox.replies


def test_a_very_large_request_is_not_overtaken_by_large_ones_for_ever(put: Put) -> None:
    decoded = []

    async def wait(_request: Any, _ctx: Any) -> DescribeClusterResponse:
        return DescribeClusterResponse()

    def count(request: Any, ctx: Any) -> Any:
        decoded.append(ctx.correlation_id)
        return wait(request, ctx)

    def ask(correlation_id: int, size: int) -> int:
        return desk.begin(codec.encode_request(DescribeClusterRequest(), 2, correlation_id) + bytes(size))

    put(count)
    desk = Desk()
    tokens = [ask(0, 100_000), ask(1, 9_000_000)]
    for i in range(2, 10):
        tokens.append(ask(i, 100_000))
        desk.go_on()
    while desk.go_on():
        pass
    assert decoded == list(range(10))
    assert sorted(desk.mailbox.replies) == tokens


def test_a_large_request_whose_answer_fails_makes_room_all_the_same(put: Put) -> None:
    async def wait(_request: Any, _ctx: Any) -> DescribeClusterResponse:
        raise NotControllerError

    def at_once_or_later(request: Any, ctx: Any) -> Any:
        if ctx.correlation_id == 2:
            raise NotControllerError
        return wait(request, ctx)

    failures = [KeyError("of the first"), KeyError("of the second")]

    def fail_to_fail(_request: Any, _code: int, _version: int) -> DescribeClusterResponse:
        if failures:
            raise failures.pop(0)
        return DescribeClusterResponse()

    def ask(correlation_id: int, size: int) -> int:
        return desk.begin(codec.encode_request(DescribeClusterRequest(), 2, correlation_id) + bytes(size))

    put(at_once_or_later, fail_to_fail)
    desk = Desk()
    tokens = [ask(i, 3_000_000) for i in range(1, 4)]
    with pytest.raises(KeyError, match="of the second"):  # which took the first one's place at once
        desk.go_on()
    tokens.append(ask(4, 100))
    while desk.go_on():
        pass
    assert sorted(desk.mailbox.replies) == tokens[2:]


def test_what_stays_of_a_large_request_is_made_before_its_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [MetadataRequest.Topic(name=f"topic-{i}") for i in range(20_000)]
    frame = codec.encode_request(MetadataRequest(topics=names, allow_auto_topic_creation=False), 12, 77, "a-client")
    order = []
    build = plan._build

    def building(root: type[Message], *rest: Any) -> Any:
        order.append(root.__name__)
        return build(root, *rest)

    monkeypatch.setattr(plan, "_PLANS", {})
    monkeypatch.setattr(plan, "_build", building)
    desk = Desk()
    assert desk.mailbox.replies[desk.post(frame)]
    assert order[-1] == "MetadataRequest"  # all others before the one by which the request is read
    assert {"RequestHeader", "MetadataResponse"} < set(order)


def test_an_answer_that_is_followed_is_told_when_it_leaves(put: Put) -> None:
    async def later(_request: Any, _ctx: Any) -> Any:
        return DescribeClusterResponse()

    put(later, followed=lambda _: True)
    desk = Desk()
    desk.begin(codec.encode_request(DescribeClusterRequest(), 0, 1))
    assert desk.expected == 0
    assert desk.go_on()
    assert desk.expected == 1


def test_only_answers_that_are_followed_are_told(put: Put) -> None:
    desk = Desk()
    put(broken, followed=lambda _: True)
    desk.ask(DescribeClusterRequest(), 0)
    put(lambda _request, _ctx: DescribeClusterResponse(), followed=lambda _: False)
    desk.gateway._routes.clear()
    desk.ask(DescribeClusterRequest(), 0)
    assert desk.expected == 0


def test_what_belongs_to_a_transaction_is_followed() -> None:
    followed = {row.key for row in registry.REGISTRY if row.followed is not None and row.followed(ADDING)}
    assert followed == {0, 24, 25, 28}
    produce = registry.REGISTRY.find(0)
    assert produce is not None
    assert produce.followed is not None
    assert not produce.followed(ProduceRequest())
