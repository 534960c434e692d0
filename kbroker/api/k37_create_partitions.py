"""CreatePartitions (37), versions 0-3: more partitions for existing topics (KIP-195). v3: quota errors (KIP-599)."""

from __future__ import annotations

from collections import Counter

from kbroker._core.errors import Err
from kbroker.api.context import Context
from kbroker.api.registry import api
from kbroker.protocol.messages import CreatePartitionsRequest, CreatePartitionsResponse

Result = CreatePartitionsResponse.CreatePartitionsTopicResult


def _failed(request: CreatePartitionsRequest, code: int, version: int) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(results=[Result(name=topic.name, error_code=code) for topic in request.topics])


@api(37, versions="0-3", failed=_failed)
async def create_partitions(request: CreatePartitionsRequest, ctx: Context) -> CreatePartitionsResponse:
    times = Counter(topic.name for topic in request.topics)
    refused = [
        Result(name=name, error_code=Err.INVALID_REQUEST, error_message="Duplicate topic name.")
        for name, count in times.items()
        if count > 1
    ]
    wanted = [
        (topic.name, topic.count, None if topic.assignments is None else [one.broker_ids for one in topic.assignments])
        for topic in request.topics
        if times[topic.name] == 1
    ]
    results = await ctx.rooms.controller.create_partitions(wanted, validate_only=request.validate_only)
    return CreatePartitionsResponse(
        results=refused
        + [Result(name=one.name or "", error_code=one.error_code, error_message=one.error_message) for one in results]
    )
