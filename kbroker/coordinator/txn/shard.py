"""The transactional ids of one partition of __transaction_state.

`on_*` read and decide, and give a Step; `apply` alone changes what lasts, live and when the partition is read again. On
the short way `apply_prepared` does what it would: a property test holds it to that. An `on_*` that raises a KafkaError
has changed nothing: it is the answer to whoever asked. answers.py is the table that the decisions follow.

A decision that takes a producer id which it was not given is answered with NeedsProducerIdError, and asked again with
one: ids come from the cluster, and decisions wait for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from kbroker.coordinator.step import NO_PRODUCER, Record, Step, Timer
from kbroker.coordinator.txn.answers import ANSWERS, Do
from kbroker.coordinator.txn.settings import TransactionSettings
from kbroker.coordinator.txn.transaction import (
    EPOCH_BUMPS_FROM,
    MAX_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    PREPARED,
    STATES_BY_TITLE,
    TAGGED_FROM,
    Place,
    State,
    Transaction,
    is_exhausted,
    transaction_of,
)
from kbroker.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionalIdNotFoundError,
)
from kbroker.protocol.message import Struct
from kbroker.protocol.messages import (
    DescribeTransactionsResponse,
    EndTxnResponse,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kbroker.protocol.records import TransactionLogKey, TransactionLogValue

NONE = 0
ABORTS = Timer("aborts", "")
EXPIRY = Timer("expiry", "")


class Producer(NamedTuple):
    """Who asks."""

    transactional_id: str
    producer_id: int
    epoch: int


class Ending(Protocol):
    """EndTxn, as the short way reads it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


class Wish(NamedTuple):
    """InitProducerId. `expected` is the id and epoch that a producer goes on from (KIP-360)."""

    transactional_id: str
    timeout_ms: int
    expected: tuple[int, int] | None = None


class Found(Struct):
    """An error code for each partition that was asked for."""

    __slots__ = ("codes",)

    def __init__(self, codes: dict[Place, int]) -> None:
        self.codes = codes


class NeedsProducerIdError(Exception):
    """Ask again, with a producer id that nobody has had."""


class Markers(NamedTuple):
    """Errand: the end of a transaction is to be written into each of its partitions, and then told to the shard."""

    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool
    places: frozenset[Place]
    version: int


class Overdue(NamedTuple):
    """Errand: a transaction is to be aborted, and its producer's epochs are used up."""

    transactional_id: str


