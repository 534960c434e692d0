"""ConsumerGroupHeartbeat (68), versions 0-1 (KIP-848). v1: the client makes its member id; regular expressions."""

from __future__ import annotations

from typing import Any

from kbroker.api.context import Context
from kbroker.api.groups import caller, new_member_id
from kbroker.api.registry import api
from kbroker.coordinator.later import Later, gather
from kbroker.errors import KafkaError
from kbroker.protocol.messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

MEMBER_ID_FROM = 1


def _failed(
    request: ConsumerGroupHeartbeatRequest, code: int, version: int, message: str | None = None
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)


@api(68, versions="0-1", failed=_failed)
def consumer_group_heartbeat(request: ConsumerGroupHeartbeatRequest, ctx: Context) -> Later:
    who = caller(ctx)
    if not request.member_id and not request.member_epoch and ctx.api_version < MEMBER_ID_FROM:
        request.member_id = new_member_id()
    asked = ctx.rooms.groups.submit(
        request.group_id, lambda shard, token, now_ms: shard.consumers.on_heartbeat(token, request, who, now_ms)
    )
    return gather([asked], lambda answers: _told(request, ctx.api_version, answers[0]))


def _told(request: ConsumerGroupHeartbeatRequest, version: int, answer: Any) -> ConsumerGroupHeartbeatResponse:
    if isinstance(answer, KafkaError):
        return _failed(request, answer.code, version, answer.message)
    assert isinstance(answer, ConsumerGroupHeartbeatResponse)
    return answer
