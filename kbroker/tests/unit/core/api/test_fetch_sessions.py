from __future__ import annotations

from pathlib import Path

import pytest

from kbroker._core.api.direct import DirectCaller
from kbroker._core.errors import Err
from kbroker.protocol.messages.k01_fetch import FetchRequest, FetchResponse
from kbroker.tests.unit.core.api.given import (
    APIS,
    BODIES,
    Node,
    ask,
    batch,
    fetch_reply,
    fetch_request,
    of,
    topic_id,
    values_of,
)

VERSIONS = [7, 11, 12, 13, 18]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(tmp_path)
    node.topic("t", partitions=3)
    node.topic("u")
    return node


def begin(node: Node, version: int = 12, *topics: FetchRequest.FetchTopic) -> int:
    response = node.fetch(list(topics) or [of("t", ask(0), ask(1), ask(2))], version, session_epoch=0)
    assert response.error_code == 0
    assert response.session_id > 0
    return response.session_id


def step(node: Node, session: int, epoch: int, *topics: FetchRequest.FetchTopic, version: int = 12) -> FetchResponse:
    return node.fetch(list(topics), version, session_id=session, session_epoch=epoch)


def listed(response: FetchResponse) -> list[tuple[int, list[bytes | None]]]:
    return [(p.partition_index, values_of(p.records)) for t in response.responses for p in t.partitions]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_full_fetch_that_asks_for_a_session_gets_one(node: Node, version: int) -> None:
    session = begin(node, version)
    assert node.calls.sessions == 1
    assert step(node, session, 1, version=version).session_id == session


@pytest.mark.parametrize("version", VERSIONS)
def test_an_incremental_answer_lists_only_what_changed(node: Node, version: int) -> None:
    session = begin(node, version)
    assert listed(step(node, session, 1, version=version)) == []
    node.produce([(1, batch(b"a"))])
    response = step(node, session, 2, version=version)
    assert listed(response) == [(1, [b"a"])]
    assert listed(step(node, session, 3, of("t", ask(1, offset=1)), version=version)) == []


def test_the_session_remembers_offsets(node: Node) -> None:
    session = begin(node)
    node.produce([(0, batch(b"a"))])
    assert listed(step(node, session, 1)) == [(0, [b"a"])]
    assert listed(step(node, session, 2)) == [(0, [b"a"])]
    node.produce([(0, batch(b"b"))])
    assert listed(step(node, session, 3, of("t", ask(0, offset=1)))) == [(0, [b"b"])]


def test_a_moved_high_watermark_is_told_without_records(node: Node) -> None:
    session = begin(node, 12, of("t", ask(0)))
    node.produce([(0, batch(b"a"))])
    response = step(node, session, 1, of("t", ask(0, offset=1)))
    assert listed(response) == [(0, [])]
    assert response.responses[0].partitions[0].high_watermark == 1
    assert listed(step(node, session, 2)) == []


def test_an_error_is_told_every_time_and_its_end_too(node: Node) -> None:
    session = begin(node, 12, of("t", ask(0, offset=5)))
    assert [p.error_code for p in step(node, session, 1).responses[0].partitions] == [1]
    recovered = step(node, session, 2, of("t", ask(0, offset=0)))
    assert [p.error_code for p in recovered.responses[0].partitions] == [0]
    assert step(node, session, 3).responses == []


@pytest.mark.parametrize("version", VERSIONS)
def test_partitions_come_and_go(node: Node, version: int) -> None:
    session = begin(node, version, of("t", ask(0)))
    node.produce([(0, batch(b"a")), (1, batch(b"b"))])
    response = node.fetch(
        [of("t", ask(1))],
        version,
        session_id=session,
        session_epoch=1,
        forgotten_topics_data=[FetchRequest.ForgottenTopic(topic="t", topic_id=topic_id("t"), partitions=[0, 9])],
    )
    assert listed(response) == [(1, [b"b"])]


def test_forgetting_everything_ends_the_session(node: Node) -> None:
    session = begin(node, 12, of("t", ask(0)))
    forgotten = [FetchRequest.ForgottenTopic(topic="t", partitions=[0])]
    response = node.fetch([], session_id=session, session_epoch=1, forgotten_topics_data=forgotten)
    assert (response.error_code, response.session_id, response.responses) == (0, 0, [])
    assert node.calls.sessions == 0
    assert step(node, session, 2).error_code == Err.FETCH_SESSION_ID_NOT_FOUND


