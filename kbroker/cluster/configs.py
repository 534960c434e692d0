"""Settings change while the broker runs: of a topic, of one broker, of all brokers ("").

`alter_configs` reads the image and returns the records that would make it so, and answers. Each resource of a request
succeeds or fails as a whole, as Kafka has it. What a broker may be told is in broker_settings.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from kbroker.cluster.broker_settings import broker_settings_error
from kbroker.cluster.group_settings import group_settings_error
from kbroker.cluster.image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, ClusterImage
from kbroker.cluster.topics import topic_name_error
from kbroker.config import Config, Dynamic, table
from kbroker.errors import (
    InvalidConfigError,
    InvalidRequestError,
    InvalidTopicError,
    KafkaError,
    PolicyViolationError,
    UnknownTopicOrPartitionError,
)
from kbroker.protocol.message import Message
from kbroker.protocol.records import ConfigRecord

MAX_RECORDS_PER_REQUEST = 10_000  # Kafka's bound on one request


class Operation(IntEnum):
    """AlterConfigOp on the wire (KIP-339). The last two are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_OPERATIONS = frozenset(Operation)


class Change(NamedTuple):
    name: str
    value: str | None
    operation: int = Operation.SET


class Alteration(NamedTuple):
    """One resource of a request. `replace`: what is not named loses its value (AlterConfigs)."""

    resource_type: int
    resource_name: str
    changes: Sequence[Change]
    replace: bool = False


class ConfigResult(NamedTuple):
    resource_type: int
    resource_name: str
    error_code: int = 0
    error_message: str | None = None


class Decision(NamedTuple):
    results: list[ConfigResult]
    records: list[Message]


def dynamic_of(image: ClusterImage, node_id: int) -> Dynamic:
    """Broker settings changed at run time, as one broker sees them."""
    return Dynamic(image.broker_configs(node_id), image.broker_configs(None))


def alter_configs(image: ClusterImage, wanted: Sequence[Alteration], config: Config) -> Decision:
    decision = Decision([], [])
    times = Counter((one.resource_type, one.resource_name) for one in wanted)
    for one in wanted:
        resource = (one.resource_type, one.resource_name)
        try:
            if times[resource] > 1:
                raise InvalidRequestError("Each resource must appear at most once.")
            records = _altered(image, one, config)
        except KafkaError as error:
            decision.results.append(ConfigResult(*resource, error.code, error.message))
        else:
            decision.results.append(ConfigResult(*resource))
            decision.records.extend(records)
    if len(decision.records) > MAX_RECORDS_PER_REQUEST:
        raise PolicyViolationError("Unable to perform excessively large batch operation.")
    return decision


def _altered(image: ClusterImage, wanted: Alteration, config: Config) -> list[Message]:
    _check_form(wanted.changes)
    if wanted.resource_type == BROKER_RESOURCE:
        _check_broker_name(wanted.resource_name, config.node_id)
    elif wanted.resource_type not in (TOPIC_RESOURCE, GROUP_RESOURCE):
        raise InvalidRequestError(f"Unknown resource type {wanted.resource_type}")
    before = image.configs.get((wanted.resource_type, wanted.resource_name), {})
    after = {} if wanted.replace else dict(before)
    for change in wanted.changes:
        value = _changed(before.get(change.name), change, wanted.resource_type)
        if value is None:
            after.pop(change.name, None)
        else:
            after[change.name] = value
    if wanted.resource_type == TOPIC_RESOURCE:
        _check_topic(image, wanted.resource_name, after, config)
    elif wanted.resource_type == GROUP_RESOURCE:
        _check_group(image, wanted.resource_name, after, config)
    else:
        touched = {change.name for change in wanted.changes}
        _check_broker(image, wanted.resource_name, touched, after, config)
    return [
        ConfigRecord(
            resource_type=wanted.resource_type,
            resource_name=wanted.resource_name,
            name=name,
            value=after.get(name),
        )
        for name in {**after, **before}
        if before.get(name) != after.get(name)
    ]


def _check_form(changes: Sequence[Change]) -> None:
    """What Kafka refuses before it looks at what the names mean."""
    if len({change.name for change in changes}) < len(changes):
        raise InvalidRequestError("Error due to duplicate config keys")
    without = [one.name for one in changes if one.value is None and one.operation != Operation.DELETE]
    if without:
        raise InvalidRequestError(f"Null value not supported for : {', '.join(without)}")
    for one in changes:
        if one.operation not in _OPERATIONS:
            raise InvalidRequestError(f"Unknown operations type {one.operation}")


def _changed(current: str | None, change: Change, resource_type: int) -> str | None:
    """The new value; None: none."""
    if change.operation == Operation.SET:
        return change.value
    if change.operation == Operation.DELETE:
        return None
    known = {TOPIC_RESOURCE: table().topic, GROUP_RESOURCE: table().group}.get(resource_type, table().broker)
    setting = known.get(change.name)
    operation = Operation(change.operation)
    if setting is None or setting.type != "list":
        raise InvalidConfigError(_not_a_list(change.name, operation, resource_type, known=setting is not None))
    # A list that was never set starts from the default, not from what the topic would inherit: Kafka's way.
    parts = [part for part in (setting.default or "" if current is None else current).split(",") if part]
    assert change.value is not None, change
    for part in change.value.split(","):
        if operation == Operation.APPEND and part not in parts:
            parts.append(part)
        elif operation == Operation.SUBTRACT and part in parts:
            parts.remove(part)
    return ",".join(parts)


def _not_a_list(name: str, operation: Operation, resource_type: int, *, known: bool) -> str:
    if resource_type != BROKER_RESOURCE:
        return f"Can't {operation.name} to key {name} because its type is not LIST."
    if not known:
        return f"Unknown config name: {name}"
    return f"Config value {operation.name.lower()} is not allowed for config key: {name}"


def _check_topic(image: ClusterImage, topic: str, after: Mapping[str, str], config: Config) -> None:
    if not topic:
        raise InvalidRequestError("Default topic resources are not allowed.")
    unnameable = topic_name_error(topic)
    if unnameable is not None:
        raise InvalidTopicError(unnameable)
    problem = config.check_topic_overrides(after, dynamic_of(image, config.node_id))
    if problem is not None:
        raise InvalidConfigError(problem)
    if topic not in image.topics:
        raise UnknownTopicOrPartitionError(f"The topic '{topic}' does not exist.")


def _check_group(image: ClusterImage, group: str, after: Mapping[str, str], config: Config) -> None:
    """The group need not exist: it may be told before it has members."""
    if not group:
        raise InvalidRequestError("Default group resources are not allowed.")
    problem = group_settings_error(after, config, dynamic_of(image, config.node_id))
    if problem is not None:
        raise InvalidConfigError(problem)


def _check_broker_name(name: str, node_id: int) -> None:
    """A broker is asked for itself or for all: another one's settings are for that one to judge."""
    if name in ("", str(node_id)):
        return
    digits = name[1:] if name[:1] in ("+", "-") else name
    if not (digits.isascii() and digits.isdigit()):
        raise InvalidRequestError(f"Node id must be an integer, but it is: {name}")
    raise InvalidRequestError(f"Unexpected broker id, expected {node_id}, but received {name}")


def _check_broker(image: ClusterImage, name: str, touched: set[str], after: Mapping[str, str], config: Config) -> None:
    current = dynamic_of(image, config.node_id)
    changed = current._replace(broker=after) if name else current._replace(default=after)
    given = {one: after[one] for one in touched if one in after}
    problem = broker_settings_error(given, config, current, changed, for_all=not name)
    if problem is not None:
        raise problem
