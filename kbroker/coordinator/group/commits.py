"""Committed offsets: what OffsetCommit, OffsetFetch, OffsetDelete, time and deleted topics bring about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kbroker.coordinator.group.classic import PREPARING, STABLE, ClassicGroup
from kbroker.coordinator.group.facts import Caller, TopicFacts, Topics
from kbroker.coordinator.group.group import Group, PartitionCheck
from kbroker.coordinator.group.offsets import Committed, Offsets, tombstone
from kbroker.coordinator.group.rebalance import Rebalances
from kbroker.coordinator.group.settings import GroupSettings
from kbroker.coordinator.step import Record, Step
from kbroker.errors import (
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    IllegalGenerationError,
    InvalidGroupIdError,
    KafkaError,
    OffsetMetadataTooLargeError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)
from kbroker.protocol.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
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
    partitions: list[OffsetCommitRequest.Partition]
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
        if isinstance(group, ClassicGroup) and group.state in (STABLE, PREPARING):
            self._rebalances.keep_alive(step, group, request.member_id, now_ms)
        return NONE

    def _commit(self, step: Step, known: Known, answer: Answer) -> None:
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
