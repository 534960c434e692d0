"""Transactions for a template: interleaved, in both flows, committed and aborted, with a group's offsets."""

from __future__ import annotations

from collections.abc import Iterator

from bench.campaigns.decay.reading import ask_offset
from bench.campaigns.transactional import TransactionalProducer
from bench.client import Client
from kbroker._core.record.records import Record

TOPIC = "paid"
GROUP = "payers"
PLACE = (TOPIC, 0)
PATIENCE_MS = 86_400_000  # no transaction is too old while a campaign runs
ABORTED: dict[bytes, int] = {}  # the values that no reader of committed records may see, and their producer


def pay(client: Client, turn: int, now_ms: int) -> Iterator[bytes]:
    """Pairs of transactions that begin together and end one after the other; every third one is aborted."""
    two = [TransactionalProducer(client.ask, f"payer-{i}", PATIENCE_MS, implicit=bool(i)) for i in range(2)]
    for one in two:
        one.init()
    serial = 0
    for number in range(4):
        written: list[list[bytes]] = [[], []]
        for _ in range(2):
            for i, one in enumerate(two):
                serial += 1
                written[i] += _send(one, f"{turn}/{number}/{serial}", now_ms + serial)
        for i, one in enumerate(two):
            one.commit_offset(GROUP, PLACE, 1000 * turn + serial + i)
            commit = (2 * number + i) % 3 != 0
            _, end = ask_offset(client, PLACE, -1)
            one.end(commit=commit)
            while ask_offset(client, PLACE, -1) == (0, end):  # until the marker is there
                pass
            if not commit:
                ABORTED.update(dict.fromkeys(written[i], one.id))
            yield from written[i]
    for one in two:
        one.init()  # the coordinator, too, has finished with the last ones


def leave_open(client: Client, now_ms: int) -> list[bytes]:
    one = TransactionalProducer(client.ask, "payer-2", PATIENCE_MS, implicit=False)
    one.init()
    values = _send(one, "open", now_ms)
    one.commit_offset(GROUP, PLACE, 5000)
    ABORTED.update(dict.fromkeys(values, one.id))
    return values


def _send(one: TransactionalProducer, name: str, now_ms: int) -> list[bytes]:
    values = [f"{TOPIC}/{one.transactional_id}/{name}/{i} {'x' * 40}".encode() for i in range(2)]
    one.send(PLACE, [Record(timestamp=now_ms, key=b"paid", value=value) for value in values])
    return values
