"""Topics come, grow and go. Each function reads the image and returns the records that would make it so, and answers.

Every item of a request succeeds or fails by itself, as Kafka has it; what fails leaves no record. Chance (topic ids,
the order of brokers) is handed in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from kbroker.cluster.image import TOPIC_RESOURCE, ClusterImage, TopicImage
from kbroker.cluster.placement import Candidate, place
from kbroker.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    KafkaError,
    PolicyViolationError,
    TopicAlreadyExistsError,
    TopicDeletionDisabledError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from kbroker.protocol.message import ZERO_UUID, Message
from kbroker.protocol.records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord

METADATA_TOPIC = "__cluster_metadata"
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
MAX_NAME_LENGTH = 249
MAX_PARTITIONS_PER_REQUEST = 10_000  # Kafka's bound on one request; without it a few bytes could ask for billions

NO_CONFIGS: Mapping[str, Any] = MappingProxyType({})

_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


class Rules(NamedTuple):
    """What the edge brings to a decision: the broker's settings, and chance."""

    num_partitions: int
    default_replication_factor: int
    check_configs: Callable[[Mapping[str, str | None]], str | None]
    new_id: Callable[[], bytes]
    shuffle: Callable[[list[int]], None]
    delete_enabled: bool = True


class NewTopic(NamedTuple):
    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Sequence[tuple[int, Sequence[int]]] = ()  # (partition, replicas); empty: placed here
    configs: Mapping[str, str | None] = NO_CONFIGS


class TopicResult(NamedTuple):
    name: str | None
    error_code: int = 0
    error_message: str | None = None
    topic_id: bytes = ZERO_UUID
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = NO_CONFIGS  # what was set on the topic

    @classmethod
    def failed(cls, name: str | None, error: KafkaError, topic_id: bytes = ZERO_UUID) -> TopicResult:
        return cls(name, error.code, error.message, topic_id)


class Decision:
    __slots__ = ("records", "results")

    def __init__(self) -> None:
        self.results: list[TopicResult] = []
        self.records: list[Message] = []


def topic_name_error(name: str) -> str | None:
    """Why a topic cannot be called this (INVALID_TOPIC_EXCEPTION's message, in Kafka's words), or None."""
    if not name:
        problem = "the empty string is not allowed"
    elif name in (".", ".."):
        problem = f"'{name}' is not allowed"
    elif len(name) > MAX_NAME_LENGTH:
        problem = f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    elif not _NAME_CHARACTERS.issuperset(name):
        problem = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return None
    return f"Topic name is invalid: {problem}"


def create_topics(image: ClusterImage, wanted: Sequence[NewTopic], rules: Rules) -> Decision:
    decision = Decision()
    times = Counter(topic.name for topic in wanted)
    total = sum(len(topic.assignments) or max(topic.num_partitions, 1) for topic in wanted)
    taken = {name.replace(".", "_"): name for name in image.topics}
    for topic in {topic.name: topic for topic in wanted}.values():
        try:
            if total > MAX_PARTITIONS_PER_REQUEST:
                raise PolicyViolationError("Excessively large number of partitions per request.")
            if times[topic.name] > 1:
                raise InvalidRequestError("Duplicate topic name.")
            if topic.name == METADATA_TOPIC:
                raise InvalidRequestError(f"Creation of internal topic {METADATA_TOPIC} is prohibited.")
            result, records = _create_topic(image, topic, taken, rules)
        except KafkaError as error:
            decision.results.append(TopicResult.failed(topic.name, error))
        else:
            # Kafka lets two names of one request collide: only topics that exist are looked at.
            decision.results.append(result)
            decision.records += records
    return decision


