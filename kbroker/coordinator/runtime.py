"""The edge that all coordinators share: it gives each request to the shard of its partition and carries out what that
decides.

    request -> the shard of its key's partition decides: a Step
            -> its records are applied at once, so that the next decision sees them
            -> everything decided in this turn of the loop is appended as one batch
            -> the high watermark passes it -> the replies leave, and the step's errands begin

A reply never tells of a record that could still be lost. If an append fails, what was applied has parted from the log:
everyone who waits gets an error on which clients ask again, and the shard is read anew.

What belongs to a producer's transaction goes the other way round: it is a batch of its own, which the log may refuse
because of its epoch, and is applied once it stands there.

Everything here runs on the control loop, but for the reading of a log, which has a thread of its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from kbroker._core.clock import BrokerClock
from kbroker._core.errors import Err
from kbroker._core.log.partition_log import LogError, PartitionLog
from kbroker._core.partitions import PartitionHandle
from kbroker._core.record.records import BrokenRecords, build_batch, build_plain_batch
from kbroker._core.record.records import Record as LogRecord
from kbroker.coordinator.frames import encode_record
from kbroker.coordinator.later import Later
from kbroker.coordinator.placement import partition_for
from kbroker.coordinator.replay import Replayed, replay
from kbroker.coordinator.step import ERRAND, Producing, Reply, Step, Timer
from kbroker.coordinator.timers import Timers
from kbroker.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    KafkaError,
    NotCoordinatorError,
    UnknownServerError,
    by_code,
)
from kbroker.protocol.codec import EncodeError

RECORD_ROOM = 24  # bytes of a record around its key and value, at most
BATCH_ROOM = 61  # bytes of a batch's header
BATCH_BYTES = 512 * 1024  # of records from which on a batch is not made larger
LOOK_AT_CLOCK_S = 0.02  # a held clock moves without telling
COMMIT_POLL_S = 0.001  # only while a batch waits for its high watermark
RELOAD_AFTER_S = 0.2
GONE = {Err.UNKNOWN_TOPIC_OR_PARTITION, Err.NOT_LEADER_OR_FOLLOWER}
OF_THE_PRODUCER = {  # refusals that say nothing of the log
    Err.INVALID_PRODUCER_EPOCH,
    Err.INVALID_TXN_STATE,
    Err.MESSAGE_TOO_LARGE,
    Err.RECORD_LIST_TOO_LARGE,
}


class Shard(Replayed, Protocol):
    """The decisions over one partition of a coordinator's topic."""

    def on_loaded(self, now_ms: int) -> Step: ...
    def on_timer(self, timer: Timer, now_ms: int) -> Step: ...


S = TypeVar("S", bound=Shard)
Event = Callable[[S, Any, int], Step]
"""(shard, token, now in ms) -> what it decides."""


class Decided:
    """One step's records as bytes, and who is told of them."""

    __slots__ = ("records", "replies", "size")

    def __init__(self, records: list[tuple[bytes, bytes | None]], size: int) -> None:
        self.records = records
        self.replies: list[Reply] = []
        self.size = size


class Led(Generic[S]):
    """A partition of the topic that this node leads."""

    def __init__(self, index: int, leader_epoch: int, handle: PartitionHandle) -> None:
        self.index = index
        self.leader_epoch = leader_epoch
        self.handle = handle
        self.shard: S | None = None  # None while its log is read, and when it cannot be
        self.failed = False
        self.decided: list[Decided] = []  # to be appended at the end of this turn
        self.appended: deque[tuple[int, list[Reply]]] = deque()  # (end offset, replies) above the high watermark
        self.open: set[Later] = set()  # requests without an answer yet


class Site(NamedTuple):
    """Where a coordinator stands: its node, and whom it asks and tells there."""

    node_id: int
    image: Callable[[], Any]
    find: Callable[[str, int], PartitionHandle | None]
    clock: BrokerClock
    log: Any
    in_thread: Callable[..., Awaitable[Any]]


