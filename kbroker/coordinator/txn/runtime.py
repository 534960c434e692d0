"""The transaction coordinator's edge: what is particular to __transaction_state, and the markers that end transactions.

    PrepareCommit or PrepareAbort is committed -> a marker goes into every partition of the transaction, at once
        -> all are written, or their partitions are gone -> CompleteCommit or CompleteAbort

A marker that cannot be written now is tried again for as long as this node coordinates. A node that comes to coordinate
a partition finds in its log what was about to end, and ends it: markers may be written twice, which changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Protocol

from kbroker._core.errors import Err
from kbroker._core.wire.express_end import read_end, transaction_record
from kbroker.coordinator.frames import TRANSACTION
from kbroker.coordinator.later import Later
from kbroker.coordinator.placement import TRANSACTIONS_TOPIC
from kbroker.coordinator.runtime import RECORD_ROOM, Decided, Edge, Led, Site
from kbroker.coordinator.step import ERRAND, Reply, Step
from kbroker.coordinator.txn.settings import TransactionSettings
from kbroker.coordinator.txn.shard import (
    Found,
    Markers,
    NeedsProducerIdError,
    Overdue,
    Producer,
    TransactionShard,
    Wish,
)
from kbroker.coordinator.txn.transaction import EPOCH_BUMPS_FROM, Place, client_version_of
from kbroker.errors import (
    InvalidRequestError,
    KafkaError,
    NotCoordinatorError,
    UnknownServerError,
)

RETRY_S = 0.02  # how soon a marker is tried again at first, and at most
RETRY_MAX_S = 1.0
END_WAIT_S = 0.1  # how long whoever adds a partition waits for the transaction before to be ended
ENDED = object()
FENCED = {Err.INVALID_PRODUCER_EPOCH, Err.TRANSACTION_COORDINATOR_FENCED}


class OnNewId(Protocol):
    """An event that may take a producer id which nobody has had."""

    def __call__(self, shard: TransactionShard, token: Any, now_ms: int, new_id: int | None) -> Step: ...


class WriteMarker(Protocol):
    """Writes one marker into a partition at once. The future is an error code, when the marker is committed."""

    def __call__(
        self,
        topic: str,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> asyncio.Future[int]: ...


class TransactionCoordinator(Edge[TransactionShard]):
    TOPIC = TRANSACTIONS_TOPIC
    KIND = TRANSACTION
    CALLED = "transaction coordinator"
    TOO_LARGE = UnknownServerError
    UNWRITABLE = InvalidRequestError
    NO_TOPIC = NotCoordinatorError

    def __init__(
        self,
        site: Site,
        *,
        settings: Callable[[], TransactionSettings],
        level: Callable[[], int],
        new_producer_id: Callable[[], Awaitable[int]],
        write_marker: WriteMarker,
    ) -> None:
        super().__init__(site, settings().max_record_bytes)
        self._settings = settings
        self._level = level
        self._new_producer_id = new_producer_id
        self._write_marker = write_marker
        self._to_end: list[tuple[Led[TransactionShard], Markers]] = []  # in the next turn
        self._ending: dict[str, list[Later]] = {}  # who waits for the end, by transactional id

    def _new_shard(self) -> TransactionShard:
        return TransactionShard(self._settings(), self._level)

    # ---- requests ----

    def init_producer(self, wish: Wish) -> Later:
        """The answer is an InitProducerIdResponse."""

        def event(shard: TransactionShard, token: Any, now_ms: int, new_id: int | None) -> Step:
            return shard.on_init_producer(token, wish, new_id, now_ms)

        return self._with_new_id(wish.transactional_id, event)

    def end(self, who: Producer, *, commit: bool, client_version: int) -> Later:
        """The answer is an EndTxnResponse."""

        def event(shard: TransactionShard, token: Any, now_ms: int, new_id: int | None) -> Step:
            return shard.on_end(token, who, commit=commit, client_version=client_version, new_id=new_id, now_ms=now_ms)

        return self._with_new_id(who.transactional_id, event)

    def take_end(self, frame: bytes, later: Later) -> bool:
        """The short way for an EndTxn that is plain, and ends an open transaction as its producer says.

        `later` is settled with the reply's bytes, or with a KafkaError. False: nothing has happened, and end() is next.
        """
        asked = read_end(frame)
        led = None if asked is None else self._ready(asked.transactional_id)
        if asked is None or led is None or led.shard is None:
            return False
        after = led.shard.admit_end(asked, client_version_of(asked.version), self._clock.now_ms())
        if after is None:
            return False
        key, value = transaction_record(asked.transactional_id, after)
        part = Decided([(key, value)], len(key) + len(value) + RECORD_ROOM)
        if part.size > self._max_bytes:
            return False
        markers = led.shard.apply_prepared(asked.transactional_id, after)
        part.replies = [Reply(ERRAND, markers), Reply(later, asked.reply(after.producer_id, after.epoch))]
        led.open.add(later)
        self._defer(led, [part])
        return True

    def add(self, who: Producer, places: Iterable[Place], client_version: int) -> Later:
        """The answer is Found."""
        return self._ask(
            who.transactional_id,
            lambda shard, token, now_ms: shard.on_add(token, who, places, client_version, now_ms),
        )

    def look(self, who: Producer, places: Iterable[Place]) -> Later:
        """Which of the partitions are part of the transaction; the answer is Found."""
        return self._ask(who.transactional_id, lambda shard, token, now_ms: shard.on_verify(token, who, places))

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[Place],
        *,
        add: bool,
    ) -> Later:
        """What a partition asks before it takes the first batch of a transaction: the answer is an error code for each.

        `add` makes them part of the transaction (transaction version 2); otherwise they have to be it already.
        """
        who = Producer(transactional_id, producer_id, producer_epoch)
        codes = Later()
        found = self.add(who, partitions, EPOCH_BUMPS_FROM) if add else self.look(who, partitions)
        found.then(lambda answer: codes.settle(_codes(answer, partitions)))
        return codes

    def last_one_ended(self, transactional_id: str) -> Later:
        """Settled when the transaction that is being ended has its markers; nobody waits for long, or for nothing.

        For whoever is about to add a partition, before it begins to verify: a marker that is written later ends that.
        """
        waiting = Later()
        others = self._ending.get(transactional_id)
        if others is None:
            waiting.settle(ENDED)
        else:
            others.append(waiting)
            asyncio.get_running_loop().call_later(END_WAIT_S, _settle_unless_settled, waiting)
        return waiting

    def _ask(self, transactional_id: str, event: Callable[[TransactionShard, Any, int], Step]) -> Later:
        if transactional_id:
            return self.submit(transactional_id, event)
        refused = Later()
        refused.settle(InvalidRequestError())
        return refused

    def _with_new_id(self, transactional_id: str, event: OnNewId) -> Later:
        whole = Later()

        def hear(answer: Any) -> None:
            if isinstance(answer, NeedsProducerIdError):
                self._spawn(again())
            else:
                whole.settle(answer)

        async def again() -> None:
            try:
                new_id = await self._new_producer_id()
            except KafkaError as error:
                whole.settle(error)
            except asyncio.CancelledError:  # the broker stops, and nobody is left waiting
                whole.settle(NotCoordinatorError())
                raise
            else:
                self._ask(transactional_id, partial(event, new_id=new_id)).then(hear)

        self._ask(transactional_id, partial(event, new_id=None)).then(hear)
        return whole

    # ---- errands ----

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _run(self, led: Led[TransactionShard], errand: Any) -> None:
        if self._closed:
            return
        if isinstance(errand, Overdue):
            self._spawn(self._abort(led, errand.transactional_id))
        elif isinstance(errand, Markers):
            self._ending.setdefault(errand.transactional_id, [])
            if not self._to_end:
                asyncio.get_running_loop().call_soon(self._end_all)
            self._to_end.append((led, errand))

    def _is_led(self, led: Led[TransactionShard]) -> bool:
        return self._led.get(led.index) is led and led.shard is not None

    async def _abort(self, led: Led[TransactionShard], transactional_id: str) -> None:
        new_id = await self._new_producer_id()
        if self._is_led(led) and led.shard is not None:
            self._carry_out(led, led.shard.on_overdue(transactional_id, new_id, self._clock.now_ms()))

    def _end_all(self) -> None:
        """Everything that was decided to end in the last turn; its answers are on their way already."""
        to_end, self._to_end = self._to_end, []
        for led, markers in to_end:
            if self._closed or not self._is_led(led):
                self._over(markers)
                continue
            written = self._write(led, markers, sorted(markers.places))
            if all(one.done() and one.result() == Err.NONE for one in written.values()):
                self._complete(led, markers)
                self._over(markers)
            else:
                self._spawn(self._end(led, markers, written))
        self.append_decided()

    async def _end(
        self, led: Led[TransactionShard], markers: Markers, written: dict[Place, asyncio.Future[int]]
    ) -> None:
        """Until the markers are in every partition that there is."""
        wait_s = RETRY_S
        try:
            while written:
                codes = {place: await one for place, one in written.items()}
                if not self._is_led(led):
                    return
                fenced = [place for place, code in codes.items() if code in FENCED]
                if fenced:
                    self._log.error(
                        "a transaction cannot be ended: a partition knows a newer epoch of its producer or coordinator",
                        transactional_id=markers.transactional_id,
                        partition="-".join(map(str, fenced[0])),
                    )
                    return
                left = [place for place, code in codes.items() if self._is_left(place, code)]
                if left:
                    await asyncio.sleep(wait_s)
                    wait_s = min(wait_s * 2, RETRY_MAX_S)
                    if not self._is_led(led):
                        return
                written = self._write(led, markers, left)
            self._complete(led, markers)
        finally:
            self._over(markers)

    def _complete(self, led: Led[TransactionShard], markers: Markers) -> None:
        if self._is_led(led) and led.shard is not None:
            self._carry_out(led, led.shard.on_markers_written(markers, self._clock.now_ms()))

    def _over(self, markers: Markers) -> None:
        for waiting in self._ending.pop(markers.transactional_id, ()):
            _settle_unless_settled(waiting)

    def _write(
        self, led: Led[TransactionShard], markers: Markers, places: Iterable[Place]
    ) -> dict[Place, asyncio.Future[int]]:
        return {place: self._write_one(led, markers, place) for place in places}

    def _write_one(self, led: Led[TransactionShard], markers: Markers, place: Place) -> asyncio.Future[int]:
        try:
            return self._write_marker(
                *place,
                markers.producer_id,
                markers.epoch,
                commit=markers.commit,
                coordinator_epoch=led.leader_epoch,
                transaction_version=markers.version,
            )
        except Exception as error:
            self._log.error(
                "a transaction's marker could not be written", cause=error, partition=f"{place[0]}-{place[1]}"
            )
            failed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            failed.set_result(UnknownServerError.code)
            return failed

    def _is_left(self, place: Place, code: int) -> bool:
        """Whether a marker must be tried again. Nothing is to be said in a partition that is gone."""
        if code == Err.NONE:
            return False
        topic = self._image().topics.get(place[0])
        return topic is not None and place[1] in topic.partitions


def _settle_unless_settled(waiting: Later) -> None:
    if not waiting.settled:
        waiting.settle(ENDED)


def _codes(answer: Any, partitions: list[Place]) -> dict[Place, int]:
    if isinstance(answer, Found):
        return answer.codes
    code = answer.code if isinstance(answer, KafkaError) else UnknownServerError.code
    return dict.fromkeys(partitions, code)