class TransactionShard:
    def __init__(self, settings: TransactionSettings, level: Callable[[], int]) -> None:
        """`level`: the cluster's transaction.version."""
        self.transactions: dict[str, Transaction] = {}
        self.open_ids: set[str] = set()  # whose transaction is open
        self.last_epochs: dict[str, int] = {}  # epochs before the current ones; no record tells them
        self._settings = settings
        self._level = level

    # ---- what lasts ----

    def apply(self, record: Record, producer_id: int = NO_PRODUCER) -> None:
        """One record of the log, in its order."""
        key, value = record
        assert isinstance(key, TransactionLogKey)
        transactional_id = key.transactional_id
        self.open_ids.discard(transactional_id)
        if value is None:
            self.transactions.pop(transactional_id, None)
            return
        assert isinstance(value, TransactionLogValue)
        transaction = self.transactions[transactional_id] = transaction_of(value)
        if transaction.state == State.ONGOING:
            self.open_ids.add(transactional_id)

    def apply_end(self, producer_id: int, *, commit: bool) -> None:
        """There are no transactions in this topic: it tells of those in others."""

    def _move(self, step: Step, transactional_id: str, before: Transaction, after: Transaction) -> None:
        after = after._replace(previous_producer_id=before.producer_id)
        step.records.append(after.record(transactional_id, self._level()))
        if after.state in PREPARED:
            step.errand(_markers(transactional_id, after))

    # ---- events ----

    def on_loaded(self, now_ms: int) -> Step:
        """The log is read and this shard answers from now on. What was about to end is ended."""
        step = self._arm(Step(), now_ms, ABORTS, EXPIRY)
        for transactional_id, transaction in self.transactions.items():
            if transaction.state in PREPARED:
                step.errand(_markers(transactional_id, transaction))
        return step

    def _arm(self, step: Step, now_ms: int, *timers: Timer) -> Step:
        for timer in timers:
            interval_ms = (
                self._settings.abort_check_interval_ms if timer is ABORTS else self._settings.expiry_check_interval_ms
            )
            step.arm(timer, now_ms + interval_ms)
        return step

    def on_timer(self, timer: Timer, now_ms: int) -> Step:
        if timer == EXPIRY:
            return self._arm(self._expire(now_ms), now_ms, EXPIRY)
        step = Step(divisible=True)
        for transactional_id in self.open_ids:
            if self._is_overdue(self.transactions[transactional_id], now_ms):
                self._abort_overdue(step, transactional_id, None, now_ms)
        return self._arm(step, now_ms, ABORTS)

    def on_overdue(self, transactional_id: str, new_id: int, now_ms: int) -> Step:
        """Again, with a producer id at hand."""
        step = Step()
        transaction = self.transactions.get(transactional_id)
        if transaction is not None and self._is_overdue(transaction, now_ms):
            self._abort_overdue(step, transactional_id, new_id, now_ms)
        return step

    def _is_overdue(self, transaction: Transaction, now_ms: int) -> bool:
        return transaction.state == State.ONGOING and transaction.start_ms + transaction.timeout_ms < now_ms

    def _abort_overdue(self, step: Step, transactional_id: str, new_id: int | None, now_ms: int) -> None:
        if not self._fence(step, transactional_id, new_id, now_ms):
            step.errand(Overdue(transactional_id))

    def _fence(self, step: Step, transactional_id: str, new_id: int | None, now_ms: int) -> bool:
        """Aborts what is open under an epoch that nobody has. False: that takes a producer id."""
        before = self.transactions[transactional_id]
        bumps = self._level() >= EPOCH_BUMPS_FROM
        rotates = bumps and before.is_exhausted
        if rotates and new_id is None:
            return False
        after = before._replace(
            state=State.PREPARE_ABORT,
            epoch=min(before.epoch + 1, MAX_EPOCH),
            next_producer_id=new_id if rotates and new_id is not None else NO_PRODUCER_ID,
            update_ms=now_ms,
            client_version=EPOCH_BUMPS_FROM if bumps else 0,
        )
        self._remember_epoch(transactional_id, before.epoch if bumps else NO_EPOCH)
        self._move(step, transactional_id, before, after)
        return True

    def _remember_epoch(self, transactional_id: str, epoch: int) -> None:
        if epoch == NO_EPOCH:
            self.last_epochs.pop(transactional_id, None)
        else:
            self.last_epochs[transactional_id] = epoch

    def _expire(self, now_ms: int) -> Step:
        step = Step(divisible=True)
        for transactional_id, transaction in self.transactions.items():
            idle = transaction.state != State.ONGOING and transaction.state not in PREPARED
            if idle and transaction.update_ms <= now_ms - self._settings.id_expiration_ms:
                step.records.append(Record(TransactionLogKey(transactional_id=transactional_id), None))
                self._remember_epoch(transactional_id, NO_EPOCH)
        return step

    # ---- producers ----

    def on_init_producer(self, token: object, wish: Wish, new_id: int | None, now_ms: int) -> Step:
        transactional_id, timeout_ms, expected = wish
        if not 0 < timeout_ms <= self._settings.max_timeout_ms:
            raise InvalidTransactionTimeoutError()
        step = Step()
        before = self.transactions.get(transactional_id)
        if before is None:
            if new_id is None:
                return _needs_id(token)
            self._remember_epoch(transactional_id, NO_EPOCH)
            before = Transaction(new_id, NO_EPOCH, timeout_ms)
            return self._init(step, token, transactional_id, before, before._replace(epoch=0, update_ms=now_ms))
        do = ANSWERS[before.state].init
        if do is Do.WAIT:
            raise ConcurrentTransactionsError()
        if expected is not None and not _goes_on_from(before, *expected):
            raise ProducerFencedError()
        if do is Do.FENCE:
            if not self._fence(step, transactional_id, new_id, now_ms):
                return _needs_id(token)
            step.reply(token, ConcurrentTransactionsError())
            return step
        producer_id, epoch = before.producer_id, before.epoch + 1
        last_epoch = NO_EPOCH if expected is None else before.epoch
        if expected is not None and expected[1] != before.epoch:
            if expected[1] != self.last_epochs.get(transactional_id):
                raise ProducerFencedError()
            epoch, last_epoch = before.epoch, expected[1]  # its answer was lost
        elif before.is_exhausted:
            if new_id is None:
                return _needs_id(token)
            producer_id, epoch = new_id, 0
        self._remember_epoch(transactional_id, last_epoch)
        after = before._replace(
            producer_id=producer_id,
            epoch=epoch,
            timeout_ms=timeout_ms,
            state=State.EMPTY,
            places=frozenset(),
            start_ms=NO_TIME,
            update_ms=now_ms,
            next_producer_id=NO_PRODUCER_ID,
        )
        return self._init(step, token, transactional_id, before, after)

    def _init(self, step: Step, token: object, transactional_id: str, before: Transaction, after: Transaction) -> Step:
        self._move(step, transactional_id, before, after)
        step.reply(token, InitProducerIdResponse(producer_id=after.producer_id, producer_epoch=after.epoch))
        return step

    def _claimed(self, who: Producer) -> Transaction:
        """The transaction that this producer means. KafkaError: it is another's."""
        transaction = self._mapped(who)
        if who.epoch != transaction.epoch:
            raise ProducerFencedError()
        return transaction

    def _mapped(self, who: Producer) -> Transaction:
        transaction = self.transactions.get(who.transactional_id)
        if transaction is None or transaction.producer_id != who.producer_id:
            raise InvalidProducerIdMappingError()
        return transaction

    # ---- partitions ----

    def on_add(self, token: object, who: Producer, places: Iterable[Place], client_version: int, now_ms: int) -> Step:
        step = Step()
        before = self._claimed(who)
        if ANSWERS[before.state].add is Do.WAIT:
            raise ConcurrentTransactionsError()
        added = frozenset(places)
        is_open = before.state == State.ONGOING
        if not is_open or not added <= before.places:
            after = before._replace(
                state=State.ONGOING,
                places=before.places | added,
                start_ms=before.start_ms if is_open else now_ms,
                update_ms=now_ms,
                client_version=client_version,
            )
            self._move(step, who.transactional_id, before, after)
        step.reply(token, Found(dict.fromkeys(added, NONE)))
        return step

    def on_verify(self, token: object, who: Producer, places: Iterable[Place]) -> Step:
        transaction = self._claimed(who)
        if ANSWERS[transaction.state].verify is Do.WAIT:
            raise ConcurrentTransactionsError()
        missing = TransactionAbortableError.code
        step = Step()
        step.reply(token, Found({one: NONE if one in transaction.places else missing for one in places}))
        return step

    # ---- the end ----

    def on_end(
        self, token: object, who: Producer, *, commit: bool, client_version: int, new_id: int | None, now_ms: int
    ) -> Step:
        if client_version < EPOCH_BUMPS_FROM:
            before = self._claimed(who)
            do = ANSWERS[before.state].end.of(commit=commit)
        else:
            before, do = self._end_of(who, commit=commit)
        if do is Do.WAIT:
            raise ConcurrentTransactionsError()
        if do is Do.FENCED:
            raise ProducerFencedError()
        if do is Do.REFUSE:
            raise InvalidTxnStateError()
        step = Step()
        told = before
        if do is Do.END:
            after = _prepared(before, commit=commit, client_version=client_version, now_ms=now_ms)
            if after.bumps_epoch:
                if before.is_exhausted:
                    if new_id is None:
                        return _needs_id(token)
                    after = after._replace(next_producer_id=new_id)
                self._remember_epoch(who.transactional_id, before.epoch)
            self._move(step, who.transactional_id, before, after)
            told = _completed(after, now_ms)
        step.reply(token, EndTxnResponse(producer_id=told.producer_id, producer_epoch=told.epoch))
        return step

    def admit_end(self, asked: Ending, client_version: int, now_ms: int) -> Transaction | None:
        """The short way: an open transaction is ended by the producer that it is of; what it is from then on.

        None: nothing is decided, and on_end must be asked. Else apply_prepared is next.
        """
        before = self.transactions.get(asked.transactional_id)
        if (
            before is None
            or before.state != State.ONGOING
            or before.producer_id != asked.producer_id
            or before.producer_id < 0
            or before.epoch != asked.producer_epoch
            or before.is_exhausted
            or self._level() < TAGGED_FROM
        ):
            return None
        return _prepared(before, commit=asked.committed, client_version=client_version, now_ms=now_ms)

    def apply_prepared(self, transactional_id: str, after: Transaction) -> Markers:
        """What on_end remembers, and what apply() makes of its record; the errand that follows."""
        if after.bumps_epoch:
            self._remember_epoch(transactional_id, after.epoch - 1)
        self.transactions[transactional_id] = after
        self.open_ids.discard(transactional_id)
        return _markers(transactional_id, after)

    def _end_of(self, who: Producer, *, commit: bool) -> tuple[Transaction, Do]:
        """What an end of transaction version 2 does: the producer may not have heard of its newest id and epoch."""
        transaction = self.transactions.get(who.transactional_id)
        if transaction is None:
            raise InvalidProducerIdMappingError()
        row = ANSWERS[transaction.state]
        overflowed = (
            transaction.previous_producer_id == who.producer_id
            and who.epoch == MAX_EPOCH - 1
            and transaction.epoch == 0
        )
        if transaction.producer_id != who.producer_id and not overflowed:
            raise InvalidProducerIdMappingError()
        if row.end_new.commit is Do.WAIT:
            return transaction, Do.WAIT
        if overflowed and transaction.state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT):
            return transaction, row.end_again.of(commit=commit)
        if transaction.producer_id == who.producer_id and who.epoch == transaction.epoch:
            return transaction, row.end_new.of(commit=commit)
        if transaction.producer_id == who.producer_id and who.epoch == transaction.epoch - 1:
            return transaction, row.end_again.of(commit=commit)
        raise ProducerFencedError()

    def on_markers_written(self, markers: Markers, now_ms: int) -> Step:
        """They are in every partition, or those partitions are gone."""
        step = Step()
        before = self.transactions.get(markers.transactional_id)
        if (
            before is not None
            and before.state in PREPARED
            and (before.producer_id, before.epoch) == (markers.producer_id, markers.epoch)
        ):
            self._move(step, markers.transactional_id, before, _completed(before, now_ms))
        return step

    # ---- operators ----

    def on_describe(self, token: object, transactional_id: str) -> Step:
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            raise TransactionalIdNotFoundError()
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(transaction.places):
            topics.setdefault(topic, []).append(partition)
        step = Step()
        step.reply(
            token,
            DescribeTransactionsResponse.TransactionState(
                transactional_id=transactional_id,
                transaction_state=transaction.state.title,
                transaction_timeout_ms=transaction.timeout_ms,
                transaction_start_time_ms=transaction.start_ms,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.epoch,
                topics=[
                    DescribeTransactionsResponse.TopicData(topic=topic, partitions=partitions)
                    for topic, partitions in topics.items()
                ],
            ),
        )
        return step

    def on_list(
        self, token: object, request: ListTransactionsRequest, matches: Callable[[str], bool] | None, now_ms: int
    ) -> Step:
        """Those of this shard; the answer of the node is made of all shards'."""
        states = {STATES_BY_TITLE.get(title) for title in request.state_filters}
        producers = set(request.producer_id_filters)
        step = Step()
        step.reply(
            token,
            ListTransactionsResponse(
                transaction_states=[
                    ListTransactionsResponse.TransactionState(
                        transactional_id=transactional_id,
                        producer_id=one.producer_id,
                        transaction_state=one.state.title,
                    )
                    for transactional_id, one in self.transactions.items()
                    if (not states or one.state in states)
                    and (not producers or one.producer_id in producers)
                    and (request.duration_filter < 0 or now_ms - one.start_ms > request.duration_filter)
                    and (matches is None or matches(transactional_id))
                ]
            ),
        )
        return step