def _create_topic(
    image: ClusterImage, topic: NewTopic, taken: Mapping[str, str], rules: Rules
) -> tuple[TopicResult, list[Message]]:
    unnameable = topic_name_error(topic.name)
    if unnameable is not None:
        raise InvalidTopicError(unnameable)
    if topic.name in image.topics:
        raise TopicAlreadyExistsError(f"Topic '{topic.name}' already exists.")
    other = taken.get(topic.name.replace(".", "_"))
    if other is not None:
        raise InvalidTopicError(f"Topic '{topic.name}' collides with existing topic: {other}")
    problem = rules.check_configs(topic.configs)
    if problem is not None:
        raise InvalidConfigError(problem)
    replicas = _replicas_of_new(image, topic, rules)
    configs = {name: value for name, value in topic.configs.items() if value is not None}
    topic_id = rules.new_id()
    records: list[Message] = [TopicRecord(name=topic.name, topic_id=topic_id)]
    records += [
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic.name, name=name, value=value)
        for name, value in sorted(configs.items())
    ]
    records += [_new_partition(image, topic_id, index, each) for index, each in enumerate(replicas)]
    return TopicResult(topic.name, 0, None, topic_id, len(replicas), len(replicas[0]), configs), records


def _replicas_of_new(image: ClusterImage, topic: NewTopic, rules: Rules) -> list[list[int]]:
    if not topic.assignments:
        if topic.replication_factor < -1 or topic.replication_factor == 0:
            raise InvalidReplicationFactorError(
                "Replication factor must be larger than 0, or -1 to use the default value."
            )
        if topic.num_partitions < -1 or topic.num_partitions == 0:
            raise InvalidPartitionsError("Number of partitions was set to an invalid non-positive value.")
        partitions = topic.num_partitions if topic.num_partitions > 0 else rules.num_partitions
        factor = topic.replication_factor if topic.replication_factor > 0 else rules.default_replication_factor
        return place(_candidates(image), partitions, factor, rules.shuffle)
    if topic.replication_factor != -1:
        raise InvalidRequestError(
            "A manual partition assignment was specified, but replication factor was not set to -1."
        )
    if topic.num_partitions != -1:
        raise InvalidRequestError("A manual partition assignment was specified, but numPartitions was not set to -1.")
    return _check_assignments(image, topic.assignments)


def _check_assignments(image: ClusterImage, assignments: Sequence[tuple[int, Sequence[int]]]) -> list[list[int]]:
    by_index: dict[int, list[int]] = {}
    factor = None
    for index, replicas in assignments:
        if index in by_index:
            raise InvalidReplicaAssignmentError(f"Found multiple manual partition assignments for partition {index}")
        _check_assignment(image, replicas, factor)
        factor = len(replicas)
        by_index[index] = list(replicas)
    if sorted(by_index) != list(range(len(by_index))):
        raise InvalidReplicaAssignmentError("partitions should be a consecutive 0-based integer sequence")
    return [by_index[index] for index in range(len(by_index))]


def _check_assignment(image: ClusterImage, replicas: Sequence[int], factor: int | None) -> None:
    if not replicas:
        raise InvalidReplicaAssignmentError("The manual partition assignment includes an empty replica list.")
    for broker_id in sorted(replicas):
        if broker_id not in image.brokers:
            raise InvalidReplicaAssignmentError(
                f"The manual partition assignment includes broker {broker_id}, but no such broker is registered."
            )
        if list(replicas).count(broker_id) > 1:
            raise InvalidReplicaAssignmentError(
                f"The manual partition assignment includes the broker {broker_id} more than once."
            )
    if factor is not None and len(replicas) != factor:
        raise InvalidReplicaAssignmentError(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {factor} replica(s)."
        )
    if not any(image.brokers[broker_id].active for broker_id in replicas):
        raise InvalidReplicaAssignmentError(
            "All brokers specified in the manual partition assignment are fenced or in controlled shutdown."
        )


def create_partitions_of(
    image: ClusterImage, wanted: Sequence[tuple[str, int, Sequence[Sequence[int]] | None]], rules: Rules
) -> Decision:
    """Several topics grow; each item is (name, new count, replicas of the new partitions or None)."""
    decision = Decision()
    times = Counter(name for name, _, _ in wanted)
    for name, count, assignments in {item[0]: item for item in wanted}.values():
        if times[name] > 1:
            decision.results.append(TopicResult.failed(name, InvalidRequestError("Duplicate topic name.")))
            continue
        result, records = create_partitions(image, name, count, assignments, rules)
        decision.results.append(result)
        decision.records += records
    return decision


