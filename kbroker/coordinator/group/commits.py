"""Committed offsets: what OffsetCommit, OffsetFetch, OffsetDelete, time and deleted topics bring about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kbroker.coordinator.group.classic import PREPARING, STABLE, ClassicGroup
from kbroker.coordinator.group.facts import Caller, Committing, TopicFacts, Topics
from kbroker.coordinator.group.group import Group, PartitionCheck
from kbroker.coordinator.group.offsets import Committed, Offsets, tombstone
from kbroker.coordinator.group.rebalance import Rebalances
from kbroker.coordinator.group.settings import GroupSettings
from kbroker.coordinator.step import Record, Step, Timer
from kbroker.errors import (
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    IllegalGenerationError,
    InvalidGroupIdError,
    KafkaError,
    OffsetMetadataTooLargeError,
    StaleMemberEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)
from kbroker.protocol.message import ZERO_UUID
from kbroker.protocol.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from kbroker.protocol.records import OffsetCommitKey, OffsetCommitValue

NONE = 0
NO_EXPIRY = -1
TOPIC_IDS_FROM = 10
GROUP_ID_NOT_FOUND_FROM = 9

Answer = OffsetCommitResponse.Topic


class Known(NamedTuple):
    """What of a commit is for one topic, and is there."""

    group_id: str
    facts: TopicFacts
    partitions: Sequence[OffsetCommitRequest.Partition | TxnOffsetCommitRequest.Partition]
    times: tuple[int, int]  # now, and when the offsets expire


class Commits:
    """Decides over the offsets of a shard; `groups` is the shard's own table."""

    def __init__(
        self,
        groups: dict[str, Group],
        offsets: Offsets,
        rebalances: Rebalances,
        settings: GroupSettings,
        topics: Topics,
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._rebalances = rebalances
        self._settings = settings
        self._topics = topics

    # ---- OffsetCommit ----

    def on_commit(self, token: object, request: OffsetCommitRequest, caller: Caller, now_ms: int) -> Step:
        """Partitions that do not exist are told first, and whoever commits for nothing else is not asked who it is."""
        by_id = caller.api_version >= TOPIC_IDS_FROM
        asked_ms = request.retention_time_ms
        times = (now_ms, NO_EXPIRY if asked_ms == NO_EXPIRY else now_ms + asked_ms)
        step = Step()
        refused: list[Answer] = []
        answers: list[Answer] = []
        code: int | None = None  # whether the group takes it; not asked yet
        for wanted in request.topics:
            facts = self._topics.find_id(wanted.topic_id) if by_id else self._topics.find(wanted.name)
            count = 0 if facts is None else facts.partitions
            there = [one for one in wanted.partitions if 0 <= one.partition_index < count]
            if len(there) < len(wanted.partitions):
                unknown = UnknownTopicIdError.code if by_id and facts is None else UnknownTopicOrPartitionError.code
                missing = [one for one in wanted.partitions if not 0 <= one.partition_index < count]
                refused.append(_answer(wanted, missing, unknown))
            if there and facts is not None:
                if code is None:
                    code = self._check(step, request, caller, now_ms)
                answer = _answer(wanted, there, code)
                answers.append(answer)
                if code == NONE:
                    self._commit(step, Known(request.group_id, facts, there, times), answer)
        step.reply(token, OffsetCommitResponse(topics=_merged(refused, answers) if refused else answers))
        return step

    def _check_each(self, check: PartitionCheck, request: OffsetCommitRequest, caller: Caller) -> None:
        """One partition too many, and nothing is committed: Kafka's way."""
        by_id = caller.api_version >= TOPIC_IDS_FROM
        for wanted in request.topics:
            facts = self._topics.find_id(wanted.topic_id) if by_id else self._topics.find(wanted.name)
            for one in wanted.partitions:
                refused = None if facts is None else check(facts.topic_id, one.partition_index)
                if refused is not None:
                    raise refused

    def _check(self, step: Step, request: OffsetCommitRequest, caller: Caller, now_ms: int) -> int:
        group = self._groups.get(request.group_id)
        generation = request.generation_id_or_member_epoch
        if group is None:
            if generation < 0:
                return NONE
            found = caller.api_version >= GROUP_ID_NOT_FOUND_FROM
            return GroupIdNotFoundError.code if found else IllegalGenerationError.code
        try:
            check = group.check_commit(request.member_id, request.group_instance_id, generation, caller.api_version)
            if check is not None:
                self._check_each(check, request, caller)
        except KafkaError as error:
            return error.code
        step.timers += self._sessions(group, request.member_id, now_ms)
        return NONE

    def _sessions(self, group: Group, member_id: str, now_ms: int) -> Sequence[tuple[Timer, int]]:
        """To commit is to be alive."""
        if isinstance(group, ClassicGroup) and group.state in (STABLE, PREPARING):
            return (self._rebalances.session(group, member_id, now_ms),)
        return ()

    def admit(self, asked: Committing, api_version: int, now_ms: int) -> Sequence[tuple[Timer, int]] | None:
        """The short way: the group is there and takes whatever this member commits; the timers to arm.

        None: nothing is decided, and on_commit must be asked.
        """
        group = self._groups.get(asked.group_id)
        if group is None:
            return None
        member_id, epoch = asked.member_id, asked.generation_id_or_member_epoch
        try:
            if group.check_commit(member_id, asked.group_instance_id, epoch, api_version) is not None:
                return None
        except KafkaError:
            return None
        return self._sessions(group, member_id, now_ms)

    # ---- TxnOffsetCommit ----

    def on_txn_commit(self, token: object, request: TxnOffsetCommitRequest, caller: Caller, now_ms: int) -> Step:
        """As OffsetCommit, but for who may: the producer's transaction was looked at before (KIP-447)."""
        step = Step()
        topics: list[TxnOffsetCommitResponse.Topic] = []
        code: int | None = None  # whether the group takes it; not asked yet
        for wanted in request.topics:
            facts = self._topics.find(wanted.name)
            count = 0 if facts is None else facts.partitions
            there = [one for one in wanted.partitions if 0 <= one.partition_index < count]
            missing = [one for one in wanted.partitions if not 0 <= one.partition_index < count]
            answer = _txn_answer(wanted.name, missing, UnknownTopicOrPartitionError.code)
            if there and facts is not None:
                if code is None:
                    code = self._check_txn(request, caller)
                taken = _txn_answer(wanted.name, there, code)
                if code == NONE:
                    unnamed = facts._replace(topic_id=ZERO_UUID)  # these records never tell it
                    self._commit(step, Known(request.group_id, unnamed, there, (now_ms, NO_EXPIRY)), taken)
                answer.partitions += taken.partitions
            topics.append(answer)
        step.reply(token, TxnOffsetCommitResponse(topics=topics))
        return step

    def _check_txn(self, request: TxnOffsetCommitRequest, caller: Caller) -> int:
        group = self._groups.get(request.group_id)
        if group is None:
            return NONE if request.generation_id < 0 else IllegalGenerationError.code
        try:
            check = group.check_commit(
                request.member_id,
                request.group_instance_id,
                request.generation_id,
                caller.api_version,
                transactional=True,
            )
            for wanted in request.topics if check is not None else ():
                facts = self._topics.find(wanted.name)
                for one in wanted.partitions:
                    refused = None if facts is None or check is None else check(facts.topic_id, one.partition_index)
                    if refused is not None:
                        raise refused
        except StaleMemberEpochError:
            return IllegalGenerationError.code  # what these clients understand
        except KafkaError as error:
            return error.code
        return NONE

    def _commit(self, step: Step, known: Known, answer: Any) -> None:
        """`answer`: the topic's, of either request."""
        group_id, (topic, topic_id, _), partitions, (now_ms, expires_ms) = known
        limit = self._settings.offset_metadata_max_bytes
        for one, told in zip(partitions, answer.partitions, strict=True):
            metadata = one.committed_metadata or ""
            if len(metadata) > limit:  # characters, whatever the setting is called
                told.error_code = OffsetMetadataTooLargeError.code
                continue
            step.records.append(
                Record(
                    OffsetCommitKey(group=group_id, topic=topic, partition=one.partition_index),
                    OffsetCommitValue(
                        offset=one.committed_offset,
                        leader_epoch=one.committed_leader_epoch,
                        metadata=metadata,
                        commit_timestamp=now_ms,
                        expire_timestamp=expires_ms,
                        topic_id=topic_id,
                    ),
                )
            )

    # ---- OffsetFetch ----

    def on_fetch(
        self, token: object, wanted: OffsetFetchRequest.Group, caller: Caller, *, require_stable: bool
    ) -> Step:
        """The offsets of one group, in the form of version 8 and later."""
        group = self._groups.get(wanted.group_id)
        if group is not None:
            group.check_fetch(wanted.member_id, wanted.member_epoch)
        held = self._offsets.of_group(wanted.group_id)
        places: dict[tuple[str, bytes], list[int]] = {}
        unknown: list[OffsetFetchResponse.Topics] = []
        if wanted.topics is None:
            for (topic, partition), committed in held.items():
                places.setdefault((topic, committed.topic_id), []).append(partition)
        else:
            for one in wanted.topics:
                name = one.name
                if caller.api_version >= TOPIC_IDS_FROM:
                    facts = self._topics.find_id(one.topic_id)
                    if facts is None:
                        unknown.append(_no_topic(one))
                        continue
                    name = facts.name
                places.setdefault((name, one.topic_id), []).extend(one.partition_indexes)
        response = OffsetFetchResponse.Group(group_id=wanted.group_id)
        for (topic, topic_id), partitions in places.items():
            answer = OffsetFetchResponse.Topics(name=topic, topic_id=topic_id)
            for partition in partitions:
                found = held.get((topic, partition))
                shown = _not_found(partition)
                if require_stable and self._offsets.is_pending(wanted.group_id, (topic, partition)):
                    shown.error_code = UnstableOffsetCommitError.code
                elif found is not None:
                    shown.committed_offset = found.offset
                    shown.committed_leader_epoch = found.leader_epoch
                    shown.metadata = found.metadata
                answer.partitions.append(shown)
            response.topics.append(answer)
        response.topics += unknown
        step = Step()
        step.reply(token, response)
        return step

    # ---- OffsetDelete ----

    def on_delete(self, token: object, request: OffsetDeleteRequest) -> Step:
        if not request.group_id:
            raise InvalidGroupIdError()
        group = self._groups.get(request.group_id)
        if group is None:
            raise GroupIdNotFoundError()
        if isinstance(group, ClassicGroup):
            group.check_offset_delete()
        step = Step(divisible=True)
        response = OffsetDeleteResponse()
        held = self._offsets.of_group(request.group_id)
        for topic in request.topics:
            subscribed = group.is_subscribed(topic.name)
            facts = self._topics.find(topic.name)
            count = 0 if facts is None else facts.partitions
            refused, taken = [], []
            for one in topic.partitions:
                place = (topic.name, one.partition_index)
                answer = OffsetDeleteResponse.Partition(partition_index=one.partition_index)
                if not 0 <= one.partition_index < count:
                    answer.error_code = UnknownTopicOrPartitionError.code
                    refused.append(answer)
                    continue
                taken.append(answer)
                if subscribed:
                    answer.error_code = GroupSubscribedToTopicError.code
                elif place in held or self._offsets.is_pending(request.group_id, place):
                    step.records.append(tombstone(request.group_id, place))
            response.topics.append(OffsetDeleteResponse.Topic(name=topic.name, partitions=refused + taken))
        step.reply(token, response)
        return step

    # ---- what ends offsets without being asked ----

    def expire(self, step: Step, group: Group, now_ms: int) -> bool:
        """Tombstones for what nobody uses any more; whether nothing is left of the group's offsets."""
        nothing_left = True
        subscribed: dict[str, bool] = {}
        for place, committed in self._offsets.of_group(group.group_id).items():
            topic = place[0]
            if topic not in subscribed:
                subscribed[topic] = group.is_subscribed(topic)
            if (
                not subscribed[topic]
                and self._is_expired(group, committed, now_ms)
                and not self._offsets.is_pending(group.group_id, place)
            ):
                step.records.append(tombstone(group.group_id, place))
            else:
                nothing_left = False
        return nothing_left and not self._offsets.is_pending(group.group_id)

    def _is_expired(self, group: Group, committed: Committed, now_ms: int) -> bool:
        since_ms = group.idle_since_ms(committed.commit_timestamp)
        if since_ms is None:
            return False
        if committed.expire_timestamp != NO_EXPIRY:  # from clients of long ago, who said it themselves
            return now_ms >= committed.expire_timestamp
        return now_ms - since_ms >= self._settings.offsets_retention_ms

    def forget_group(self, step: Step, group_id: str) -> None:
        step.records += [tombstone(group_id, place) for place in self._offsets.all_places(group_id)]

    def on_topics_deleted(self, names: Iterable[str]) -> Step:
        step = Step(divisible=True)
        for group_id, place in self._offsets.of_topics(names):
            step.records.append(tombstone(group_id, place))
        return step


def _answer(wanted: OffsetCommitRequest.Topic, partitions: list[OffsetCommitRequest.Partition], code: int) -> Answer:
    return Answer(
        name=wanted.name,
        topic_id=wanted.topic_id,
        partitions=[
            OffsetCommitResponse.Partition(partition_index=one.partition_index, error_code=code) for one in partitions
        ],
    )


def _txn_answer(
    topic: str, partitions: list[TxnOffsetCommitRequest.Partition], code: int
) -> TxnOffsetCommitResponse.Topic:
    return TxnOffsetCommitResponse.Topic(
        name=topic,
        partitions=[
            TxnOffsetCommitResponse.Partition(partition_index=one.partition_index, error_code=code)
            for one in partitions
        ],
    )


def _merged(refused: list[Answer], answers: list[Answer]) -> list[Answer]:
    """What was refused before the group was asked comes first, topic by topic."""
    found: dict[tuple[str, bytes], Answer] = {}
    for one in [*refused, *answers]:
        known = found.setdefault((one.name, one.topic_id), one)
        if known is not one:
            known.partitions += one.partitions
    return list(found.values())


def _not_found(partition: int, code: int = NONE) -> OffsetFetchResponse.Partitions:
    return OffsetFetchResponse.Partitions(
        partition_index=partition, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=code
    )


def _no_topic(wanted: OffsetFetchRequest.Topics) -> OffsetFetchResponse.Topics:
    return OffsetFetchResponse.Topics(
        topic_id=wanted.topic_id,
        partitions=[_not_found(one, UnknownTopicIdError.code) for one in wanted.partition_indexes],
    )