def _needs_id(token: object) -> Step:
    step = Step()
    step.reply(token, NeedsProducerIdError())
    return step


def _goes_on_from(transaction: Transaction, producer_id: int, epoch: int) -> bool:
    """The id is the current one, or the one before it which ran out of epochs: the answer with the new one was lost."""
    return producer_id == transaction.producer_id or (
        producer_id == transaction.previous_producer_id and is_exhausted(epoch)
    )


def _prepared(before: Transaction, *, commit: bool, client_version: int, now_ms: int) -> Transaction:
    """About to end: its markers come next."""
    bumps = client_version >= EPOCH_BUMPS_FROM
    return Transaction(
        producer_id=before.producer_id,
        epoch=min(before.epoch + 1, MAX_EPOCH) if bumps else before.epoch,
        timeout_ms=before.timeout_ms,
        state=State.PREPARE_COMMIT if commit else State.PREPARE_ABORT,
        places=before.places,
        start_ms=before.start_ms if before.state == State.ONGOING else now_ms,
        update_ms=now_ms,
        previous_producer_id=before.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        client_version=client_version,
    )


def _completed(transaction: Transaction, now_ms: int) -> Transaction:
    rotates = transaction.bumps_epoch and transaction.next_producer_id != NO_PRODUCER_ID
    return transaction._replace(
        state=State.COMPLETE_COMMIT if transaction.state == State.PREPARE_COMMIT else State.COMPLETE_ABORT,
        producer_id=transaction.next_producer_id if rotates else transaction.producer_id,
        epoch=0 if rotates else transaction.epoch,
        next_producer_id=NO_PRODUCER_ID,
        places=frozenset(),
        update_ms=now_ms,
    )


def _markers(transactional_id: str, transaction: Transaction) -> Markers:
    return Markers(
        transactional_id,
        transaction.producer_id,
        transaction.epoch,
        transaction.state == State.PREPARE_COMMIT,
        transaction.places,
        transaction.client_version,
    )
