"""The group coordinator's edge: what is particular to __consumer_offsets, to groups and to the topics they read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kbroker._core.errors import Err
from kbroker._core.wire.express import read_commit, read_heartbeat
from kbroker.coordinator.frames import GROUP
from kbroker.coordinator.group.consumer_settings import ConsumerSettings
from kbroker.coordinator.group.facts import TopicFacts
from kbroker.coordinator.group.offsets import Committed
from kbroker.coordinator.group.settings import GroupSettings
from kbroker.coordinator.group.shard import GroupShard
from kbroker.coordinator.later import Later
from kbroker.coordinator.placement import OFFSETS_TOPIC
from kbroker.coordinator.re2_engine import Re2
from kbroker.coordinator.runtime import RECORD_ROOM, Decided, Edge, Site
from kbroker.coordinator.step import Reply
from kbroker.errors import InvalidCommitOffsetSizeError, InvalidGroupIdError

REASON_MAX = 255  # characters, as many as clients are to send
KEPT_SETTINGS = 10_000  # groups whose settings are kept ready
KEPT_FACTS = 10_000  # topics of which the number of partitions is
PENDING_BYTES_MAX = 64 << 20  # of member ids that were given out and are not used yet, in all shards together
PENDING_BYTES_MIN = 256 << 10  # and at least in each, however many there are: some hundred members may come at once
TOPIC_IDS_FROM = 10  # OffsetCommit's version


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


class GroupCoordinator(Edge[GroupShard]):
    TOPIC = OFFSETS_TOPIC
    KIND = GROUP
    CALLED = "group coordinator"
    TOO_LARGE = InvalidCommitOffsetSizeError
    UNWRITABLE = InvalidGroupIdError

    def __init__(
        self,
        site: Site,
        *,
        version: Callable[[], int],
        settings: Callable[[], GroupSettings],
        consumer_settings: Callable[[str], ConsumerSettings],
    ) -> None:
        super().__init__(site, settings().max_record_bytes)
        self._settings = settings
        self._consumer_settings = consumer_settings
        self._kept_settings: dict[str, ConsumerSettings] = {}  # by group, until a setting changes
        self._expressions = Re2()
        self._names_told: set[str] = set(site.image().topics)  # which topics the shards know
        self._topics = TopicsOf(site.image, version)
        self._version = version
        self._facts: dict[bytes, TopicFacts] = {}  # of topics by their bytes in requests, for one version of the image
        self._facts_version = -1

    def _new_shard(self) -> GroupShard:
        pending_bytes_max = max(PENDING_BYTES_MAX // self._count, PENDING_BYTES_MIN)
        settings = self._settings()._replace(pending_bytes_max=pending_bytes_max)
        return GroupShard(settings, self._topics, self._expressions, self.settings_of)

    def note_reason(self, event: str, group_id: str, member_id: str, reason: str | None) -> None:
        """Why a client joins or leaves, if it says so (KIP-800): for whoever wonders about a rebalance."""
        if reason:
            self._log.info(event, group=group_id, member=member_id, reason=reason[:REASON_MAX])

    def note_sought(self, group_id: str, who: str) -> None:
        """Somebody was told that the group is coordinated here. While time stands still nobody is waited for."""
        led = self._ready(group_id)
        if led is not None and led.shard is not None and not self._clock.is_held:
            self._carry_out(led, led.shard.on_sought(group_id, who, self._clock.now_ms()))

    # ---- requests, the short way ----
    # What almost every commit and heartbeat is: plain, from a member in good standing, for partitions that are there.
    # The shard is asked the same questions, but no message is made. False: nothing has happened, and submit() is next.

    def take_commit(self, frame: bytes, later: Later) -> bool:
        """`later` is settled with the reply's bytes, or with a KafkaError."""
        asked = read_commit(frame)
        led = None if asked is None else self._ready(asked.group_id)
        if asked is None or led is None or led.shard is None:
            return False
        now_ms = self._clock.now_ms()
        timers = led.shard.admit_commit(asked, asked.version, now_ms)
        if timers is None:
            return False
        if self._facts_version != self._version() or len(self._facts) >= KEPT_FACTS:
            self._facts = {}
            self._facts_version = self._version()
        find = self._topics.find_id if asked.version >= TOPIC_IDS_FROM else self._topics.find
        decided = asked.decide(self._facts, find, Committed, now_ms, led.shard.metadata_max)
        if decided is None:
            return False
        records, size, commits, reply = decided
        size += RECORD_ROOM * len(records)
        if size > self._max_bytes:
            return False
        led.shard.apply_commit(asked.group_id, commits)
        part = Decided(records, size)
        part.replies.append(Reply(later, reply))
        led.open.add(later)
        self._defer(led, [part])
        if timers:
            self._arm(led, timers)
        return True

    def take_heartbeat(self, frame: bytes, later: Later) -> bool:
        asked = read_heartbeat(frame)
        led = None if asked is None else self._ready(asked.group_id)
        if asked is None or led is None or led.shard is None:
            return False
        decided = led.shard.admit_heartbeat(asked, self._clock.now_ms())
        if decided is None:
            return False
        code, session = decided
        led.open.add(later)
        self._reply(led, [Reply(later, asked.reply(code))])
        self._arm(led, (session,))
        return True

    # ---- topics and settings ----

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

    # ---- transactions ----

    def before_marker(self, partition: int) -> int:
        """What was decided comes before a transaction's marker. An error code: no marker may come now."""
        led = self._led.get(partition)
        if led is None or led.failed:
            return Err.NOT_LEADER_OR_FOLLOWER
        if led.shard is None:
            return Err.COORDINATOR_LOAD_IN_PROGRESS
        self._append_all(led)
        return Err.NONE if self._led.get(partition) is led else Err.NOT_LEADER_OR_FOLLOWER

    def after_marker(self, partition: int, producer_id: int, *, commit: bool) -> None:
        """The marker stands in the log."""
        led = self._led.get(partition)
        if led is not None and led.shard is not None:
            led.shard.apply_end(producer_id, commit=commit)

    def begin_verification(self, group_id: str, producer_id: int, producer_epoch: int, *, adds: bool) -> int:
        """The guard to append a transaction's first offsets with; 0: it has begun in the group's partition before.

        KafkaError unless the group is coordinated here.
        """
        handle = self._responsible(group_id).handle
        return handle.begin_verification(producer_id, producer_epoch, 0, adds=adds)
