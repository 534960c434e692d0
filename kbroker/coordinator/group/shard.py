"""The groups of one partition of __consumer_offsets.

`on_*` read and decide, and give a Step; `apply` alone changes what lasts, live and when the partition is read again. On
the short way `apply_commit` does what it would: a property test holds it to that. An `on_*` that raises a KafkaError
has changed nothing: it is the answer to whoever asked.

This module only hands out: rebalance.py decides on the classic protocol, consumers.py on the other, mixed.py where a
member of the one is in a group of the other, commits.py on offsets, admin.py for operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kbroker.coordinator.group import mixed
from kbroker.coordinator.group.admin import delete_group, describe_group, list_groups
from kbroker.coordinator.group.classic import DEAD, ClassicGroup
from kbroker.coordinator.group.commits import Commits
from kbroker.coordinator.group.consumer import ConsumerGroup
from kbroker.coordinator.group.consumer_settings import ConsumerSettings
from kbroker.coordinator.group.consumers import CONSUMER_KEYS, ConsumerGroups
from kbroker.coordinator.group.expressions import Expressions, NoExpressions
from kbroker.coordinator.group.facts import Beating, Caller, Committing, Topics
from kbroker.coordinator.group.group import Group
from kbroker.coordinator.group.migration import leaves_unread
from kbroker.coordinator.group.offsets import Committed, Offsets, Place
from kbroker.coordinator.group.rebalance import Joining, Rebalances
from kbroker.coordinator.group.settings import GroupSettings
from kbroker.coordinator.step import NO_PRODUCER, Producing, Record, Step, Timer
from kbroker.errors import KafkaError, UnknownMemberIdError
from kbroker.protocol.messages import (
    DeleteGroupsResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
)
from kbroker.protocol.records import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue

EXPIRY = Timer("expiry", "")
KINDS = (ClassicGroup, ConsumerGroup)  # of groups that members join


class GroupShard:
    def __init__(
        self,
        settings: GroupSettings,
        topics: Topics,
        expressions: Expressions | None = None,
        consumer_settings: Callable[[str], ConsumerSettings] = lambda group_id: ConsumerSettings(),
    ) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self.metadata_max = settings.offset_metadata_max_bytes  # characters, whatever the setting is called
        self._settings = settings
        self._rebalances = Rebalances(self.groups, settings)
        self.consumers = ConsumerGroups(
            self.groups, topics, expressions or NoExpressions(), consumer_settings, self._rebalances
        )
        self._commits = Commits(self.groups, self.offsets, self._rebalances, settings, topics)

    # ---- what lasts ----

    def apply(self, record: Record, producer_id: int = NO_PRODUCER) -> None:
        """One record of the log, in its order."""
        key, value = record
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            self.offsets.apply(key, value, producer_id)
            if value is not None and key.group not in self.groups:
                self.groups[key.group] = ClassicGroup(key.group)
        elif isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self._apply_classic(key.group, value)
        elif isinstance(key, CONSUMER_KEYS):
            self.consumers.apply(record)

    def _apply_classic(self, group_id: str, value: GroupMetadataValue | None) -> None:
        group = self.groups.get(group_id)
        if value is None:
            if isinstance(group, ClassicGroup):
                group.move(DEAD, group.since_ms)
                del self.groups[group_id]
            return
        if not isinstance(group, ClassicGroup):
            group = self.groups[group_id] = self._rebalances.arrived(group_id)
        group.adopt(value)

    def apply_end(self, producer_id: int, *, commit: bool) -> None:
        """A transaction's marker in this partition."""
        for group_id in self.offsets.apply_end(producer_id, commit=commit):
            if commit and group_id not in self.groups:
                self.groups[group_id] = ClassicGroup(group_id)

    # ---- events ----

    def on_loaded(self, now_ms: int) -> Step:
        """The log is read and this shard answers from now on."""
        step = Step()
        step.arm(EXPIRY, now_ms + self._settings.offsets_retention_check_interval_ms)
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                unread = leaves_unread(group, self.consumers.around.topics)
                self._rebalances.on_loaded(step, group, now_ms, rebalance=unread)
        step.add(self.consumers.on_loaded(now_ms))
        return step

    def on_timer(self, timer: Timer, now_ms: int) -> Step:
        """A late timer is not an error."""
        if timer == EXPIRY:
            return self._expire(now_ms)
        group = self.groups.get(timer.group)
        if isinstance(group, ClassicGroup):
            return self._rebalances.on_timer(timer, group, now_ms)
        return self.consumers.on_timer(timer, now_ms)

    def on_topics_changed(self, changed: Iterable[str], created: Iterable[str], now_ms: int) -> Step:
        """Topics by name: all that were made, deleted or changed, and those among them that are new."""
        return self.consumers.on_topics_changed(changed, created, now_ms)

    def _expire(self, now_ms: int) -> Step:
        step = Step(divisible=True)
        for group in self.groups.values():
            if self._commits.expire(step, group, now_ms) and group.is_empty and not self._is_awaited(group):
                step.records += group.tombstones()
        step.arm(EXPIRY, now_ms + self._settings.offsets_retention_check_interval_ms)
        return step

    def _is_awaited(self, group: Group) -> bool:
        """Somebody got an id and is about to join."""
        return isinstance(group, ClassicGroup) and bool(group.pending)

    # ---- the classic protocol ----

    def _found(self, group_id: str) -> ClassicGroup | ConsumerGroup | None:
        group = self.groups.get(group_id)
        if group is None or isinstance(group, KINDS):
            return group
        raise UnknownMemberIdError()

    def on_join_group(self, token: object, request: JoinGroupRequest, caller: Caller, unique: str, now_ms: int) -> Step:
        """`unique` makes the id of a member that has none. An empty consumer group makes room for a classic one."""
        joining = Joining.of(token, request, caller, unique)
        group = self._found(request.group_id)
        if not isinstance(group, ConsumerGroup):
            return self._rebalances.on_join(group, joining, now_ms)
        self._rebalances.check_join(request)
        if not group.is_empty:
            return mixed.on_join(group, joining, now_ms, self.consumers.around)
        step = Step(group.tombstones())
        step.add(self._rebalances.on_join(None, joining, now_ms))
        return step

    def on_sought(self, group_id: str, who: str, now_ms: int) -> Step:
        """Somebody asks where the coordinator of this group is: it may be about to join. `who` is a connection."""
        return self._rebalances.on_sought(group_id, who, now_ms)

    def on_sync_group(self, token: object, request: SyncGroupRequest, caller: Caller, now_ms: int) -> Step:
        group = self._found(request.group_id)
        if isinstance(group, ConsumerGroup):
            return mixed.on_sync(token, group, request, now_ms, self.consumers.around)
        return self._rebalances.on_sync(token, group, request, now_ms)

    def on_heartbeat(self, token: object, request: HeartbeatRequest, caller: Caller, now_ms: int) -> Step:
        group = self._found(request.group_id)
        if isinstance(group, ConsumerGroup):
            return mixed.on_heartbeat(token, group, request, now_ms)
        return self._rebalances.on_heartbeat(token, group, request, now_ms)

    def on_leave_group(self, token: object, request: LeaveGroupRequest, caller: Caller, now_ms: int) -> Step:
        group = self._found(request.group_id)
        if isinstance(group, ConsumerGroup):
            return mixed.on_leave(token, group, request, now_ms, self.consumers.around)
        return self._rebalances.on_leave(token, group, request, now_ms)

    # ---- offsets ----

    def on_offset_commit(self, token: object, request: OffsetCommitRequest, caller: Caller, now_ms: int) -> Step:
        return self._commits.on_commit(token, request, caller, now_ms)

    def on_txn_offset_commit(
        self, token: object, request: TxnOffsetCommitRequest, caller: Caller, guard: int, now_ms: int
    ) -> Step:
        """Its records belong to the producer's transaction, and count from its commit on."""
        step = self._commits.on_txn_commit(token, request, caller, now_ms)
        step.producer = Producing(request.producer_id, request.producer_epoch, guard)
        return step

    def on_offset_fetch(
        self, token: object, wanted: OffsetFetchRequest.Group, caller: Caller, *, require_stable: bool
    ) -> Step:
        """The offsets of one group, in the form of version 8 and later."""
        return self._commits.on_fetch(token, wanted, caller, require_stable=require_stable)

    def on_offset_delete(self, token: object, request: OffsetDeleteRequest) -> Step:
        return self._commits.on_delete(token, request)

    def on_topics_deleted(self, names: Iterable[str]) -> Step:
        return self._commits.on_topics_deleted(names)

    # ---- the short way ----
    # For requests that are as they almost always are: the edge reads them and writes their records and answers without
    # making messages, and asks here only what has to be decided. None sends a request the long way, through on_*().

    def admit_commit(self, asked: Committing, api_version: int, now_ms: int) -> Sequence[tuple[Timer, int]] | None:
        """Every offset may be committed if its partition is there: the timers to arm."""
        return self._commits.admit(asked, api_version, now_ms)

    def apply_commit(self, group_id: str, commits: Iterable[tuple[Place, Committed]]) -> None:
        """As apply() does with the records of an admitted commit."""
        self.offsets.hold(group_id, commits)

    def admit_heartbeat(self, asked: Beating, now_ms: int) -> tuple[int, tuple[Timer, int]] | None:
        """The error code to answer, and until when the session lasts."""
        group = self.groups.get(asked.group_id)
        if not isinstance(group, ClassicGroup):
            return None
        try:
            return self._rebalances.beat(group, asked, now_ms)
        except KafkaError:
            return None

    # ---- operators ----

    def on_list_groups(self, token: object, request: ListGroupsRequest) -> Step:
        """The groups of this shard; the answer of the node is made of all shards'."""
        step = Step()
        step.reply(token, ListGroupsResponse(groups=list_groups(self.groups, request)))
        return step

    def on_describe_group(self, token: object, group_id: str, caller: Caller) -> Step:
        step = Step()
        step.reply(token, describe_group(group_id, self.groups.get(group_id), caller.api_version))
        return step

    def on_delete_group(self, token: object, group_id: str) -> Step:
        step = Step(divisible=True)
        group = self.groups.get(group_id)
        delete_group(step, group, self._commits, self._rebalances)
        step.reply(token, DeleteGroupsResponse.DeletableGroupResult(group_id=group_id))
        return step
