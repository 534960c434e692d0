"""CreateTopics (19), versions 2-7. v4: -1 for the default partitions and replication factor (KIP-464).

v5: the answer carries the topic's settings (KIP-525). v6: quota errors (KIP-599). v7: topic ids (KIP-516).
"""

from __future__ import annotations

from kbroker.api.context import Context
from kbroker.api.registry import api
from kbroker.cluster.topics import NewTopic, TopicResult
from kbroker.protocol.messages import CreateTopicsRequest, CreateTopicsResponse

Result = CreateTopicsResponse.CreatableTopicResult
Setting = CreateTopicsResponse.CreatableTopicConfigs


def _failed(request: CreateTopicsRequest, code: int, version: int) -> CreateTopicsResponse:
    names = dict.fromkeys(topic.name for topic in request.topics)
    return CreateTopicsResponse(topics=[Result(name=name, error_code=code) for name in names])


@api(19, versions="2-7", failed=_failed)
async def create_topics(request: CreateTopicsRequest, ctx: Context) -> CreateTopicsResponse:
    wanted = [
        NewTopic(
            name=topic.name,
            num_partitions=topic.num_partitions,
            replication_factor=topic.replication_factor,
            assignments=[(one.partition_index, one.broker_ids) for one in topic.assignments],
            configs={setting.name: setting.value for setting in topic.configs},
        )
        for topic in request.topics
    ]
    results = await ctx.rooms.controller.create_topics(wanted, validate_only=request.validate_only)
    described: dict[tuple[tuple[str, str], ...], list[Setting]] = {}  # most topics of a request are alike
    return CreateTopicsResponse(topics=[_result(ctx, result, described) for result in results])


def _result(ctx: Context, result: TopicResult, described: dict[tuple[tuple[str, str], ...], list[Setting]]) -> Result:
    if result.error_code:
        return Result(name=result.name or "", error_code=result.error_code, error_message=result.error_message)
    key = tuple(sorted(result.configs.items()))
    if key not in described:
        described[key] = _settings(ctx, result)
    return Result(
        name=result.name or "",
        error_message=None,
        topic_id=result.topic_id,
        num_partitions=result.num_partitions,
        replication_factor=result.replication_factor,
        configs=described[key],
    )


def _settings(ctx: Context, result: TopicResult) -> list[Setting]:
    if ctx.api_version < 5:
        return []
    return [
        Setting(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
        )
        for entry in ctx.rooms.config.describe_topic(result.configs, ctx.rooms.dynamic)
    ]
