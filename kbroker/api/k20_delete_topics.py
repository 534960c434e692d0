"""DeleteTopics (20), versions 1-6. v5: error messages, quota errors (KIP-599). v6: by name or by id (KIP-516)."""

from __future__ import annotations

from collections import Counter

from kbroker._core.errors import Err
from kbroker.api.context import Context
from kbroker.api.registry import api
from kbroker.protocol.message import ZERO_UUID
from kbroker.protocol.messages import DeleteTopicsRequest, DeleteTopicsResponse

Result = DeleteTopicsResponse.DeletableTopicResult
State = DeleteTopicsRequest.DeleteTopicState


def _asked(request: DeleteTopicsRequest) -> list[State]:
    return request.topics + [State(name=name) for name in request.topic_names]


def _failed(request: DeleteTopicsRequest, code: int, version: int) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[Result(name=one.name, topic_id=one.topic_id, error_code=code) for one in _asked(request)]
    )


@api(20, versions="1-6", failed=_failed)
async def delete_topics(request: DeleteTopicsRequest, ctx: Context) -> DeleteTopicsResponse:
    refused, names, ids = [], [], []
    for (name, topic_id), times in Counter((one.name, one.topic_id) for one in _asked(request)).items():
        problem = _problem(name, topic_id, times)
        if problem is not None:
            refused.append(Result(name=name, topic_id=topic_id, error_code=Err.INVALID_REQUEST, error_message=problem))
        elif name is not None:
            names.append(name)
        else:
            ids.append(topic_id)
    results = await ctx.rooms.controller.delete_topics(names, ids) if names or ids else []
    return DeleteTopicsResponse(
        responses=refused
        + [
            Result(
                name=result.name,
                topic_id=result.topic_id,
                error_code=result.error_code,
                error_message=result.error_message,
            )
            for result in results
        ]
    )


def _problem(name: str | None, topic_id: bytes, times: int) -> str | None:
    if name is not None and topic_id != ZERO_UUID:
        return "You may not specify both topic name and topic id."
    if name is None and topic_id == ZERO_UUID:
        return "Neither topic name nor id were specified."
    if times > 1:
        return "Duplicate topic name." if name is not None else "Duplicate topic id."
    return None
