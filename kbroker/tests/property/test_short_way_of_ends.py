"""An EndTxn that takes the short way ends as it would have the long way, through messages and on_end().

Two coordinators over two logs on disk, in the same state and at the same time; one of them knows no short way. Whatever
they are asked, they give the same bytes, write the same log, have the same markers written and hold the same state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbroker._core.wire.express_end import read_end, transaction_record
from kbroker.coordinator.frames import encode_record
from kbroker.coordinator.later import Later
from kbroker.coordinator.placement import TRANSACTIONS_TOPIC
from kbroker.coordinator.txn.answers import ANSWERS
from kbroker.coordinator.txn.runtime import TransactionCoordinator
from kbroker.coordinator.txn.settings import TransactionSettings
from kbroker.coordinator.txn.transaction import EPOCH_BUMPS_FROM, MAX_EPOCH, PREPARED, State, Transaction
from kbroker.protocol import codec
from kbroker.protocol.messages import AddPartitionsToTxnRequest, EndTxnRequest
from kbroker.tests.property.two_ways import CLIENT_IDS, NOW_MS, Ground, ask, harmed, on_both
from kbroker.tests.unit.api.desk import Desk

TOPICS = {"t": 3, "another-topic": 1}
PRODUCER, EPOCH = 7_000, 5
PLACES = frozenset({("t", 0), ("t", 2), ("another-topic", 0)})
LEVELS = (0, 1, 2)
NEWEST, OLDER = 5, 4  # versions of EndTxn with a new epoch for each transaction, and without


def stored() -> dict[str, Transaction]:
    """One transactional id in each state, and two that have used up their epochs."""
    ids = {
        state.name.lower(): Transaction(
            PRODUCER + state,
            EPOCH,
            60_000,
            state,
            PLACES if state in (State.ONGOING, *PREPARED) else frozenset(),
            NOW_MS - 1_000,
            NOW_MS - 500,
            PRODUCER + state,
            client_version=EPOCH_BUMPS_FROM,
        )
        for state in ANSWERS
    }
    ongoing = ids["ongoing"]
    return {
        **ids,
        "older": ongoing._replace(producer_id=PRODUCER + 20, previous_producer_id=PRODUCER + 20, client_version=0),
        "last": ongoing._replace(producer_id=PRODUCER + 21, epoch=MAX_EPOCH - 1),
        "fenced": ongoing._replace(producer_id=PRODUCER + 22, epoch=MAX_EPOCH),
    }


class Edge:
    """A coordinator on a log of its own, behind a gateway."""

    level = 2
    max_record_bytes = 1_000_000

    def __init__(self, directory: Path, *, short: bool) -> None:
        records = [one.record(name, self.level) for name, one in stored().items()]
        self.ground = Ground(directory, TRANSACTIONS_TOPIC, TOPICS, records)
        self.clock = self.ground.clock
        self.markers: list[Any] = []
        self._ids = iter(range(9_000, 10_000))
        self.coordinator = TransactionCoordinator(
            self.ground.site,
            settings=lambda: TransactionSettings(max_record_bytes=self.max_record_bytes),
            level=lambda: self.level,
            new_producer_id=self._new_id,
            write_marker=self._write_marker,
        )
        self.desk = Desk(transactions=self.coordinator)
        if not short:
            self.desk.gateway.know_no_short_way()

    async def _new_id(self) -> int:
        return next(self._ids)

    def _write_marker(self, *what: Any, **how: Any) -> asyncio.Future[int]:
        """Those of transactions that were about to end from the first on are never written."""
        self.markers.append((what, how))
        written: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if what[2] not in {PRODUCER + state for state in PREPARED}:
            written.set_result(0)
        return written

    async def start(self) -> None:
        self.coordinator.start()
        while len(self.markers) < len(PREPARED) * len(PLACES):  # of what was about to end: it is loaded
            await asyncio.sleep(0)

    def ask(self, *frames: bytes) -> list[tuple[bytes | None, str | None]]:
        return ask(self.desk, *frames)

    def holds(self) -> tuple[Any, ...]:
        shard = self.coordinator.shard_of("ongoing")
        assert shard is not None
        return self.ground.written(), shard.transactions, shard.open_ids, shard.last_epochs, self.markers

    def close(self) -> None:
        self.coordinator.resign()
        self.ground.log.close(sync=False)


def edge_with(**settings: int) -> type[Edge]:
    return type("Edge", (Edge,), settings)


# ---- what clients send ----


@st.composite
def ends(draw: st.DrawFn) -> bytes:
    name, one = draw(st.sampled_from([*stored().items(), ("ongoing", stored()["ongoing"])]))
    asked = EndTxnRequest(
        transactional_id=draw(st.sampled_from([name, name, name, name, "", "\u00fcnknown", "nobody"])),
        producer_id=draw(st.sampled_from([one.producer_id] * 6 + [PRODUCER, -1])),
        producer_epoch=draw(st.sampled_from([one.epoch] * 4 + [EPOCH, EPOCH + 1, 0, -1])),
        committed=draw(st.booleans()),
    )
    return codec.encode_request(asked, draw(st.integers(0, 5)), draw(st.integers(0, 2**31 - 1)), draw(CLIENT_IDS))


@st.composite
def additions(draw: st.DrawFn) -> bytes:
    """What opens a transaction again, so that it can be ended again."""
    name, one = draw(st.sampled_from(list(stored().items())))
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=[draw(st.integers(0, 2))])
    asked = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=one.producer_id,
        v3_and_below_producer_epoch=min(one.epoch + draw(st.integers(0, 2)), MAX_EPOCH),
        v3_and_below_topics=[topic],
    )
    return codec.encode_request(asked, 3, 1, "client")


# ---- the judge ----


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(
    level=st.sampled_from([*LEVELS, 2, 2]),
    asked=st.lists(
        st.lists(st.one_of(harmed(ends()), harmed(ends()), additions()), min_size=1, max_size=4), min_size=1, max_size=8
    ),
    steps=st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 3)), min_size=12, max_size=12),
)
def test_both_ways_agree(level: int, asked: list[list[bytes]], steps: list[tuple[int, int]]) -> None:
    async def story(short: Edge, long: Edge) -> None:
        for frames, (ms, turns) in zip(asked, steps, strict=False):
            assert short.ask(*frames) == long.ask(*frames)
            for _ in range(turns):  # in which markers are written
                await asyncio.sleep(0)
            for edge in (short, long):
                edge.clock.advance(ms)
        assert short.holds() == long.holds()

    on_both(edge_with(level=level), story)


@settings(max_examples=500)
@given(harmed(ends()))
def test_what_is_read_is_what_the_codec_reads(frame: bytes) -> None:
    found = read_end(frame)
    if found is not None:
        version = int.from_bytes(frame[2:4], "big")
        told, _ = codec.decode(EndTxnRequest, version, frame, codec.decode_request_header(frame)[1])
        assert found.version == version
        assert (found.transactional_id, found.committed) == (told.transactional_id, told.committed)
        assert (found.producer_id, found.producer_epoch) == (told.producer_id, told.producer_epoch)


@settings(max_examples=300)
@given(st.integers(0, 5), st.binary(max_size=80))
def test_any_bytes_are_read_or_not(version: int, rest: bytes) -> None:
    read_end(b"\0\x1a" + version.to_bytes(2, "big") + rest)


LONGS = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(st.characters(codec="utf-8"), max_size=300)


@given(
    name=st.text(st.characters(codec="ascii"), max_size=300),
    transaction=st.builds(
        Transaction,
        producer_id=LONGS,
        epoch=st.integers(-1, MAX_EPOCH),
        timeout_ms=st.integers(0, 2**31 - 1),
        state=st.sampled_from([one for one in State if one != State.EMPTY]),
        places=st.frozensets(st.tuples(NAMES, st.integers(0, 2**31 - 1)), max_size=20),
        start_ms=LONGS,
        update_ms=LONGS,
        previous_producer_id=st.integers(0, 2**63 - 1),
        next_producer_id=st.integers(-1, 2**63 - 1),
        client_version=st.integers(0, 2),
    ),
)
def test_a_record_is_written_as_the_codec_writes_it(name: str, transaction: Transaction) -> None:
    assert transaction_record(name, transaction) == encode_record(transaction.record(name, 2))


# ---- that there is a short way at all ----


def end(name: str, version: int = NEWEST, **other: Any) -> bytes:
    one = stored()[name]
    fields = {"transactional_id": name, "producer_id": one.producer_id, "producer_epoch": one.epoch, "committed": True}
    return codec.encode_request(EndTxnRequest(**{**fields, **other}), version, 1, "c")


@pytest.mark.parametrize(
    ("frame", "level", "short"),
    [
        (end("ongoing"), 2, True),
        (end("ongoing", committed=False), 2, True),
        (end("ongoing", 0), 2, True),
        (end("older", OLDER), 2, True),
        (end("older", OLDER), 1, True),
        (end("older", OLDER), 0, False),
        (end("ongoing", producer_epoch=EPOCH - 1), 2, False),
        (end("ongoing", producer_id=1), 2, False),
        (end("empty"), 2, False),
        (end("complete_commit"), 2, False),
        (end("last"), 2, False),
        (end("fenced"), 2, False),
    ],
)
def test_what_is_plain_goes_the_short_way(frame: bytes, level: int, short: bool) -> None:
    async def story(edge: Edge, _: Edge) -> None:
        assert edge.coordinator.take_end(frame, Later()) is short

    on_both(edge_with(level=level), story)


def agree_on_refusing(way: type[Edge], before: Callable[[Edge], None]) -> None:
    async def story(short: Edge, long: Edge) -> None:
        for edge in (short, long):
            before(edge)
        told = short.ask(end("ongoing"), end("older", OLDER))
        assert told == long.ask(end("ongoing"), end("older", OLDER))
        assert all(reply is not None and reply[9:11] != bytes(2) for reply, _ in told)
        assert short.markers == long.markers

    on_both(way, story)


def test_an_append_that_fails_is_answered_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    agree_on_refusing(Edge, lambda edge: edge.ground.handle.follow(2, 1))


def test_a_coordinator_that_has_resigned_answers_the_same() -> None:
    agree_on_refusing(Edge, lambda edge: edge.coordinator.resign())


def test_a_record_that_is_too_large_is_refused_the_same() -> None:
    agree_on_refusing(edge_with(max_record_bytes=150), lambda edge: None)