def create_partitions(
    image: ClusterImage,
    name: str,
    count: int,
    assignments: Sequence[Sequence[int]] | None,
    rules: Rules,
) -> tuple[TopicResult, list[Message]]:
    try:
        topic = image.topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartitionError()
        return TopicResult(name), _added_partitions(image, topic, count, assignments, rules)
    except KafkaError as error:
        return TopicResult.failed(name, error), []


def _added_partitions(
    image: ClusterImage, topic: TopicImage, count: int, assignments: Sequence[Sequence[int]] | None, rules: Rules
) -> list[Message]:
    present = len(topic.partitions)
    if count == present:
        raise InvalidPartitionsError(f"Topic already has {present} partition(s).")
    if count < present:
        raise InvalidPartitionsError(
            f"The topic {topic.name} currently has {present} partition(s); {count} would not be an increase."
        )
    added = count - present
    if added > MAX_PARTITIONS_PER_REQUEST:
        raise PolicyViolationError("Excessively large number of partitions per request.")
    factor = len(topic.partitions[0].replicas)
    if assignments is None:
        replicas = place(_candidates(image), added, factor, rules.shuffle)
    else:
        if len(assignments) != added:
            raise InvalidReplicaAssignmentError(
                f"Attempted to add {added} additional partition(s), but only {len(assignments)} assignment(s) were "
                "specified."
            )
        for each in assignments:
            _check_assignment(image, each, factor)
        replicas = [list(each) for each in assignments]
    return [_new_partition(image, topic.topic_id, present + i, each) for i, each in enumerate(replicas)]


def delete_topics(
    image: ClusterImage, names: Sequence[str], topic_ids: Sequence[bytes], *, enabled: bool = True
) -> Decision:
    """By name and by id. Results name both where the topic is known; a topic asked for twice is refused."""
    decision = Decision()
    ids = Counter(topic_ids)
    for name, times in Counter(names).items():
        topic = image.topics.get(name)
        if times > 1:
            error: KafkaError | None = InvalidRequestError("Duplicate topic name.")
            topic = None
        elif topic is None:
            error = UnknownTopicOrPartitionError("This server does not host this topic-partition.")
        elif topic.topic_id in ids:
            error = InvalidRequestError("The provided topic name maps to an ID that was already supplied.")
        else:
            error = None
        _delete_one(decision, topic, error, enabled=enabled, name=name)
    named = {image.topics[name].topic_id for name in names if name in image.topics}
    for topic_id, times in ids.items():
        topic = image.topics_by_id.get(topic_id)
        if times > 1:
            _delete_one(decision, None, InvalidRequestError("Duplicate topic id."), enabled=enabled, topic_id=topic_id)
        elif topic is None:
            unknown = UnknownTopicIdError("This server does not host this topic ID.")
            _delete_one(decision, None, unknown, enabled=enabled, topic_id=topic_id)
        elif topic_id not in named:  # else its name has been answered
            _delete_one(decision, topic, None, enabled=enabled)
    return decision


def _delete_one(
    decision: Decision,
    topic: TopicImage | None,
    error: KafkaError | None,
    *,
    enabled: bool,
    name: str | None = None,
    topic_id: bytes = ZERO_UUID,
) -> None:
    if not enabled:
        error = TopicDeletionDisabledError()
    if topic is not None:
        name, topic_id = topic.name, topic.topic_id
    if error is not None:
        decision.results.append(TopicResult.failed(name, error, topic_id))
        return
    decision.results.append(TopicResult(name, topic_id=topic_id))
    decision.records.append(RemoveTopicRecord(topic_id=topic_id))


def _candidates(image: ClusterImage) -> list[Candidate]:
    return [Candidate(one.broker_id, one.rack, not one.active) for one in image.brokers.values()]


def _new_partition(image: ClusterImage, topic_id: bytes, index: int, replicas: list[int]) -> PartitionRecord:
    in_sync = [broker_id for broker_id in replicas if image.brokers[broker_id].active]
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=replicas,
        isr=in_sync,
        leader=in_sync[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[_default_directory(image, broker_id) for broker_id in replicas],
    )


def _default_directory(image: ClusterImage, broker_id: int) -> bytes:
    """The one directory of a broker that has one; a broker with several chooses and says so later (zero until then)."""
    directories = image.brokers[broker_id].log_dirs
    return directories[0] if len(directories) == 1 else ZERO_UUID
