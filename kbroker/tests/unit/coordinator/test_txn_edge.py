"""The transaction coordinator's edge over a real log: when markers are written, tried again, given up, and told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker._core.clock import BrokerClock
from kbroker._core.errors import Err
from kbroker._core.log.partition_log import PartitionLog
from kbroker._core.partitions import PartitionHandle
from kbroker.coordinator.placement import TRANSACTIONS_TOPIC
from kbroker.coordinator.runtime import Site, answer_of
from kbroker.coordinator.txn.runtime import TransactionCoordinator
from kbroker.coordinator.txn.settings import TransactionSettings
from kbroker.coordinator.txn.shard import Producer, Wish
from kbroker.errors import ConcurrentTransactionsError
from kbroker.observe.logging import BrokerLog

PLACE = ("t", 0)
OTHER = ("t", 1)
NODE_ID = 1
LOG: dict[str, Any] = {}


class Place:
    """A coordinator of one partition; the markers it wants written wait for `write`."""

    def __init__(self, directory: Path) -> None:
        self.clock = BrokerClock()
        self.clock.hold(1_000_000_000_000)
        self.log = PartitionLog.open(directory / f"{TRANSACTIONS_TOPIC}-0", self.clock, LOG)
        self.handle = PartitionHandle(0, self.log)
        self.handle.lead(NODE_ID, 7, 1, 1)
        self.topics: dict[str, Any] = {
            TRANSACTIONS_TOPIC: SimpleNamespace(
                partitions={0: SimpleNamespace(leader=NODE_ID, leader_epoch=7)}, name=TRANSACTIONS_TOPIC
            ),
            "t": SimpleNamespace(partitions={0: None, 1: None}),
        }
        self.asked: list[tuple[tuple[str, int], int, int, bool, int, int]] = []
        self.answers: Callable[[tuple[str, int]], Awaitable[int]] = self._at_once
        self.ids = iter(range(500, 600))
        self.coordinator = self.open()

    def open(self) -> TransactionCoordinator:
        async def new_id() -> int:
            await asyncio.sleep(0)
            return next(self.ids)

        return TransactionCoordinator(
            Site(
                NODE_ID,
                lambda: SimpleNamespace(topics=self.topics),
                lambda topic, index: self.handle if (topic, index) == (TRANSACTIONS_TOPIC, 0) else None,
                self.clock,
                BrokerLog(),
                asyncio.to_thread,
            ),
            settings=TransactionSettings,
            level=lambda: 2,
            new_producer_id=new_id,
            write_marker=self.write_marker,
        )

    def _at_once(self, place: tuple[str, int]) -> asyncio.Future[int]:
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        done.set_result(Err.NONE)
        return done

    def write_marker(
        self,
        topic: str,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> asyncio.Future[int]:
        place = (topic, partition)
        self.asked.append((place, producer_id, producer_epoch, commit, coordinator_epoch, transaction_version))
        return asyncio.ensure_future(self.answers(place))

    async def begin(self, *places: tuple[str, int]) -> Producer:
        given = await answer_of(self.coordinator.init_producer(Wish("tx", 60_000)))
        who = Producer("tx", given.producer_id, given.producer_epoch)
        codes = await answer_of(
            self.coordinator.verify("tx", who.producer_id, who.epoch, list(places or (PLACE, OTHER)), add=True)
        )
        assert set(codes.values()) == {0}
        return who

    async def state(self) -> str:
        told = await answer_of(
            self.coordinator.submit("tx", lambda shard, token, now_ms: shard.on_describe(token, "tx"))
        )
        return str(told.transaction_state)

    async def until(self, wanted: str) -> None:
        async with asyncio.timeout(20):
            while await self.state() != wanted:
                await asyncio.sleep(0.001)

    async def end(self, who: Producer, *, commit: bool = True) -> Any:
        return await answer_of(self.coordinator.end(who, commit=commit, client_version=2))


@pytest.fixture
def run(tmp_path: Path) -> Any:
    def running(story: Callable[[Place], Awaitable[None]]) -> None:
        async def whole() -> None:
            place = Place(tmp_path)
            place.coordinator.start()
            try:
                await story(place)
            finally:
                place.coordinator.resign()
                place.log.close()

        asyncio.run(whole())

    return running


def test_every_partition_gets_its_marker_under_the_new_epoch(run: Any) -> None:
    async def story(place: Place) -> None:
        who = await place.begin()
        assert who[1:] == (500, 0)
        told = await place.end(who)
        assert (told.producer_id, told.producer_epoch) == (500, 1)
        await place.until("CompleteCommit")
        assert sorted(place.asked) == [(PLACE, 500, 1, True, 7, 2), (OTHER, 500, 1, True, 7, 2)]

    run(story)


def test_a_marker_is_tried_again_and_only_where_it_is_missing(run: Any) -> None:
    async def story(place: Place) -> None:
        codes = iter([Err.NOT_LEADER_OR_FOLLOWER, Err.REQUEST_TIMED_OUT, Err.NONE])

        async def at_last(where: tuple[str, int]) -> int:
            return Err.NONE if where == PLACE else next(codes)

        place.answers = at_last
        who = await place.begin()
        await place.end(who, commit=False)
        assert await place.state() == "PrepareAbort"
        await place.until("CompleteAbort")
        assert [one[0] for one in place.asked].count(PLACE) == 1
        assert [one[0] for one in place.asked].count(OTHER) == 3

    run(story)


def test_a_topic_that_is_gone_holds_nobody_up(run: Any) -> None:
    async def story(place: Place) -> None:
        async def unknown(where: tuple[str, int]) -> int:
            return Err.UNKNOWN_TOPIC_OR_PARTITION

        place.answers = unknown
        who = await place.begin()
        await place.end(who)
        assert await place.state() == "PrepareCommit"
        del place.topics["t"]
        await place.until("CompleteCommit")

    run(story)


def test_a_fenced_coordinator_ends_nothing(run: Any) -> None:
    async def story(place: Place) -> None:
        async def fenced(where: tuple[str, int]) -> int:
            return Err.TRANSACTION_COORDINATOR_FENCED

        place.answers = fenced
        who = await place.begin()
        await place.end(who)
        async with asyncio.timeout(20):
            while place.coordinator._ending:
                await asyncio.sleep(0)
        assert await place.state() == "PrepareCommit"

    run(story)


def test_the_next_transaction_waits_for_the_last_ones_markers(run: Any) -> None:
    async def story(place: Place) -> None:
        hold = asyncio.Event()

        async def held(where: tuple[str, int]) -> int:
            await hold.wait()
            return Err.NONE

        place.answers = held
        who = await place.begin()
        await place.end(who)
        assert isinstance(await place.end(who), ConcurrentTransactionsError)
        assert await answer_of(place.coordinator.verify("tx", 500, 1, [PLACE], add=True)) == {
            PLACE: Err.CONCURRENT_TRANSACTIONS
        }
        waiting = place.coordinator.last_one_ended("tx")
        await asyncio.sleep(0)
        assert not waiting.settled
        hold.set()
        await answer_of(waiting)
        assert await answer_of(place.coordinator.verify("tx", 500, 1, [PLACE], add=True)) == {PLACE: 0}
        assert await place.state() == "Ongoing"

    run(story)


def test_whoever_reads_the_log_ends_what_was_about_to_end(run: Any) -> None:
    async def story(place: Place) -> None:
        async def never(where: tuple[str, int]) -> int:
            return await asyncio.get_running_loop().create_future()

        place.answers = never
        who = await place.begin()
        await place.end(who)
        place.coordinator.resign()
        place.asked.clear()
        place.answers = place._at_once
        place.coordinator = place.open()
        place.coordinator.start()
        async with asyncio.timeout(20):
            while len(place.asked) < 2:
                await asyncio.sleep(0.001)
        await place.until("CompleteCommit")

    run(story)


def test_a_transaction_that_is_too_old_is_aborted_and_its_producer_fenced(run: Any) -> None:
    async def story(place: Place) -> None:
        who = await place.begin()
        place.clock.advance(80_000)
        await place.until("CompleteAbort")
        assert place.asked[0][1:4] == (500, 1, False)
        codes = await answer_of(place.coordinator.verify("tx", who.producer_id, who.epoch, [PLACE], add=True))
        assert codes == {PLACE: Err.PRODUCER_FENCED}

    run(story)


def test_no_name_and_no_such_producer(run: Any) -> None:
    async def story(place: Place) -> None:
        for name, add, code in (
            ("", True, Err.INVALID_REQUEST),
            ("nobody", True, Err.INVALID_PRODUCER_ID_MAPPING),
            ("nobody", False, Err.INVALID_PRODUCER_ID_MAPPING),
        ):
            assert await answer_of(place.coordinator.verify(name, 1, 0, [PLACE], add=add)) == {PLACE: code}

    run(story)
