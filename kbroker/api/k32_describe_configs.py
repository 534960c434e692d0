"""DescribeConfigs (32), versions 1-4. v1: sources and synonyms (KIP-226). v3: types and documentation (KIP-569).

There is no documentation to give: that field stays null, as it is for settings that Kafka documents nowhere.
"""

from __future__ import annotations

from kbroker.api.context import Context
from kbroker.api.registry import api
from kbroker.cluster.topics import topic_name_error
from kbroker.config import ConfigEntry
from kbroker.errors import InvalidRequestError, InvalidTopicError, KafkaError, UnknownTopicOrPartitionError
from kbroker.protocol.messages import DescribeConfigsRequest, DescribeConfigsResponse

Result = DescribeConfigsResponse.DescribeConfigsResult
Entry = DescribeConfigsResponse.DescribeConfigsResourceResult
Synonym = DescribeConfigsResponse.DescribeConfigsSynonym
Resource = DescribeConfigsRequest.DescribeConfigsResource

TOPIC, BROKER, GROUP = 2, 4, 32


def _failed(request: DescribeConfigsRequest, code: int, version: int) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_refused(one, code, None) for one in request.resources])


def _refused(asked: Resource, code: int, message: str | None) -> Result:
    return Result(
        error_code=code, error_message=message, resource_type=asked.resource_type, resource_name=asked.resource_name
    )


@api(32, versions="1-4", failed=_failed)
def describe_configs(request: DescribeConfigsRequest, ctx: Context) -> DescribeConfigsResponse:
    # What is asked again is answered once: an answer may be a hundred times its question, and takes the control loop a
    # hundred times as long. (Apache repeats itself; no client asks twice.)
    described: dict[tuple[int, str], list[ConfigEntry]] = {}
    results: dict[tuple[int, str, frozenset[str]], Result] = {}
    for asked in request.resources:
        keys = frozenset(asked.configuration_keys or ())
        mention = (asked.resource_type, asked.resource_name, keys)
        if mention not in results:
            results[mention] = _result(ctx, asked, keys, request.include_synonyms, described)
    return DescribeConfigsResponse(results=list(results.values()))


def _result(
    ctx: Context,
    asked: Resource,
    keys: frozenset[str],
    include_synonyms: bool,
    described: dict[tuple[int, str], list[ConfigEntry]],
) -> Result:
    resource = (asked.resource_type, asked.resource_name)
    try:
        entries = described[resource] if resource in described else described.setdefault(resource, _entries(ctx, asked))
    except KafkaError as error:
        return _refused(asked, error.code, error.message or "")
    return Result(
        error_message="",
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=[_entry(entry, include_synonyms) for entry in entries if not keys or entry.name in keys],
    )


def _entries(ctx: Context, asked: Resource) -> list[ConfigEntry]:
    rooms, name = ctx.rooms, asked.resource_name
    if asked.resource_type == TOPIC:
        unnameable = topic_name_error(name)
        if unnameable is not None:
            raise InvalidTopicError(unnameable)
        if name not in rooms.image.topics:
            raise UnknownTopicOrPartitionError
        return rooms.config.describe_topic(rooms.image.topic_configs(name), rooms.dynamic)
    if asked.resource_type == BROKER:
        if name == "":
            return rooms.config.describe_cluster_default(rooms.dynamic)
        if name == str(rooms.node_id):
            return rooms.config.describe_broker(rooms.dynamic)
        raise InvalidRequestError(
            f"Broker {name!r} must be asked for its own settings; this is broker {rooms.node_id}."
        )
    if asked.resource_type == GROUP:
        if not name:
            raise InvalidRequestError("A group's settings are asked for by its id.")
        return rooms.config.describe_group(rooms.image.configs.get((GROUP, name), {}), rooms.dynamic)
    raise InvalidRequestError(f"There are no settings for resources of type {asked.resource_type} here.")


def _entry(entry: ConfigEntry, include_synonyms: bool) -> Entry:
    return Entry(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[Synonym(name=one.name, value=one.value, source=one.source) for one in entry.synonyms]
        if include_synonyms
        else [],
        config_type=entry.type,
        documentation=None,
    )
