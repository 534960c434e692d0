"""FindCoordinator (10), versions 0-6. v4+: several keys at once (KIP-699). v6: share coordinators (KIP-932).

The first lookup of a group makes __consumer_offsets, that of a transactional id __transaction_state. There is no
coordinator of share groups here yet: its keys are answered COORDINATOR_NOT_AVAILABLE, on which clients wait and ask
again.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from kbroker._core.errors import Err
from kbroker.api.context import Context
from kbroker.api.internal_topics import create_offsets_topic, create_transactions_topic
from kbroker.api.registry import api
from kbroker.coordinator.placement import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, partition_for
from kbroker.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse

GROUP, TRANSACTION, SHARE = 0, 1, 2
TOPICS = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTIONS_TOPIC}

MALFORMED = "This broker has no coordinator of key type {}."
Coordinator = FindCoordinatorResponse.Coordinator


def _failed(
    request: FindCoordinatorRequest, code: int, version: int, message: str | None = None
) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if version >= 4 else [request.key]
    return _answer([_missing(key, code, message or "") for key in keys], version)


def _missing(key: str, code: int, message: str = "") -> Coordinator:
    return Coordinator(key=key, node_id=-1, port=-1, error_code=code, error_message=message)


def _answer(found: list[Coordinator], version: int) -> FindCoordinatorResponse:
    if version >= 4:
        return FindCoordinatorResponse(coordinators=found)
    one = found[0]
    return FindCoordinatorResponse(
        error_code=one.error_code, error_message=one.error_message, node_id=one.node_id, host=one.host, port=one.port
    )


def _is_share_key(key: str) -> bool:
    group, _, rest = key.partition(":")
    topic_id, _, partition = rest.partition(":")
    return bool(group) and len(topic_id) == 22 and partition.isdigit()


@api(10, versions="0-6", failed=_failed)
def find_coordinator(
    request: FindCoordinatorRequest, ctx: Context
) -> FindCoordinatorResponse | Coroutine[Any, Any, FindCoordinatorResponse]:
    if request.key_type not in (GROUP, TRANSACTION, SHARE):
        return _failed(request, Err.INVALID_REQUEST, ctx.api_version, MALFORMED.format(request.key_type))
    if request.key_type in TOPICS and TOPICS[request.key_type] not in ctx.rooms.image.topics:
        return _after_creation(request, ctx)
    return _found(request, ctx)


async def _after_creation(request: FindCoordinatorRequest, ctx: Context) -> FindCoordinatorResponse:
    await (create_offsets_topic if request.key_type == GROUP else create_transactions_topic)(ctx.rooms)
    return _found(request, ctx)


def _found(request: FindCoordinatorRequest, ctx: Context) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if ctx.api_version >= 4 else [request.key]
    return _answer([_find(key, request.key_type, ctx) for key in keys], ctx.api_version)


def _find(key: str, key_type: int, ctx: Context) -> Coordinator:
    if key_type == SHARE and not _is_share_key(key):
        return _missing(key, Err.INVALID_REQUEST)
    image = ctx.rooms.image
    topic = image.topics.get(TOPICS.get(key_type, ""))
    if topic is None:
        return _missing(key, Err.COORDINATOR_NOT_AVAILABLE)
    broker = image.brokers.get(topic.partitions[partition_for(key, len(topic.partitions))].leader)
    endpoint = None if broker is None or broker.fenced else broker.endpoint(ctx.listener_name)
    if broker is None or endpoint is None:
        return _missing(key, Err.COORDINATOR_NOT_AVAILABLE)
    if key_type == GROUP and broker.broker_id == ctx.rooms.node_id:
        ctx.rooms.groups.note_sought(key, ctx.peer)
    return Coordinator(
        key=key, node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, error_code=Err.NONE, error_message=""
    )
