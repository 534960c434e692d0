"""Commits and heartbeats that arrive together are posted together, and their answers leave in their order."""

from __future__ import annotations

import itertools

import pytest

from .harness import House, closed_by_server, eventually, frame, gather, receive_exactly, receive_frame, request

COMMIT, BEAT, OTHER = 8, 12, 3
TOGETHER = 64


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_answers_leave_in_the_order_of_the_requests(house: House, order: tuple[int, ...]) -> None:
    core, port = house.core()
    client = house.connect(port)
    client.sendall(request(0, key=COMMIT) + request(1, key=BEAT) + request(2, key=COMMIT))
    posted = gather(core.take, lambda got: len(got) == 3)
    assert [frame(one[5]) for one in posted] == [request(0, key=COMMIT), request(1, key=BEAT), request(2, key=COMMIT)]
    for index in order:
        core.reply(posted[index][0], b"answer %d" % index)
        core.reply(posted[index][0], b"again")
    assert [receive_frame(client) for _ in range(3)] == [b"answer 0", b"answer 1", b"answer 2"]
    client.sendall(request(3, key=COMMIT))
    core.reply(gather(core.take)[0][0], b"and on")
    assert receive_frame(client) == b"and on"


def test_another_request_waits_for_those_before_it(house: House) -> None:
    core, port = house.core()
    client = house.connect(port)
    client.sendall(request(0, key=COMMIT) + request(1, key=COMMIT) + request(2, key=OTHER) + request(3, key=COMMIT))
    first = gather(core.take, lambda got: len(got) == 2)
    core.reply(first[1][0], b"b")
    assert core.take() == []
    core.reply(first[0][0], b"a")
    third = gather(core.take)
    assert [frame(one[5]) for one in third] == [request(2, key=OTHER)]
    core.reply(third[0][0], b"c")
    core.reply(gather(core.take)[0][0], b"d")
    assert [receive_frame(client) for _ in range(4)] == [b"a", b"b", b"c", b"d"]


def test_no_more_than_so_many_are_posted_at_once(house: House) -> None:
    core, port = house.core()
    client = house.connect(port)
    sent = [request(index, key=BEAT) for index in range(3 * TOGETHER)]
    client.sendall(b"".join(sent))
    posted = gather(core.take, lambda got: len(got) >= TOGETHER)
    assert core.take() == []
    assert [frame(one[5]) for one in posted] == sent[:TOGETHER]
    core.reply_all([(one[0], one[5]) for one in posted])
    for _ in range(2):
        core.reply_all([(one[0], one[5]) for one in gather(core.take, lambda got: len(got) == TOGETHER)])
    assert receive_exactly(client, sum(map(len, sent))) == b"".join(sent)
    assert core.counters()["requests"] == {BEAT: 3 * TOGETHER}


def test_a_full_mailbox_posts_the_others_later(house: House) -> None:
    core, port = house.core(mailbox_slots=3)
    house.control(core)
    client = house.connect(port)
    sent = b"".join(request(index, key=COMMIT) for index in range(1_000))
    client.sendall(sent)
    assert receive_exactly(client, len(sent)) == sent
    assert core.counters()["requests"] == {COMMIT: 1_000}


def test_a_connection_is_closed_behind_the_answers_before(house: House) -> None:
    core, port = house.core()
    client = house.connect(port)
    client.sendall(b"".join(request(index, key=COMMIT) for index in range(4)))
    posted = gather(core.take, lambda got: len(got) == 4)
    core.reply(posted[3][0], b"never heard")
    core.close_connection(posted[2][0], "no more")
    core.reply(posted[1][0], b"b")
    core.reply(posted[0][0], b"a")
    assert [receive_frame(client), receive_frame(client)] == [b"a", b"b"]
    assert closed_by_server(client)


def test_who_hangs_up_leaves_nothing_behind(house: House) -> None:
    core, port = house.core()
    client = house.connect(port)
    client.sendall(b"".join(request(index, key=COMMIT) for index in range(3)))
    posted = gather(core.take, lambda got: len(got) == 3)
    core.reply(posted[2][0], b"early")
    client.close()
    core.reply(posted[0][0], b"a")
    core.reply(posted[1][0], b"b")
    eventually(lambda: core.counters()["connections_open"] == 0)
    other = house.connect(port)
    other.sendall(request(9, key=COMMIT))
    core.reply(gather(core.take)[0][0], b"to the next one")
    assert receive_frame(other) == b"to the next one"


def test_replies_of_many_connections_in_one_go(house: House) -> None:
    core, port = house.core(network_threads=3)
    clients = [house.connect(port) for _ in range(12)]
    for index, client in enumerate(clients):
        client.sendall(request(index, key=OTHER))
    posted = gather(core.take, lambda got: len(got) == len(clients))
    core.reply_all([(one[0], one[5]) for one in posted] + [((1 << 64) - 1, b"nobody's")])
    for index, client in enumerate(clients):
        assert frame(receive_frame(client)) == request(index, key=OTHER)
    with pytest.raises(TypeError):
        core.reply_all([(posted[0][0], "text")])  # type: ignore[list-item]
