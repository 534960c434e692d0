"""The group coordinator's edge: it gives each request to the shard of its partition and carries out what that decides.

    request -> the shard of the group's partition of __consumer_offsets decides: a Step
            -> its records are applied at once, so that the next decision sees them
            -> everything decided in this turn of the loop is appended as one batch
            -> the high watermark passes it -> the replies leave

A reply never tells of a record that could still be lost. If an append fails, what was applied has parted from the log:
everyone who waits gets an error on which clients ask again, and the shard is read anew.

Everything here runs on the control loop, but for the reading of a log, which has a thread of its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

from kbroker._core.clock import BrokerClock
from kbroker._core.errors import Err
from kbroker._core.log.partition_log import PartitionLog
from kbroker._core.partitions import PartitionHandle
from kbroker._core.record.records import BrokenRecords, build_batch, iterate
from kbroker._core.record.records import Record as LogRecord
from kbroker._core.record.records import batches as headers_of
from kbroker.coordinator.frames import GROUP, decode_record, encode_record
from kbroker.coordinator.group.consumer_settings import ConsumerSettings
from kbroker.coordinator.group.facts import TopicFacts
from kbroker.coordinator.group.settings import GroupSettings
from kbroker.coordinator.group.shard import GroupShard
from kbroker.coordinator.later import Later
from kbroker.coordinator.placement import OFFSETS_TOPIC, partition_for
from kbroker.coordinator.re2_engine import Re2
from kbroker.coordinator.step import NO_PRODUCER, Reply, Step, Timer
from kbroker.coordinator.timers import Timers
from kbroker.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidCommitOffsetSizeError,
    InvalidGroupIdError,
    KafkaError,
    NotCoordinatorError,
    UnknownServerError,
)
from kbroker.protocol.codec import DecodeError, EncodeError

READ_BYTES = 1 << 20
RECORD_ROOM = 24  # bytes of a record around its key and value, at most
BATCH_ROOM = 61  # bytes of a batch's header
BATCH_BYTES = 512 * 1024  # of records from which on a batch is not made larger
LOOK_AT_CLOCK_S = 0.02  # a held clock moves without telling
COMMIT_POLL_S = 0.001  # only while a batch waits for its high watermark
RELOAD_AFTER_S = 0.2
COMMIT_MARKER = 1
GONE = {Err.UNKNOWN_TOPIC_OR_PARTITION, Err.NOT_LEADER_OR_FOLLOWER}
KEPT_SETTINGS = 10_000  # groups whose settings are kept ready

Event = Callable[[GroupShard, Any, int], Step]
"""(shard, token, now in ms) -> what it decides."""


class TopicsOf:
    """The committed image's topics, as a shard asks for them."""

    def __init__(self, image: Callable[[], Any], version: Callable[[], int]) -> None:
        self._image = image
        self._version = version

    def find(self, name: str) -> TopicFacts | None:
        found = self._image().topics.get(name)
        return None if found is None else TopicFacts(found.name, found.topic_id, len(found.partitions))

    def find_id(self, topic_id: bytes) -> TopicFacts | None:
        found = self._image().topics_by_id.get(topic_id)
        return None if found is None else TopicFacts(found.name, found.topic_id, len(found.partitions))

    def names(self) -> Iterable[str]:
        return list(self._image().topics)

    def racks(self, name: str) -> list[list[str]]:
        image = self._image()
        partitions = image.topics[name].partitions
        return [_racks(image.brokers, partitions[index].replicas) for index in sorted(partitions)]

    def version(self) -> int:
        return self._version()


def _racks(brokers: Mapping[int, Any], replicas: Iterable[int]) -> list[str]:
    return [brokers[one].rack for one in replicas if one in brokers and brokers[one].rack is not None]


class _Decided:
    """One step's records as bytes, and who is told of them."""

    __slots__ = ("records", "replies", "size")

    def __init__(self, records: list[tuple[bytes, bytes | None]], size: int) -> None:
        self.records = records
        self.replies: list[Reply] = []
        self.size = size