class Edge(Generic[S]):
    """One coordinator of this node: the shards of its topic, a partition each."""

    TOPIC: str
    KIND: str  # of its records, see frames.py
    CALLED: str  # in the log
    TOO_LARGE: type[KafkaError]  # a step's records do not fit a batch
    UNWRITABLE: type[KafkaError]  # a record cannot be written, for a name is too long
    NO_TOPIC: type[KafkaError] = CoordinatorNotAvailableError  # the topic was not made yet

    def __init__(self, site: Site, max_record_bytes: int) -> None:
        self._node_id = site.node_id
        self._image = site.image
        self._find = site.find
        self._clock = site.clock
        self._log = site.log
        self._in_thread = site.in_thread
        self._max_bytes = max_record_bytes - BATCH_ROOM  # of one step's records
        self._led: dict[int, Led[S]] = {}
        self._count = 0  # partitions of the topic; 0: there is none yet
        self._timers: Timers[tuple[Led[S], Timer]] = Timers()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms = 0
        self._dirty: list[Led[S]] = []  # with decisions that are not appended
        self._polling = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def _new_shard(self) -> S:
        raise NotImplementedError

    def _run(self, led: Led[S], errand: Any) -> None:
        """What a step asked for besides its replies; its records are committed."""
        raise NotImplementedError

    # ---- requests ----

    def submit(self, key: str, event: Event[S]) -> Later:
        """Lets the shard of a group or a transactional id decide. The answer is its response, or a KafkaError."""
        later = Later()
        try:
            led = self._responsible(key)
            self._decide(led, event, later)
        except KafkaError as error:
            _settle_once(later, error)
        except Exception as error:
            self._log.error(f"a {self.CALLED}'s decision failed", cause=error, key=key)
            _settle_once(later, UnknownServerError())
        return later

    def submit_to_all(self, event: Event[S]) -> list[Later]:
        """Lets every shard of this node decide; COORDINATOR_LOAD_IN_PROGRESS for those whose log is still read."""
        found = []
        for led in self._led.values():
            later = Later()
            try:
                if led.shard is None:
                    raise CoordinatorLoadInProgressError()
                self._decide(led, event, later)
            except KafkaError as error:
                _settle_once(later, error)
            found.append(later)
        return found

    def partition_of(self, key: str) -> int | None:
        """None: the topic does not exist yet."""
        return partition_for(key, self._count) if self._count else None

    def _responsible(self, key: str) -> Led[S]:
        if self._closed or not self._count:
            raise self.NO_TOPIC()
        led = self._led.get(partition_for(key, self._count))
        if led is None or led.failed:
            raise NotCoordinatorError()
        if led.shard is None:
            raise CoordinatorLoadInProgressError()
        return led

    def _decide(self, led: Led[S], event: Event[S], later: Later) -> None:
        assert led.shard is not None
        led.open.add(later)
        try:
            step = event(led.shard, later, self._clock.now_ms())
            self._carry_out(led, step)
        except BaseException:
            led.open.discard(later)
            raise

    def _ready(self, key: str) -> Led[S] | None:
        """None: submit() would say why."""
        if self._closed or not self._count:
            return None
        led = self._led.get(partition_for(key, self._count))
        return None if led is None or led.failed else led

    # ---- what was decided ----

    def _carry_out(self, led: Led[S], step: Step) -> None:
        assert led.shard is not None
        if step.producer is not None and step.records:
            self._append_in_transaction(led, step, step.producer)
        elif step.records:
            parts = self._encode(step)
            for record in step.records:
                led.shard.apply(record)
            parts[-1].replies = step.replies
            self._defer(led, parts)
        else:
            self._reply(led, step.replies)
        if step.timers:
            self._arm(led, step.timers)

    def _defer(self, led: Led[S], parts: list[Decided]) -> None:
        """To the end of this turn: what is decided in it is appended together."""
        if not led.decided:
            self._dirty.append(led)
            if len(self._dirty) == 1:
                asyncio.get_running_loop().call_soon(self.append_decided)
        led.decided += parts

    def _reply(self, led: Led[S], replies: list[Reply]) -> None:
        """Without records of its own: it may tell of what is not appended yet, or not committed."""
        if led.decided:
            led.decided[-1].replies += replies
        elif led.appended:
            led.appended[-1][1].extend(replies)
        else:
            self._settle(led, replies)

    def _encode(self, step: Step) -> list[Decided]:
        try:
            encoded = [encode_record(record) for record in step.records]
        except EncodeError as problem:
            raise self.UNWRITABLE(str(problem)) from None
        parts = _parts(encoded, self._max_bytes if step.divisible else None)
        if any(part.size > self._max_bytes for part in parts):
            raise self.TOO_LARGE()
        return parts

    def _settle(self, led: Led[S], replies: Iterable[Reply]) -> None:
        for token, answer in replies:
            if token in led.open:
                assert isinstance(token, Later), token
                led.open.discard(token)
                token.settle(answer)
            elif token is ERRAND:
                self._run(led, answer)

    def append_decided(self) -> None:
        """The end of a turn; whoever gave several requests may call it early."""
        dirty, self._dirty = self._dirty, []
        for led in dirty:
            self._append_all(led)

    def _append_all(self, led: Led[S]) -> None:
        decided, led.decided = led.decided, []
        for batch in _in_batches(decided):
            if self._led.get(led.index) is not led or led.failed:
                break  # everyone was told already
            self._append(led, batch)

    def _append(self, led: Led[S], batch: list[Decided]) -> None:
        records = [record for one in batch for record in one.records]
        try:
            produced = led.handle.append(build_plain_batch(records, self._clock.now_ms()))
        except OSError as problem:
            self._lose(led, problem)
            return
        if produced.error != Err.NONE:
            self._lose(led, None, produced.error)
            return
        self._await_commit(led, produced.base_offset + len(records), [reply for one in batch for reply in one.replies])

    def _append_in_transaction(self, led: Led[S], step: Step, producer: Producing) -> None:
        """A batch of its own. KafkaError: the log knows better of this producer, and nothing was applied."""
        assert led.shard is not None
        (part,) = self._encode(step)
        now = self._clock.now_ms()
        batch = build_batch(
            [LogRecord(timestamp=now, key=key, value=value) for key, value in part.records],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=0,
            transactional=True,
        )
        self._append_all(led)  # it stands behind what was decided before
        if self._led.get(led.index) is not led:
            raise NotCoordinatorError()
        try:
            produced = led.handle.append(batch, guard=producer.guard)
        except OSError as problem:
            self._lose(led, problem)
            raise CoordinatorNotAvailableError() from None
        if produced.error in OF_THE_PRODUCER:
            raise by_code(produced.error)()
        if produced.error != Err.NONE:
            self._lose(led, None, produced.error)
            raise CoordinatorNotAvailableError()
        for record in step.records:
            led.shard.apply(record, producer.producer_id)
        self._await_commit(led, produced.base_offset + len(part.records), step.replies)

    def _await_commit(self, led: Led[S], end: int, replies: list[Reply]) -> None:
        if led.handle.high_watermark >= end and not led.appended:
            self._settle(led, replies)
        else:
            led.appended.append((end, replies))
            self._poll()

    def _poll(self) -> None:
        if not self._polling:
            self._polling = True
            asyncio.get_running_loop().call_later(COMMIT_POLL_S, self._look_at_watermarks)

    def _look_at_watermarks(self) -> None:
        self._polling = False
        for led in list(self._led.values()):
            while led.appended and led.appended[0][0] <= led.handle.high_watermark:
                self._settle(led, led.appended.popleft()[1])
            if led.appended:
                self._poll()

    def _lose(self, led: Led[S], problem: Exception | None, code: int = Err.KAFKA_STORAGE_ERROR) -> None:
        """An append failed: the shard knows what the log does not. It is read anew, if this node still leads it."""
        if code in GONE:
            self._drop(led, NotCoordinatorError())  # its topic was deleted, or another leads: no failure
        else:
            self._log.error(
                f"a {self.CALLED} could not append", partition=led.index, reason=str(problem or Err(code).name)
            )
            self._drop(led, CoordinatorNotAvailableError())
        if not self._closed:
            asyncio.get_running_loop().call_later(RELOAD_AFTER_S, self._elect)

    # ---- timers ----

    def _arm(self, led: Led[S], timers: Iterable[tuple[Timer, int | None]]) -> None:
        ahead = self._clock.monotonic_ms() - self._clock.now_ms()  # deadlines must not jump when the wall clock does
        for timer, at_ms in timers:
            if at_ms is None:
                self._timers.disarm((led, timer))
            else:
                self._timers.arm((led, timer), at_ms + ahead)
                if self._alarm is None or at_ms + ahead < self._alarm_ms:
                    self._set_alarm()

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        next_ms = self._timers.next_ms()
        if next_ms is not None and not self._closed:
            self._alarm_ms = next_ms
            wait_s = max(0, next_ms - self._clock.monotonic_ms()) / 1000
            self._alarm = asyncio.get_running_loop().call_later(min(wait_s, LOOK_AT_CLOCK_S), self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = None
        now_ms = self._clock.monotonic_ms()
        for _ in range(len(self._timers)):  # one at a time: what the first brings about may disarm the second
            due = self._timers.next_due(now_ms)
            if due is None:
                break
            led, timer = due
            if self._led.get(led.index) is led and led.shard is not None:
                try:
                    self._carry_out(led, led.shard.on_timer(timer, self._clock.now_ms()))
                except Exception as error:
                    self._log.error(f"a {self.CALLED}'s timer failed", cause=error, timer=timer.kind)
        self._set_alarm()

    # ---- leadership ----

    async def on_commit(self, image: Any, delta: Any) -> None:
        """The controller's listener, after the replicas': what this node leads now."""
        self._elect()

    # ---- for those who look on ----

    @property
    def is_loading(self) -> bool:
        return bool(self._tasks)

    def shard_of(self, key: str) -> S | None:
        led = self._ready(key)
        return None if led is None else led.shard

    def deadlines(self) -> dict[Timer, int]:
        """Of everyone's timers, by the monotonic clock."""
        return {timer: at_ms for (_, timer), at_ms in self._timers.deadlines().items()}

    def start(self) -> None:
        self._elect()

    def _elect(self) -> None:
        topic = self._image().topics.get(self.TOPIC)
        partitions = {} if topic is None else topic.partitions
        self._count = len(partitions)
        for index, led in list(self._led.items()):
            one = partitions.get(index)
            if one is None or one.leader != self._node_id or one.leader_epoch != led.leader_epoch:
                self._drop(led, NotCoordinatorError())
        for index, one in partitions.items():
            handle = self._find(self.TOPIC, index)
            if one.leader == self._node_id and index not in self._led and handle is not None:
                self._take(Led(index, one.leader_epoch, handle))

    def _take(self, led: Led[S]) -> None:
        self._led[led.index] = led
        log = led.handle.log
        if log is None or log.offline_errno:
            led.failed = True
        elif log.log_end_offset == log.log_start_offset:
            self._begin(led, self._new_shard())
        else:
            task = asyncio.get_running_loop().create_task(self._load(led, log))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _load(self, led: Led[S], log: PartitionLog) -> None:
        shard = self._new_shard()
        try:
            passed_over = await self._in_thread(replay, self.KIND, shard, log)
        except (BrokenRecords, LogError, OSError) as problem:  # the disk's doing
            led.failed = True
            self._log.error(
                f"a partition of the {self.CALLED} cannot be read",
                topic=self.TOPIC,
                partition=led.index,
                reason=str(problem),
            )
            return
        except Exception as problem:
            led.failed = True
            self._log.error(f"a partition of the {self.CALLED} cannot be used", partition=led.index, cause=problem)
            return
        if passed_over:
            self._log.warning("records of unknown kinds were passed over", partition=led.index, count=passed_over)
        if self._led.get(led.index) is led:
            self._begin(led, shard)

    def _begin(self, led: Led[S], shard: S) -> None:
        led.shard = shard
        self._carry_out(led, shard.on_loaded(self._clock.now_ms()))

    def _drop(self, led: Led[S], error: KafkaError) -> None:
        if self._led.get(led.index) is led:
            del self._led[led.index]
        led.decided, led.shard = [], None
        led.appended.clear()
        self._timers.disarm_all(lambda name: name[0] is led)
        waiting, led.open = led.open, set()
        for later in waiting:
            later.settle(error)

    def resign(self) -> None:
        """Before a stop: nobody is left waiting."""
        self.append_decided()
        self._closed = True
        for led in list(self._led.values()):
            self._drop(led, NotCoordinatorError())
        if self._alarm is not None:
            self._alarm.cancel()
        for task in self._tasks:
            task.cancel()


def _settle_once(later: Later, error: KafkaError) -> None:
    if not later.settled:  # whoever lost the partition has told everyone
        later.settle(error)


def _parts(records: list[tuple[bytes, bytes | None]], most: int | None) -> list[Decided]:
    """The records as one, or if they may be parted as several of at most so many bytes."""
    found: list[Decided] = []
    part: list[tuple[bytes, bytes | None]] = []
    size = 0
    for key, value in records:
        more = len(key) + (len(value) if value is not None else 0) + RECORD_ROOM
        if most is not None and part and size + more > most:
            found.append(Decided(part, size))
            part, size = [], 0
        part.append((key, value))
        size += more
    found.append(Decided(part, size))
    return found


def _in_batches(decided: list[Decided]) -> Iterator[list[Decided]]:
    """What fits a batch together; one step's records are never parted."""
    batch: list[Decided] = []
    size = 0
    for one in decided:
        if batch and size + one.size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += one.size
    if batch:
        yield batch


async def answer_of(later: Later) -> Any:
    """What it is settled with, an exception included."""
    heard: list[Any] = []
    later.then(heard.append)
    if heard:
        return heard[0]
    future = asyncio.get_running_loop().create_future()
    later.then(lambda answer: None if future.done() else future.set_result(answer))
    return await future
