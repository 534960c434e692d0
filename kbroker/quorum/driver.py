"""The controller's edge: it takes requests, lets the pure rooms decide, and answers when the decision is committed.

    request -> decide on the image that holds what was appended -> one batch into __cluster_metadata
            -> fsync (a worker thread; all requests that came meanwhile share it) -> the quorum's high watermark rises
            -> apply to the image that readers see -> the listeners make it true on this node -> answer

So what was answered survives a crash, what readers see was committed, and a topic that CreateTopics has answered can be
produced to at once. A decision sees the one before it although that is not committed yet; if the log cannot be written,
nothing more is decided and everything waiting fails, for the two images may have parted from the file.

Everything here runs on the control loop, except what `_in_thread` is given.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from kbroker._core.clock import BrokerClock
from kbroker._core.log.partition_log import PartitionLog
from kbroker.cluster import brokers, configs, features, producer_ids, topics
from kbroker.cluster.brokers import Registration
from kbroker.cluster.configs import Alteration, ConfigResult
from kbroker.cluster.delta import Delta
from kbroker.cluster.image import ClusterImage, Endpoint
from kbroker.cluster.producer_ids import ProducerIdBlock
from kbroker.cluster.topics import NewTopic, Rules, TopicResult
from kbroker.config import Config, Dynamic
from kbroker.errors import KafkaStorageError, NotControllerError
from kbroker.listeners import PROTOCOL_IDS, Listener
from kbroker.pool import Pool
from kbroker.protocol.message import Message
from kbroker.protocol.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    RemoveTopicRecord,
)
from kbroker.quorum.core import NOBODY, Election, LogEnd, Quorum, Step, Timeouts
from kbroker.quorum.frames import BrokenMetadataError, Membership, leader_change_batch, metadata_batch, read_batches
from kbroker.quorum.integrity import find_torn_tail, must_explain, segments_of
from kbroker.quorum.snapshot import (
    SnapshotId,
    find_snapshots,
    image_records,
    read_snapshot,
    write_bootstrap,
    write_snapshot,
)
from kbroker.quorum.store import BrokenQuorumStateError, read_election, write_dynamic_election, write_election
from kbroker.storage.checkpoints import sync_directory
from kbroker.storage.identity import DataDirectoryError, random_uuid
from kbroker.storage.log_dir import BOOTSTRAP, METADATA_DIRECTORY
from kbroker.storage.log_dirs import LogDirs

T = TypeVar("T")
Decide = Callable[[ClusterImage, int], tuple[Sequence[Message], T]]
"""(image, offset of the next record) -> records and the answer."""
Listen = Callable[[ClusterImage, Delta], Awaitable[None]]
"""Makes a committed change true on this node; the requests that asked for it are answered afterwards."""

METADATA_TOPIC_ID = bytes(15) + b"\x01"
FROM_QUORUM = 3
_READ_BYTES = 1 << 20
_RETRY_S = 0.1  # when descriptors have run out
_TRIES_AT_A_STOP = 100


class _NoDescriptorsError(Exception):
    """The next segment cannot be opened now. Nothing was written, nothing has changed: it may be tried again."""


class _Waiting(NamedTuple):
    end_offset: int  # answered once the high watermark is here
    answer: asyncio.Future[Any]
    result: Any


class _Appended(NamedTuple):
    end_offset: int
    records: Sequence[Message]


class Controller:
    """This node's controller. `image` is what the cluster has committed; read it, never change it."""

    def __init__(self, config: Config, clock: BrokerClock, log_dirs: LogDirs, chance: random.Random) -> None:
        self.image = ClusterImage()
        self.broker_epoch = -1
        self.failure: BaseException | None = None
        self._ahead = self.image  # image plus what is appended and not committed
        self._config = config
        self._clock = clock
        self._log_dirs = log_dirs
        self._chance = chance
        self._directory = config.metadata_log_dir / METADATA_DIRECTORY
        self._health = log_dirs.home_at(config.metadata_log_dir).health
        self._listeners: list[Listen] = []
        self._requests: deque[tuple[Decide[Any], asyncio.Future[Any]]] = deque()
        self._appended: deque[_Appended] = deque()
        self._waiting: deque[_Waiting] = deque()
        self._wake = asyncio.Event()
        self._thread = Pool(1, "kbroker-metadata")
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._bytes_since_snapshot = 0
        self._incarnation = random_uuid()
        self._membership = Membership()
        self._first: list[Message] = []  # of a new cluster
        self.repairs: list[str] = []  # what the start put right in the files, for the log
        self._log: PartitionLog
        self._quorum: Quorum

    @classmethod
    async def open(
        cls, config: Config, clock: BrokerClock, log_dirs: LogDirs, chance: random.Random | None = None
    ) -> Controller:
        """Reads the metadata log, takes its lead, and gives a new cluster its first records.

        Those are committed with the first request, which is register(): one fsync at start instead of two.
        """
        controller = cls(config, clock, log_dirs, chance or random.SystemRandom())
        try:
            await controller._in_thread(controller._load)
            await controller._lead()
        except BaseException:
            controller._thread.shutdown()
            raise
        controller._task = asyncio.create_task(controller._run(), name="kbroker-controller")
        return controller

    def listen(self, listener: Listen) -> None:
        """Calls `listener` after every commit that changed something, in the order of registration."""
        self._listeners.append(listener)

    async def register(self, advertised: Sequence[Listener]) -> None:
        """Registers this node with the addresses it can be reached at, and unfences it: it leads its partitions now."""
        endpoints = [Endpoint(one.name, one.host, one.port, PROTOCOL_IDS[one.protocol]) for one in advertised]

        def decide(image: ClusterImage, next_offset: int) -> tuple[list[Message], int]:
            said = Registration(
                node_id=self._config.node_id,
                incarnation_id=self._incarnation,
                endpoints=endpoints,
                features=features.registered(image),
                rack=self._config.text("broker.rack"),
                log_dirs=self._log_dirs.directory_ids,
                cluster_id=self._log_dirs.cluster_id,
                previous_broker_epoch=self._log_dirs.previous_broker_epoch,
            )
            first: list[Message] = [brokers.register_controller(said, [])]
            records, broker_epoch = brokers.register_broker(
                image, said, next_offset + len(first), self._log_dirs.cluster_id
            )
            return [*first, *records], broker_epoch

        # Two requests that share one fsync: the second decides on what the first appended.
        registered = asyncio.ensure_future(self.submit(decide))
        unfenced = asyncio.ensure_future(self.submit(self._decide_unfence))
        self.broker_epoch = await registered
        await unfenced

    def _decide_unfence(self, image: ClusterImage, next_offset: int) -> tuple[list[Message], None]:
        broker = image.brokers[self._config.node_id]
        return brokers.unfence(image, broker.broker_id, broker.broker_epoch), None

    async def create_topics(self, wanted: Sequence[NewTopic], *, validate_only: bool = False) -> list[TopicResult]:
        def decide(image: ClusterImage, next_offset: int) -> tuple[list[Message], list[TopicResult]]:
            decision = topics.create_topics(image, wanted, self._rules(image))
            return [] if validate_only else decision.records, decision.results

        return await self.submit(decide)

    async def delete_topics(self, names: Sequence[str] = (), topic_ids: Sequence[bytes] = ()) -> list[TopicResult]:
        enabled = self._config.flag("delete.topic.enable")

        def decide(image: ClusterImage, next_offset: int) -> tuple[list[Message], list[TopicResult]]:
            decision = topics.delete_topics(image, names, topic_ids, enabled=enabled)
            return decision.records, decision.results

        return await self.submit(decide)

    async def create_partitions(
        self,
        wanted: Sequence[tuple[str, int, Sequence[Sequence[int]] | None]],
        *,
        validate_only: bool = False,
    ) -> list[TopicResult]:
        """Each item: a topic, how many partitions it shall have, and the replicas of the new ones or None."""

        def decide(image: ClusterImage, next_offset: int) -> tuple[list[Message], list[TopicResult]]:
            decisions = topics.create_partitions_of(image, wanted, self._rules(image))
            return [] if validate_only else decisions.records, decisions.results

        return await self.submit(decide)

    async def alter_configs(self, wanted: Sequence[Alteration], *, validate_only: bool = False) -> list[ConfigResult]:
        def decide(image: ClusterImage, next_offset: int) -> tuple[list[Message], list[ConfigResult]]:
            decision = configs.alter_configs(image, wanted, self._config)
            return [] if validate_only else decision.records, decision.results

        return await self.submit(decide)

    async def allocate_producer_ids(self) -> ProducerIdBlock:
        return await self.submit(
            lambda image, next_offset: producer_ids.allocate(image, self._config.node_id, self.broker_epoch)
        )

    async def assign_directories(self, assigned: Mapping[tuple[bytes, int], bytes]) -> None:
        """Tells where this broker has put partitions, (topic id, partition) -> directory id (KIP-858)."""

        def decide(image: ClusterImage, next_offset: int) -> tuple[list[Message], None]:
            return brokers.assign_directories(image, self._config.node_id, assigned), None

        await self.submit(decide)

    async def lose_directory(self, directory_id: bytes, lost: Collection[tuple[str, int]]) -> None:
        """One of this broker's directories is offline, and the partitions in it with it."""

        def decide(image: ClusterImage, next_offset: int) -> tuple[list[Message], None]:
            return brokers.lose_directory(image, self._config.node_id, self.broker_epoch, directory_id, lost), None

        await self.submit(decide)

    def deleted_topics(self) -> set[bytes]:
        """The ids of all topics whose deletion stands in the log. It is read from its start: in a thread."""
        found: set[bytes] = set()
        undecided: set[bytes] | None = None  # of a transaction
        offset = self._log.log_start_offset
        while offset < self._log.log_end_offset:
            data = self._log.read(offset, _READ_BYTES, self._log.log_end_offset)
            if not data:
                break
            for batch in read_batches(data):
                for record in batch.records:
                    if isinstance(record, RemoveTopicRecord):
                        (found if undecided is None else undecided).add(record.topic_id)
                    elif isinstance(record, BeginTransactionRecord):
                        undecided = set()
                    elif isinstance(record, EndTransactionRecord | AbortTransactionRecord):
                        found |= undecided or set() if isinstance(record, EndTransactionRecord) else set()
                        undecided = None
                offset = batch.header.last_offset + 1
        return found

    @property
    def committed_offset(self) -> int:
        """Of the last record in the image."""
        return max(0, self._quorum.high_watermark - 1)

    def dynamic(self) -> Dynamic:
        """Broker settings that were changed at run time."""
        return configs.dynamic_of(self.image, self._config.node_id)

    async def submit(self, decide: Decide[T]) -> T:
        """Decides in turn; returns once what was decided is committed and true here. Raises what `decide` raises."""
        if self.failure is not None:
            raise KafkaStorageError(f"The metadata log failed: {self.failure}")
        if self._stopping:
            raise NotControllerError("The controller is stopping.")
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._requests.append((decide, answer))
        self._wake.set()
        return await answer

    async def close(self) -> None:
        """A controlled stop: this broker leads nothing more and is fenced; then the log is closed."""
        if self.failure is None and self.broker_epoch >= 0:
            node_id, epoch = self._config.node_id, self.broker_epoch
            leaving: list[Decide[None]] = [
                lambda image, _: (brokers.begin_controlled_shutdown(image, node_id, epoch), None),
                lambda image, _: (brokers.fence(node_id, epoch), None),
            ]
            await asyncio.gather(*(self.submit(one) for one in leaving), return_exceptions=True)
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            await self._task
        self._quorum.resign()
        try:
            await self._in_thread(self._log.close)
        finally:
            self._thread.shutdown()
            del self._log, self._health  # each holds the pipe of the log directory until it is freed

    # ---- start ----

    def _load(self) -> None:
        """Thread: everything the files say, into the image."""
        # A start that was cut between formatting and here must not leave a directory that no start can use.
        if not (self._directory.parent / BOOTSTRAP).exists() and not self._directory.exists():
            self._must_be_new()
            write_bootstrap(self._directory.parent, self._clock.now_ms())
        new = not self._directory.exists()
        try:
            election = read_election(self._directory)
            self._check_files()
            self._log_dirs.begin()
            # Apache, too, always checks the whole metadata log: nothing is worth more, and it is short.
            self._log = PartitionLog.open(
                self._directory,
                self._clock,
                self._log_config(),
                topic_id=METADATA_TOPIC_ID,
                clean=False,
                health=self._health,
            )
            if new:
                sync_directory(self._directory.parent)  # or a power cut could take the log with its name
            self._replay()
            if not self.image.features:
                self._first = read_snapshot(self._directory.parent / BOOTSTRAP)
        except (BrokenMetadataError, BrokenQuorumStateError) as problem:
            said = str(problem).rstrip(".")
            raise DataDirectoryError(f"The metadata of {self._directory.parent} cannot be used: {said}.") from None
        except (OSError, ValueError) as problem:
            raise DataDirectoryError(f"The metadata of {self._directory.parent} cannot be opened: {problem}.") from None
        newer = features.unreadable_levels(self.image)
        if newer:
            raise DataDirectoryError(
                f"{self._directory.parent} was written by a newer version: it has finalised {', '.join(newer)}."
            )
        voters = self._membership.voter_ids if self._membership.is_dynamic else self._config.voters
        if voters != [self._config.node_id]:
            raise DataDirectoryError(
                f"{self._directory.parent} belongs to a quorum of the nodes {', '.join(map(str, voters))}; "
                "only a quorum of one can be started yet."
            )
        strangers = {election.leader_id, election.voted_id} - {NOBODY, *voters}
        if strangers:
            raise DataDirectoryError(
                f"{self._directory / 'quorum-state'} names node {min(strangers)}, which is no voter: "
                "restore it from a backup."
            )
        log_end = LogEnd(max(self._log.latest_epoch, 0), self._log.log_end_offset)
        if election.epoch < log_end.epoch:  # the file is gone or old; the log tells which epochs were led
            self.repairs.append(
                f"quorum-state is in epoch {election.epoch}, the log in {log_end.epoch}: the log is right"
            )
            election = Election(log_end.epoch)
        timeouts = Timeouts(
            self._config.integer("controller.quorum.election.timeout.ms"),
            self._config.integer("controller.quorum.fetch.timeout.ms"),
        )
        self._quorum = Quorum(self._config.node_id, voters, election, log_end, timeouts)

    def _must_be_new(self) -> None:
        trace = self._log_dirs.trace_of_topics()
        if trace is not None:
            raise DataDirectoryError(
                f"{self._directory} holds no metadata log, but there is {trace}: starting would lose its topics; "
                "restore the metadata log from a backup."
            )

    def _check_files(self) -> None:
        """Before anything is opened for writing: what only a crash can have torn may be cut, nothing else."""
        home = next((one for one in self._log_dirs.dirs if one.path == self._directory.parent), None)
        clean = home is not None and home.clean
        if not any(path.stat().st_size for _, path in segments_of(self._directory)):
            self._must_be_new()
        torn = find_torn_tail(self._directory, clean=clean)
        if torn is not None:
            here = {topic_id for _, _, _, topic_id in self._log_dirs.partition_directories() if topic_id is not None}
            must_explain(self._directory, torn, here)
            self.repairs.append(
                f"the torn end of {torn.path.name} was cut: {torn.bytes} bytes from offset {torn.offset} on "
                f"({torn.reason})"
            )

    def _replay(self) -> None:
        """Thread: the newest snapshot, then the log behind it."""
        snapshots = find_snapshots(self._directory)
        offset = self._log.log_start_offset
        if snapshots:
            newest = snapshots[-1]
            self._take(read_snapshot(self._directory / newest.file_name, self._membership), newest.end_offset)
            offset = newest.end_offset
        if offset < self._log.log_start_offset or offset > self._log.log_end_offset or (offset and not snapshots):
            raise BrokenMetadataError(
                f"the log holds offsets {self._log.log_start_offset} to {self._log.log_end_offset}, "
                f"but the newest snapshot ends at {snapshots[-1].end_offset if snapshots else 0}"
            )
        while offset < self._log.log_end_offset:
            data = self._log.read(offset, _READ_BYTES, self._log.log_end_offset)
            if not data:
                raise BrokenMetadataError(f"no record can be read from offset {offset} on; restore it from a backup")
            self._bytes_since_snapshot += len(data)
            for batch in read_batches(data):
                self._membership.take(batch)
                self._take(batch.records[max(offset - batch.header.base_offset, 0) :], batch.header.base_offset)
                offset = batch.header.last_offset + 1
        epoch = self._log_dirs.previous_broker_epoch
        if epoch >= self._log.log_end_offset:
            raise BrokenMetadataError(
                f"the log ends at offset {self._log.log_end_offset}, but the last clean stop was in broker "
                f"epoch {epoch}; restore the log from a backup, or remove .kafka_cleanshutdown if that is wrong"
            )

    def _take(self, records: Sequence[Message], offset: int) -> None:
        """Checksums have matched: records that contradict each other mean that some are missing."""
        try:
            for record in records:
                self.image.apply(record)
        except (AssertionError, LookupError, ValueError) as problem:
            raise BrokenMetadataError(
                f"what was decided at offset {offset} does not follow from what stands before it ({problem!r}); "
                "restore the log from a backup"
            ) from None

    async def _lead(self) -> None:
        """Takes the lead, and gives the log what it lacks: an end to a cut transaction, first records, newer levels."""
        await self._carry_out(self._quorum.start(self._clock.monotonic_ms()))
        assert self._quorum.is_leader, "a quorum of one elects itself"
        self._ahead = self.image.copy()
        if self._ahead.in_transaction:
            self._append([AbortTransactionRecord(reason="The controller that began it has gone.")])
        if not self._ahead.features:
            self._append([BeginTransactionRecord(name="Bootstrap records"), *self._first, EndTransactionRecord()])
        raised = features.raise_levels(self._ahead)
        if raised:
            self._append(raised)

    async def _carry_out(self, step: Step) -> None:
        assert not step.messages, "other voters need a network that is not there yet"
        if step.persist is not None:
            await self._in_thread(self._persist, step.persist)
        if step.append is not None:
            self._write(leader_change_batch(step.append, self._clock.now_ms()))

    def _persist(self, election: Election) -> None:
        """Thread."""
        if self._membership.is_dynamic:
            write_dynamic_election(self._directory, election, self._membership.directory_of(election.voted_id))
        else:
            write_election(self._directory, election, self._quorum.voters)

    # ---- the loop ----

    async def _run(self) -> None:
        left = _TRIES_AT_A_STOP
        try:
            while not (self._stopping and not self._requests):
                await self._wake.wait()
                self._wake.clear()
                if self._requests:
                    written = self._decide_all()
                    await self._commit()
                    await self._maybe_snapshot()
                    if not written:
                        left -= self._stopping
                        if left <= 0:
                            raise OSError(errno.EMFILE, "the metadata log found no descriptor for its next segment")
                        self._wake.set()
                        await asyncio.sleep(_RETRY_S)
        except Exception as problem:  # every later request is told: see submit()
            self._fail(problem)

    def _decide_all(self) -> bool:
        """False: descriptors have run out, and the first of the requests that are left is decided anew."""
        while self._requests:
            decide, answer = self._requests.popleft()
            if answer.done():  # whoever asked has gone
                continue
            try:
                records, result = decide(self._ahead, self._log.log_end_offset)
            except Exception as error:  # a refusal, or a bug of one decision: nothing was changed, so only it fails
                answer.set_exception(error)
                continue
            # It waits before it is written: if writing fails, _fail finds it.
            self._waiting.append(_Waiting(self._log.log_end_offset + len(records), answer, result))
            if records:
                try:
                    self._append(records)
                except _NoDescriptorsError:
                    self._waiting.pop()
                    self._requests.appendleft((decide, answer))
                    return False
        return True

    def _append(self, records: Sequence[Message]) -> None:
        self._write(metadata_batch(records, self._clock.now_ms()))
        for record in records:
            self._ahead.apply(record)
        self._appended.append(_Appended(self._log.log_end_offset, records))

    def _write(self, batch: bytes) -> None:
        appended = self._log.append(batch, origin=FROM_QUORUM, leader_epoch=self._quorum.epoch)
        short = appended.error == KafkaStorageError.code and not (self._log.offline_errno or self._log.closed)
        if short:  # a failing disk would have put it offline
            raise _NoDescriptorsError
        if appended.error:
            raise OSError(self._log.offline_errno, f"the metadata log refused a batch (error {appended.error})")
        self._bytes_since_snapshot += len(batch)

    async def _commit(self) -> None:
        """Flushes, applies what a majority holds now, makes it true, and answers."""
        end_offset = self._log.log_end_offset
        if end_offset > self._quorum.log_end.end_offset:
            await self._flush()
            self._quorum.on_flushed(LogEnd(self._quorum.epoch, end_offset))
        committed = self._quorum.high_watermark
        self._log.high_watermark = committed
        delta = Delta()
        while self._appended and self._appended[0].end_offset <= committed:
            for record in self._appended.popleft().records:
                self.image.apply(record, delta)
        if delta:
            for listener in self._listeners:
                await listener(self.image, delta)
        while self._waiting and self._waiting[0].end_offset <= committed:
            done = self._waiting.popleft()
            if not done.answer.done():
                done.answer.set_result(done.result)

    async def _flush(self) -> int:
        """A burst of connections may take every descriptor there is: they come back, and nothing is lost meanwhile."""
        left = _TRIES_AT_A_STOP
        while True:
            try:
                return await self._in_thread(self._log.flush)
            except OSError as problem:
                left -= self._stopping
                if problem.errno not in {errno.EMFILE, errno.ENFILE} or left <= 0:
                    raise
            await asyncio.sleep(_RETRY_S)

    def _fail(self, problem: BaseException) -> None:
        self.failure = problem
        if isinstance(problem, OSError):
            self._health.fail(problem, self._directory)
        waiting = [one.answer for one in self._waiting] + [answer for _, answer in self._requests]
        self._waiting.clear()
        self._requests.clear()
        for answer in waiting:
            if not answer.done():
                answer.set_exception(KafkaStorageError(f"The metadata log failed: {problem}"))

    async def _maybe_snapshot(self) -> None:
        """Once enough has been appended: the image as a file, and the log before the older snapshot goes."""
        if self._bytes_since_snapshot < self._config.integer("metadata.log.max.record.bytes.between.snapshots"):
            return
        if self.image.in_transaction or self._appended:
            return
        self._bytes_since_snapshot = 0
        identity = SnapshotId(self._quorum.high_watermark, self._quorum.epoch)
        await self._in_thread(self._snapshot, identity, list(image_records(self.image)))

    def _snapshot(self, identity: SnapshotId, records: list[Message]) -> None:
        """Thread."""
        now_ms = self._clock.now_ms()
        path = self._directory / identity.file_name
        write_snapshot(path, records, self._membership, epoch=identity.epoch, last_timestamp=now_ms, now_ms=now_ms)

    def _rules(self, image: ClusterImage) -> Rules:
        dynamic = configs.dynamic_of(image, self._config.node_id)
        return Rules(
            num_partitions=self._config.integer("num.partitions"),
            default_replication_factor=self._config.integer("default.replication.factor"),
            check_configs=lambda overrides: self._config.check_topic_overrides(overrides, dynamic),
            new_id=random_uuid,
            shuffle=self._chance.shuffle,
        )

    def _log_config(self) -> dict[str, Any]:
        """The metadata log's own settings, not a topic's; a batch is as large as the decision it holds."""
        return {
            "max.message.bytes": 2**31 - 1,
            "segment.bytes": self._config.integer("metadata.log.segment.bytes"),
            "segment.ms": self._config.integer("metadata.log.segment.ms"),
            "message.timestamp.after.max.ms": 2**63 - 1,
        }

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)
