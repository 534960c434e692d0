"""This node's replicas: the edge that makes a committed image true here.

It opens and deletes partition logs, tells each live partition who leads it, and publishes the table by which network
threads find them, whole and once per commit. Files are touched in a worker thread; leadership changes and publishing
happen on the control loop, so handlers never see half a change.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from kbroker._core.log.partition_log import PartitionLog
from kbroker._core.partitions import PartitionHandle
from kbroker._core.syncer import SyncThreads
from kbroker._core.views import ViewHandle
from kbroker.cluster.configs import dynamic_of
from kbroker.cluster.delta import Delta
from kbroker.cluster.image import BROKER_RESOURCE, TOPIC_RESOURCE, ClusterImage, PartitionImage, TopicImage, is_assigned
from kbroker.cluster.topics import INTERNAL_TOPICS
from kbroker.config import Config, Dynamic
from kbroker.pool import Pool
from kbroker.storage.log_dir import LogDir
from kbroker.storage.log_dirs import LogDirs, OfflineDirectoryError, Opening
from kbroker.storage.moves import Moves
from kbroker.storage.news import News
from kbroker.storage.strays import Deleted, Strays, sort_out
from kbroker.storage.upkeep import Upkeep
from kbroker.storage.usage import DirectoryUsage, usage

T = TypeVar("T")
MADE_AT_ONCE = 8  # new partitions that have files before a commit is answered; of more, so many a turn after it
Key = tuple[str, int]
Assign = Callable[[Mapping[tuple[bytes, int], bytes]], Awaitable[None]]


class Replicas:
    """Every partition this node knows of, by (topic, partition). Owned by the control loop."""

    def __init__(self, config: Config, log_dirs: LogDirs, views: Mapping[str, ViewHandle]) -> None:
        self.offline: dict[Key, Exception] = {}  # replicas whose files failed
        self.homeless: set[Key] = set()  # replicas that lie in a directory which is not there
        self._config = config
        self._node_id = config.node_id
        self._log_dirs = log_dirs
        self._views = views  # by listener name
        self._handles: dict[Key, PartitionHandle] = {}
        self._shown: dict[Key, PartitionImage] = {}  # what a handle was last told
        self._thread = Pool(1, "kbroker-replicas")
        self._started = False
        self._removals: set[asyncio.TimerHandle] = set()
        self._assign: Assign | None = None
        self._news: News | None = None
        self.upkeep = Upkeep(config, log_dirs, self._in_thread, self._put_offline)
        self.moves = Moves(log_dirs, self._handles, self.offline, self._in_thread)
        self._to_make: deque[Key] = deque()  # opened, but their files are still to be made
        self._making: asyncio.Task[None] | None = None
        self._syncer = SyncThreads()

    def find(self, topic: str, partition: int) -> PartitionHandle | None:
        return self._handles.get((topic, partition))

    def is_local(self, topic: str, partition: int) -> bool:
        """Whether this node holds a replica, readable or not."""
        return (topic, partition) in self._log_dirs.logs or (topic, partition) in self.offline

    def logs(self) -> Mapping[Key, PartitionLog]:
        return self._log_dirs.logs

    def tell_directories_with(self, assign: Assign) -> None:
        """Where to report which directory a partition was put into, when there are several."""
        self._assign = assign

    def tell_with(self, news: News) -> None:
        """Whom to tell, from any thread, what becomes of replicas."""
        self._news = news
        self.upkeep.failed = news.failed
        self.upkeep.retired = news.retired
        self.upkeep.damaged = news.damaged
        self.moves.on_moved = news.moved
        self.moves.on_failed = news.not_moved

    async def start(self, image: ClusterImage, deleted: Deleted = tuple) -> Strays:
        """Opens what the image says is here. Returns the directories that no topic owns, and what became of them."""
        ours = {(topic.name, index): (topic, one) for topic, index, one in image.partitions() if self._is_ours(one)}
        owned = {key: topic.topic_id for key, (topic, _) in ours.items()}
        assigned = {key: one.directory_of(self._node_id) for key, (_, one) in ours.items()}
        self.moves.topic_config = lambda topic: self._log_config(image, topic)
        self.moves.remove_later = lambda paths: self._remove_later(paths, self._delete_delay_ms(image))
        self.moves.assign = lambda directories: self._assign_all(image, directories)

        def prepare() -> Strays:
            strays = sort_out(self._log_dirs, owned, deleted)
            self.moves.take_in_abandoned(assigned)
            self._open_logs(image, image.topics.values())
            self.moves.resume()
            return strays

        strays = await self._in_thread(prepare)
        self._started = True
        self._refresh(image, set(image.topics_by_id))
        self._make_rest()
        self.upkeep.start()
        return strays

    async def on_commit(self, image: ClusterImage, delta: Delta) -> None:
        """The controller's listener."""
        changed = [image.topics_by_id[topic_id] for topic_id in delta.topics if topic_id in image.topics_by_id]
        retired = self._retire(delta)
        if changed or retired:

            def work() -> list[Path]:
                self.moves.forget(retired)
                removed = self._log_dirs.delete_logs(retired)
                self._open_logs(image, changed)
                return removed

            self._remove_later(await self._in_thread(work), self._delete_delay_ms(image))
        await self._reconfigure(image, delta)
        self._refresh(image, {topic.topic_id for topic in changed})
        self._make_rest()
        self._report_directories(image, changed)

    async def raise_starts(self, offsets: Mapping[Key, int]) -> dict[Key, int]:
        """Deletes the records below an offset, at most the high watermark, of logs here; where each of them starts now.

        It is durable when this returns; a log whose directory failed is missing from the answer. Segments go with the
        next retention check, as in Kafka.
        """
        try:
            return await self._in_thread(self._log_dirs.raise_starts, offsets)
        except OSError as problem:
            self.upkeep.failed("a deletion of records failed", problem)
            return {}

    async def take_down(self, home: LogDir) -> list[Key]:
        """A directory has failed: its partitions answer KAFKA_STORAGE_ERROR until the next start. Returns them."""
        stayed, lost = await self._in_thread(lambda: (self.moves.take_down(home), self._log_dirs.take_down(home)))
        for key in lost:
            self.offline[key] = home.failure or OSError(f"{home.path} is offline")
            if key in self._handles:
                self._handles[key].go_offline()
        if stayed and self.moves.assign is not None:
            await self.moves.assign(stayed)  # before the controller hears that all it knows to be there is lost
        return lost

    async def close(self, broker_epoch: int) -> list[OSError]:
        """A clean stop. Whoever still fetches is told that nobody leads here any more. Returns what failed."""
        self.upkeep.stop()
        await self.moves.stop()
        if self._making is not None:
            self._making.cancel()  # what has no files yet gets them at the next start
        for timer in self._removals:
            timer.cancel()  # the next start finishes it
        for handle in self._handles.values():
            handle.follow(-1, handle.leader_epoch)
        await self._in_thread(self._syncer.close)
        failed = await self._in_thread(self._log_dirs.close, broker_epoch)
        self._handles.clear()
        self._thread.shutdown()
        return failed

    async def usage(self) -> list[DirectoryUsage]:
        """What lies in each data directory."""
        return await self._in_thread(usage, self._log_dirs)

    def dynamic(self, image: ClusterImage) -> Dynamic:
        return dynamic_of(image, self._node_id)

    # ---- files, in the thread ----

    def _open_logs(self, image: ClusterImage, topics: Iterable[TopicImage]) -> None:
        """Opens what is there, and promises the rest: thousands of new directories would keep a client waiting."""
        promised: list[Key] = []
        wanted = [one for topic in topics for one in self._missing(image, topic)]
        threads = self._config.broker_value("num.recovery.threads.per.data.dir", self.dynamic(image))
        assert isinstance(threads, int), threads
        for key, log in self._log_dirs.open_logs(wanted, threads).items():
            if isinstance(log, OfflineDirectoryError):
                self.homeless.add(key)
                continue
            if isinstance(log, Exception):  # that replica is offline; the others are not to suffer
                self._put_offline(key, log)
                continue
            self.offline.pop(key, None)  # of an earlier topic of that name
            self.homeless.discard(key)
            promised += [] if log.made else [key]
            if self._news is not None and (notes := log.recovery_notes):
                self._news.repaired(key, notes)
        if len(promised) <= MADE_AT_ONCE:
            self._make(promised)
        else:
            self._to_make += promised

    def _missing(self, image: ClusterImage, topic: TopicImage) -> list[Opening]:
        missing = [
            (index, one)
            for index, one in sorted(topic.partitions.items())
            if self._is_ours(one) and (topic.name, index) not in self._log_dirs.logs
        ]
        if not missing:
            return []
        config = self._log_config(image, topic.name)
        return [
            Opening(
                topic.name,
                index,
                topic.topic_id,
                config,
                told if is_assigned(told := one.directory_of(self._node_id)) else None,
                new=self._started and (topic.name, index) not in self._handles,
            )
            for index, one in missing
        ]

    def _make(self, keys: Iterable[Key]) -> None:
        for key in keys:
            log = self._log_dirs.logs.get(key)
            if log is None:
                continue
            try:
                log.make()
            except OSError as problem:
                # Without descriptors it is not offline: the first append tries again. A directory is told as a whole.
                if log.offline_errno and not self._log_dirs.blame(log.directory, problem):
                    self._put_offline(key, problem)

    def _put_offline(self, key: Key, problem: Exception) -> None:
        known = self.offline.get(key)
        self.offline[key] = problem
        if self._news is not None and str(known) != str(problem):  # every change of the topic tries again
            self._news.offline(key, problem)

    def _log_config(self, image: ClusterImage, topic: str) -> dict[str, Any]:
        return dict(self._config.topic_config(image.topic_configs(topic), self.dynamic(image)))

    # ---- the table, on the loop ----

    def _make_rest(self) -> None:
        if self._to_make and (self._making is None or self._making.done()):
            self._making = asyncio.create_task(self._keep_making(), name="kbroker-new-logs")

    async def _keep_making(self) -> None:
        """In turns, so that the next commit does not wait for all of them."""
        while self._to_make:
            turn = [self._to_make.popleft() for _ in range(min(MADE_AT_ONCE, len(self._to_make)))]
            await self._in_thread(self._make, turn)
            for key in turn:
                if key in self.offline and key in self._handles:
                    self._handles[key].go_offline()

    def _retire(self, delta: Delta) -> list[Key]:
        names = set(delta.deleted_topics.values())
        retired = [key for key in self._handles if key[0] in names]
        for key in retired:
            self._handles.pop(key).retire()
            self._shown.pop(key, None)
            self.offline.pop(key, None)
            self.homeless.discard(key)
        return retired

    def _refresh(self, image: ClusterImage, topic_ids: set[bytes]) -> None:
        for topic_id in topic_ids:
            topic = image.topics_by_id[topic_id]
            wanted = self._min_insync(image, topic.name)
            for index, partition in topic.partitions.items():
                self._show(topic, index, partition, wanted)
        table = [
            (topic.name, topic.topic_id, topic.name in INTERNAL_TOPICS, self._handles_of(topic))
            for topic in image.topics.values()
        ]
        for listener, view in self._views.items():
            view.publish(table, self._endpoints(image, listener))

    def _handles_of(self, topic: TopicImage) -> list[PartitionHandle]:
        return [self._handles[(topic.name, index)] for index in range(len(topic.partitions))]

    def _endpoints(self, image: ClusterImage, listener: str) -> list[tuple[int, str, int, str | None]]:
        found = ((broker, broker.endpoint(listener)) for broker in image.brokers.values() if not broker.fenced)
        return [(broker.broker_id, one.host, one.port, broker.rack) for broker, one in found if one is not None]

    def _show(self, topic: TopicImage, index: int, partition: PartitionImage, min_insync: int) -> None:
        key = (topic.name, index)
        handle = self._handles.get(key)
        opened = key in self._log_dirs.logs and key not in self.offline
        if handle is None or (handle.log is None and opened):  # the log may have come later than its handle
            handle = self._handles[key] = PartitionHandle(index, self._log_dirs.logs.get(key))
            self._syncer.serve(handle)
            if key in self.offline:
                handle.go_offline()
        elif self._shown.get(key) == partition:
            return
        self._shown[key] = partition
        if partition.leader == self._node_id:
            self._lead(handle, partition, min_insync)
        else:
            handle.follow(partition.leader, partition.leader_epoch)

    def _min_insync(self, image: ClusterImage, topic: str) -> int:
        wanted = self._config.topic_value("min.insync.replicas", image.topic_configs(topic), self.dynamic(image))
        assert isinstance(wanted, int), wanted
        return wanted

    def _lead(self, handle: PartitionHandle, partition: PartitionImage, min_insync: int) -> None:
        followers = [one for one in partition.isr if one != self._node_id]
        least = min(min_insync, len(partition.replicas))
        handle.lead(partition.leader, partition.leader_epoch, len(partition.isr), least, followers)

    async def _reconfigure(self, image: ClusterImage, delta: Delta) -> None:
        """Open logs take over what was set on their topic, on this broker or on all."""
        everything = any(kind == BROKER_RESOURCE for kind, _ in delta.configs)
        names = set(image.topics) if everything else {name for kind, name in delta.configs if kind == TOPIC_RESOURCE}
        topics = [image.topics[name] for name in names if name in image.topics and (name, 0) in self._handles]
        if not topics:  # a new topic has no handles yet: its logs were opened with its settings
            return
        # In the thread: a log that is being written keeps whoever configures it waiting.
        await self._in_thread(self._configure, [(topic, self._log_config(image, topic.name)) for topic in topics])
        for topic in topics:
            min_insync = self._min_insync(image, topic.name)
            for index, partition in topic.partitions.items():
                handle = self._handles.get((topic.name, index))
                if handle is not None and handle.log is not None and partition.leader == self._node_id:
                    self._lead(handle, partition, min_insync)

    def _configure(self, configs: Iterable[tuple[TopicImage, Mapping[str, Any]]]) -> None:
        """Thread."""
        for topic, config in configs:
            for index in topic.partitions:
                log = self._log_dirs.logs.get((topic.name, index))
                if log is not None:
                    log.configure(config)

    async def report_directories(self, image: ClusterImage) -> list[Key]:
        """At the start, before this node leads anything; returns what lies elsewhere than the cluster believed.

        A crash may have come between a move, or the choice of a directory, and the word of it; a partition may have
        been moved by hand, or its directory goes by another id.
        """
        elsewhere = self._elsewhere(image.topics.values())
        await self._assign_all(image, elsewhere)
        return [key for key in elsewhere if is_assigned(self._told_of(image.topics[key[0]], key[1]))]

    def _report_directories(self, image: ClusterImage, changed: list[TopicImage]) -> None:
        """A broker of several directories chose one; the cluster is told. Not awaited: the answer need not wait."""
        if chosen := self._elsewhere(changed):
            task = asyncio.ensure_future(self._assign_all(image, chosen))
            task.add_done_callback(lambda done: done.exception())

    def _elsewhere(self, topics: Iterable[TopicImage]) -> dict[Key, bytes]:
        """What lies in another directory than the cluster was told, and in which one.

        Of a partition that moves it is told when it comes to that; of one whose directory it was never told, only if
        there are several.
        """
        several = len(self._log_dirs.dirs) > 1
        return {
            key: found
            for topic in topics
            for index in topic.partitions
            if (key := (topic.name, index)) in self._log_dirs.logs
            and key not in self._log_dirs.futures
            and (found := self._log_dirs.directory_id_of(*key)) != (told := self._told_of(topic, index))
            and (several or is_assigned(told))
        }

    def _told_of(self, topic: TopicImage, partition: int) -> bytes:
        return topic.partitions[partition].directory_of(self._node_id)

    async def _assign_all(self, image: ClusterImage, directories: Mapping[Key, bytes]) -> None:
        known = {key: image.topics[key[0]].topic_id for key in directories if key[0] in image.topics}
        if self._assign is not None and known:
            await self._assign({(topic_id, key[1]): directories[key] for key, topic_id in known.items()})

    def _delete_delay_ms(self, image: ClusterImage) -> int:
        delay_ms = self._config.broker_value("log.segment.delete.delay.ms", self.dynamic(image))
        assert isinstance(delay_ms, int), delay_ms
        return delay_ms

    def _remove_later(self, paths: list[Path], delay_ms: int) -> None:
        if not paths:
            return
        loop = asyncio.get_running_loop()

        def remove() -> None:
            self._removals.discard(timer)
            for path in paths:
                self._log_dirs.remover.directory(path)

        timer = loop.call_later(delay_ms / 1000, remove)
        self._removals.add(timer)

    def _is_ours(self, partition: PartitionImage) -> bool:
        return self._node_id in partition.replicas

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)
