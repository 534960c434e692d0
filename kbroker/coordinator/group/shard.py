"""The groups of one partition of __consumer_offsets.

`on_*` read and decide, and give a Step; `apply` alone changes what lasts, live and when the partition is read again. An
`on_*` that raises a KafkaError has changed nothing: it is the answer to whoever asked.
"""

from __future__ import annotations

from kbroker.coordinator.group.classic import ClassicGroup
from kbroker.coordinator.group.facts import Caller, TopicFacts, Topics
from kbroker.coordinator.group.group import Group
from kbroker.coordinator.group.offsets import Offsets
from kbroker.coordinator.group.settings import GroupSettings
from kbroker.coordinator.step import NO_PRODUCER, Record, Step, Timer
from kbroker.errors import (
    GroupIdNotFoundError,
    IllegalGenerationError,
    OffsetMetadataTooLargeError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)
from kbroker.protocol.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kbroker.protocol.records import OffsetCommitKey, OffsetCommitValue

NONE = 0
TOPIC_IDS_FROM = 10
GROUP_ID_NOT_FOUND_FROM = 9


class GroupShard:
    def __init__(self, settings: GroupSettings, topics: Topics) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self._settings = settings
        self._topics = topics

    # ---- what lasts ----

    def apply(self, record: Record, producer_id: int = NO_PRODUCER) -> None:
        """One record of the log, in its order."""
        if isinstance(record.key, OffsetCommitKey):
            assert record.value is None or isinstance(record.value, OffsetCommitValue)
            self.offsets.apply(record.key, record.value, producer_id)
            if record.value is not None and record.key.group not in self.groups:
                self.groups[record.key.group] = ClassicGroup(record.key.group)

    def apply_end(self, producer_id: int, *, commit: bool) -> None:
        """A transaction's marker in this partition."""
        self.offsets.apply_end(producer_id, commit=commit)

    # ---- events ----

    def on_loaded(self, now_ms: int) -> Step:
        """The log is read and this shard answers from now on."""
        return Step()

    def on_timer(self, timer: Timer, now_ms: int) -> Step:
        return Step()

    def on_offset_commit(self, token: object, request: OffsetCommitRequest, caller: Caller, now_ms: int) -> Step:
        self._check_commit(request, caller)
        expires = now_ms + request.retention_time_ms if request.retention_time_ms >= 0 else -1
        step = Step()
        response = OffsetCommitResponse()
        for wanted in request.topics:
            topic = self._topic(wanted.name, wanted.topic_id, caller.api_version)
            name = wanted.name if topic is None else topic.name
            answer = OffsetCommitResponse.Topic(name=name, topic_id=wanted.topic_id)
            for one in wanted.partitions:
                code = self._commit_error(topic, one, caller.api_version)
                answer.partitions.append(
                    OffsetCommitResponse.Partition(partition_index=one.partition_index, error_code=code)
                )
                if code == NONE and topic is not None:
                    value = OffsetCommitValue(
                        offset=one.committed_offset,
                        leader_epoch=one.committed_leader_epoch,
                        metadata=one.committed_metadata or "",
                        commit_timestamp=now_ms,
                        expire_timestamp=expires,
                        topic_id=topic.topic_id,
                    )
                    key = OffsetCommitKey(group=request.group_id, topic=name, partition=one.partition_index)
                    step.records.append(Record(key, value))
            response.topics.append(answer)
        step.reply(token, response)
        return step

    def _check_commit(self, request: OffsetCommitRequest, caller: Caller) -> None:
        group = self.groups.get(request.group_id)
        generation = request.generation_id_or_member_epoch
        if group is not None:
            group.check_commit(request.member_id, request.group_instance_id, generation, caller.api_version)
        elif generation >= 0:
            raise GroupIdNotFoundError() if caller.api_version >= GROUP_ID_NOT_FOUND_FROM else IllegalGenerationError()

    def _topic(self, name: str, topic_id: bytes, version: int) -> TopicFacts | None:
        return self._topics.find_id(topic_id) if version >= TOPIC_IDS_FROM else self._topics.find(name)

    def _commit_error(self, topic: TopicFacts | None, one: OffsetCommitRequest.Partition, version: int) -> int:
        if topic is None:
            return (UnknownTopicIdError if version >= TOPIC_IDS_FROM else UnknownTopicOrPartitionError).code
        if not 0 <= one.partition_index < topic.partitions:
            return UnknownTopicOrPartitionError.code
        if len((one.committed_metadata or "").encode()) > self._settings.offset_metadata_max_bytes:
            return OffsetMetadataTooLargeError.code
        return NONE

    def on_offset_fetch(
        self, token: object, wanted: OffsetFetchRequest.Group, caller: Caller, *, require_stable: bool
    ) -> Step:
        """The offsets of one group, in the form of version 8 and later."""
        group = self.groups.get(wanted.group_id)
        if group is not None:
            group.check_fetch(wanted.member_id, wanted.member_epoch)
        held = self.offsets.of_group(wanted.group_id)
        response = OffsetFetchResponse.Group(group_id=wanted.group_id)
        places: dict[tuple[str, bytes], list[int]] = {}
        if wanted.topics is None:
            for (topic, partition), committed in held.items():
                places.setdefault((topic, committed.topic_id), []).append(partition)
        else:
            for one in wanted.topics:
                facts = self._topic(one.name, one.topic_id, caller.api_version)
                name = one.name if facts is None else facts.name
                places.setdefault((name, one.topic_id), []).extend(one.partition_indexes)
        for (topic, topic_id), partitions in places.items():
            answer = OffsetFetchResponse.Topics(name=topic, topic_id=topic_id)
            for partition in partitions:
                found = held.get((topic, partition))
                shown = OffsetFetchResponse.Partitions(
                    partition_index=partition, committed_offset=-1, committed_leader_epoch=-1, metadata=""
                )
                if require_stable and self.offsets.is_pending(wanted.group_id, (topic, partition)):
                    shown.error_code = UnstableOffsetCommitError.code
                elif found is not None:
                    shown.committed_offset = found.offset
                    shown.committed_leader_epoch = found.leader_epoch
                    shown.metadata = found.metadata
                answer.partitions.append(shown)
            response.topics.append(answer)
        step = Step()
        step.reply(token, response)
        return step