def test_an_unknown_session_and_a_wrong_epoch(node: Node) -> None:
    session = begin(node)
    unknown = step(node, session + 1, 1)
    assert (unknown.error_code, unknown.session_id, unknown.responses) == (70, 0, [])
    wrong = step(node, session, 9)
    assert (wrong.error_code, wrong.session_id, wrong.responses) == (71, 0, [])
    assert step(node, session, 1).error_code == 0
    assert step(node, session, 1).error_code == 71


def test_a_session_by_name_is_not_one_by_id(node: Node) -> None:
    session = begin(node, 12)
    assert step(node, session, 1, version=13).error_code == Err.FETCH_SESSION_TOPIC_ID_ERROR
    assert step(node, session, 1, version=12).error_code == 0


def test_epoch_minus_one_closes_and_is_answered_in_full(node: Node) -> None:
    session = begin(node)
    response = step(node, session, -1, of("t", ask(0)))
    assert (response.session_id, len(listed(response))) == (0, 1)
    assert node.calls.sessions == 0


def test_epoch_zero_replaces_the_session(node: Node) -> None:
    session = begin(node)
    response = step(node, session, 0, of("t", ask(0)))
    assert response.session_id not in (0, session)
    assert node.calls.sessions == 1


def test_unknown_topics_are_kept_and_found_when_they_come(node: Node) -> None:
    session = begin(node, 12, of("later", ask(0)))
    assert step(node, session, 1).responses[0].partitions[0].error_code == 3
    node.topic("later")
    node.produce([(0, batch(b"a"))], name="later")
    assert listed(step(node, session, 2)) == [(0, [b"a"])]


def test_partitions_with_records_go_to_the_end_of_the_order(node: Node) -> None:
    session = begin(node)
    node.produce([(index, batch(b"%d" % index)) for index in range(3)])
    served = []
    for epoch in range(1, 7):
        response = node.fetch([], session_id=session, session_epoch=epoch, max_bytes=1)
        served += [index for index, values in listed(response) if values]
    assert served == [0, 1, 2, 0, 1, 2]


def test_a_session_survives_a_long_poll(node: Node) -> None:
    session = begin(node)
    request = fetch_request([], session_id=session, session_epoch=1, max_wait_ms=500)
    assert node.send(request, 12)[0] == "PARKED"
    node.produce([(2, batch(b"a"))])
    _, reply = node.calls.collect() or (None, None)
    response = fetch_reply(reply, 12)
    assert (response.session_id, listed(response)) == (session, [(2, [b"a"])])


def test_a_long_poll_whose_session_moved_on_is_told_so(node: Node) -> None:
    session = begin(node)
    request = fetch_request([], session_id=session, session_epoch=1, max_wait_ms=500)
    assert node.send(request, 12, slot=1)[0] == "PARKED"
    step(node, session, 2)
    node.produce([(2, batch(b"a"))])
    _, reply = node.calls.collect() or (None, None)
    response = fetch_reply(reply, 12)
    assert (response.error_code, response.responses) == (71, [])


def test_all_network_threads_know_the_session(node: Node) -> None:
    session = begin(node)
    first = node.calls
    node.calls = DirectCaller(node.clock, node.view, APIS, BODIES, neighbour=first)
    assert step(node, session, 1).error_code == 0
    assert node.calls.sessions == 1


def test_a_full_cache_gives_no_session_until_one_was_idle_for_two_minutes(tmp_path: Path) -> None:
    node = Node(tmp_path, sessions_max=2)
    node.topic("t")
    one = begin(node, 12, of("t", ask(0)))
    two = begin(node, 12, of("t", ask(0)))
    assert node.fetch([of("t", ask(0))], session_epoch=0).session_id == 0
    node.clock.advance(100_000)
    step(node, one, 1)
    node.clock.advance(20_001)
    assert node.fetch([of("t", ask(0))], session_epoch=0).session_id > 0
    assert step(node, two, 1).error_code == 70
    assert step(node, one, 2).error_code == 0


def test_many_partitions_are_found_again(node: Node) -> None:
    node.topic("many", partitions=200)
    session = begin(node, 12, of("many", *(ask(index) for index in range(200))))
    node.produce([(index, batch(b"x")) for index in (7, 150)], name="many")
    assert [index for index, _ in listed(step(node, session, 1))] == [7, 150]


def test_a_full_fetch_without_topics_still_begins_a_session(node: Node) -> None:
    response = node.fetch([], session_epoch=0, max_wait_ms=500)
    assert response.session_id > 0
    assert listed(step(node, response.session_id, 1, of("t", ask(0)))) == [(0, [])]