class _Led:
    """A partition of the topic that this node leads."""

    def __init__(self, index: int, leader_epoch: int, handle: PartitionHandle) -> None:
        self.index = index
        self.leader_epoch = leader_epoch
        self.handle = handle
        self.shard: GroupShard | None = None  # None while its log is read, and when it cannot be
        self.failed = False
        self.decided: list[_Decided] = []  # to be appended at the end of this turn
        self.appended: deque[tuple[int, list[Reply]]] = deque()  # (end offset, replies) above the high watermark
        self.open: set[Later] = set()  # requests without an answer yet


class GroupCoordinator:
    def __init__(
        self,
        *,
        node_id: int,
        image: Callable[[], Any],
        find: Callable[[str, int], PartitionHandle | None],
        version: Callable[[], int],
        settings: Callable[[], GroupSettings],
        consumer_settings: Callable[[str], ConsumerSettings],
        clock: BrokerClock,
        log: Any,
        in_thread: Callable[..., Awaitable[Any]],
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._find = find
        self._settings = settings
        self._clock = clock
        self._log = log
        self._in_thread = in_thread
        self._consumer_settings = consumer_settings
        self._kept_settings: dict[str, ConsumerSettings] = {}  # by group, until a setting changes
        self._expressions = Re2()
        self._names_told: set[str] = set(image().topics)  # which topics the shards know
        self._topics = TopicsOf(image, version)
        self._max_bytes = settings().max_record_bytes - BATCH_ROOM  # of one step's records
        self._led: dict[int, _Led] = {}
        self._count = 0  # partitions of the topic; 0: there is none yet
        self._timers: Timers[tuple[_Led, Timer]] = Timers()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms = 0
        self._dirty: list[_Led] = []  # with decisions that are not appended
        self._polling = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    # ---- requests ----

    def submit(self, group_id: str, event: Event) -> Later:
        """Lets the group's shard decide. The answer is the response it gave, or a KafkaError."""
        later = Later()
        try:
            led = self._responsible(group_id)
            self._decide(led, event, later)
        except KafkaError as error:
            later.settle(error)
        except Exception as error:
            self._log.error("a group coordinator's decision failed", cause=error, group=group_id)
            later.settle(UnknownServerError())
        return later

    def submit_to_all(self, event: Event) -> list[Later]:
        """Lets every shard of this node decide; COORDINATOR_LOAD_IN_PROGRESS for those whose log is still read."""
        found = []
        for led in self._led.values():
            later = Later()
            try:
                if led.shard is None:
                    raise CoordinatorLoadInProgressError()
                self._decide(led, event, later)
            except KafkaError as error:
                later.settle(error)
            found.append(later)
        return found

    def partition_of(self, group_id: str) -> int | None:
        """None: the topic does not exist yet."""
        return partition_for(group_id, self._count) if self._count else None

    def _responsible(self, group_id: str) -> _Led:
        if self._closed or not self._count:
            raise CoordinatorNotAvailableError()
        led = self._led.get(partition_for(group_id, self._count))
        if led is None or led.failed:
            raise NotCoordinatorError()
        if led.shard is None:
            raise CoordinatorLoadInProgressError()
        return led

    def _decide(self, led: _Led, event: Event, later: Later) -> None:
        assert led.shard is not None
        led.open.add(later)
        try:
            step = event(led.shard, later, self._clock.now_ms())
            self._carry_out(led, step)
        except BaseException:
            led.open.discard(later)
            raise

    # ---- what was decided ----

    def _carry_out(self, led: _Led, step: Step) -> None:
        assert led.shard is not None
        if step.records:
            try:
                encoded = [encode_record(record) for record in step.records]
            except EncodeError as problem:
                raise InvalidGroupIdError(str(problem)) from None
            parts = _parts(encoded, self._max_bytes if step.divisible else None)
            if any(part.size > self._max_bytes for part in parts):
                raise InvalidCommitOffsetSizeError()
            for record in step.records:
                led.shard.apply(record)
            if not led.decided:
                self._dirty.append(led)
                if len(self._dirty) == 1:
                    asyncio.get_running_loop().call_soon(self._append_decided)
            parts[-1].replies = step.replies
            led.decided += parts
        elif led.decided:
            led.decided[-1].replies += step.replies  # it may tell of what is not appended yet
        elif led.appended:
            led.appended[-1][1].extend(step.replies)
        else:
            self._settle(led, step.replies)
        if step.timers:
            self._arm(led, step.timers)

    def _settle(self, led: _Led, replies: Iterable[Reply]) -> None:
        for token, answer in replies:
            assert isinstance(token, Later), token
            if token in led.open:
                led.open.discard(token)
                token.settle(answer)

    def _append_decided(self) -> None:
        dirty, self._dirty = self._dirty, []
        for led in dirty:
            decided, led.decided = led.decided, []
            for batch in _in_batches(decided):
                if self._led.get(led.index) is not led or led.failed:
                    break  # everyone was told already
                self._append(led, batch)

    def _append(self, led: _Led, batch: list[_Decided]) -> None:
        now = self._clock.now_ms()
        records = [LogRecord(timestamp=now, key=key, value=value) for one in batch for key, value in one.records]
        try:
            produced = led.handle.append(build_batch(records))
        except OSError as problem:
            self._lose(led, problem)
            return
        if produced.error != Err.NONE:
            self._lose(led, None, produced.error)
            return
        end = produced.base_offset + len(records)
        replies = [reply for one in batch for reply in one.replies]
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

    def _lose(self, led: _Led, problem: Exception | None, code: int = Err.KAFKA_STORAGE_ERROR) -> None:
        """An append failed: the shard knows what the log does not. It is read anew, if this node still leads it."""
        if code in GONE:
            self._drop(led, NotCoordinatorError())  # its topic was deleted, or another leads: no failure
        else:
            self._log.error(
                "a group coordinator could not append", partition=led.index, reason=str(problem or Err(code).name)
            )
            self._drop(led, CoordinatorNotAvailableError())
        if not self._closed:
            asyncio.get_running_loop().call_later(RELOAD_AFTER_S, self._elect)

    # ---- timers ----

    def _arm(self, led: _Led, timers: Iterable[tuple[Timer, int | None]]) -> None:
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
                    self._log.error("a group coordinator's timer failed", cause=error, timer=timer.kind)
        self._set_alarm()

    # ---- leadership ----

    async def on_commit(self, image: Any, delta: Any) -> None:
        """The controller's listener, after the replicas': what this node leads now, and what groups should know."""
        if delta.configs:
            self._kept_settings.clear()
        self._elect()
        if delta.topics or delta.deleted_topics:
            self._tell_topics(image, delta)

    def _tell_topics(self, image: Any, delta: Any) -> None:
        changed = {image.topics_by_id[one].name for one in delta.topics if one in image.topics_by_id}
        changed.update(delta.deleted_topics.values())
        created = {name for name in changed if name in image.topics and name not in self._names_told}
        self._names_told.difference_update(delta.deleted_topics.values())
        self._names_told.update(name for name in changed if name in image.topics)
        deleted = list(delta.deleted_topics.values())
        for led in list(self._led.values()):
            if led.shard is not None:
                try:
                    if deleted:
                        self._carry_out(led, led.shard.on_topics_deleted(deleted))
                    self._carry_out(led, led.shard.on_topics_changed(changed, created, self._clock.now_ms()))
                except Exception as error:
                    self._log.error("a group coordinator could not look at its topics", cause=error)

    def settings_of(self, group_id: str) -> ConsumerSettings:
        """What a consumer group is run by."""
        kept = self._kept_settings.get(group_id)
        if kept is None:
            if len(self._kept_settings) >= KEPT_SETTINGS:
                self._kept_settings.clear()
            kept = self._kept_settings[group_id] = self._consumer_settings(group_id)
        return kept

    def start(self) -> None:
        self._elect()

    def _elect(self) -> None:
        topic = self._image().topics.get(OFFSETS_TOPIC)
        partitions = {} if topic is None else topic.partitions
        self._count = len(partitions)
        for index, led in list(self._led.items()):
            one = partitions.get(index)
            if one is None or one.leader != self._node_id or one.leader_epoch != led.leader_epoch:
                self._drop(led, NotCoordinatorError())
        for index, one in partitions.items():
            handle = self._find(OFFSETS_TOPIC, index)
            if one.leader == self._node_id and index not in self._led and handle is not None:
                self._take(_Led(index, one.leader_epoch, handle))

    def _take(self, led: _Led) -> None:
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

    def _new_shard(self) -> GroupShard:
        return GroupShard(self._settings(), self._topics, self._expressions, self.settings_of)

    async def _load(self, led: _Led, log: PartitionLog) -> None:
        shard = self._new_shard()
        try:
            passed_over = await self._in_thread(_replay, shard, log)
        except Exception as problem:
            led.failed = True
            self._log.error("a partition of the group coordinator cannot be read", partition=led.index, cause=problem)
            return
        if passed_over:
            self._log.warning("records of unknown kinds were passed over", partition=led.index, count=passed_over)
        if self._led.get(led.index) is led:
            self._begin(led, shard)

    def _begin(self, led: _Led, shard: GroupShard) -> None:
        led.shard = shard
        self._carry_out(led, shard.on_loaded(self._clock.now_ms()))

    def _drop(self, led: _Led, error: KafkaError) -> None:
        if self._led.get(led.index) is led:
            del self._led[led.index]
        led.decided, led.shard = [], None
        led.appended.clear()
        waiting, led.open = led.open, set()
        for later in waiting:
            later.settle(error)

    def resign(self) -> None:
        """Before a stop: nobody is left waiting."""
        self._append_decided()
        self._closed = True
        for led in list(self._led.values()):
            self._drop(led, NotCoordinatorError())
        if self._alarm is not None:
            self._alarm.cancel()
        for task in self._tasks:
            task.cancel()


def _parts(records: list[tuple[bytes, bytes | None]], most: int | None) -> list[_Decided]:
    """The records as one, or if they may be parted as several of at most so many bytes."""
    found: list[_Decided] = []
    part: list[tuple[bytes, bytes | None]] = []
    size = 0
    for key, value in records:
        more = len(key) + (len(value) if value is not None else 0) + RECORD_ROOM
        if most is not None and part and size + more > most:
            found.append(_Decided(part, size))
            part, size = [], 0
        part.append((key, value))
        size += more
    found.append(_Decided(part, size))
    return found


def _in_batches(decided: list[_Decided]) -> Iterator[list[_Decided]]:
    """What fits a batch together; one step's records are never parted."""
    batch: list[_Decided] = []
    size = 0
    for one in decided:
        if batch and size + one.size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += one.size
    if batch:
        yield batch


def _replay(shard: GroupShard, log: PartitionLog) -> int:
    """Thread: the whole log into the shard. Returns how many records were of kinds that are not known here."""
    offset = log.log_start_offset
    end = log.log_end_offset
    passed_over = 0
    while offset < end:
        data = log.read(offset, READ_BYTES, end)
        if not data:
            break  # compaction took the last records
        for header in headers_of(data):
            records = iterate(data[header.position : header.position + header.size])
            if header.control:
                kind = int.from_bytes((records[0].key or b"")[2:4], "big") if records else -1
                shard.apply_end(header.producer_id, commit=kind == COMMIT_MARKER)
            else:
                producer_id = header.producer_id if header.transactional else NO_PRODUCER
                for one in records:
                    if one.offset >= offset:
                        passed_over += not _apply(shard, one, producer_id)
            offset = header.last_offset + 1
    return passed_over


def _apply(shard: GroupShard, one: LogRecord, producer_id: int) -> bool:
    try:
        record = decode_record(GROUP, one.key or b"", one.value)
    except DecodeError as problem:
        raise BrokenRecords(f"the record at offset {one.offset} cannot be read: {problem}") from None
    if record is not None:
        shard.apply(record, producer_id)
    return record is not None
