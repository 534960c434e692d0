"""InitProducerId (22), versions 0-5: a producer id for an idempotent producer, or the one of a transactional id.

v3: resume with an id and epoch (KIP-360). v4: PRODUCER_FENCED (KIP-588). v6 (two-phase commit) is unstable in Kafka 4.3
and not served there either.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from kbroker._core.errors import Err
from kbroker.api.answers import told
from kbroker.api.context import Context
from kbroker.api.registry import api
from kbroker.coordinator.later import Later
from kbroker.coordinator.txn.shard import Wish
from kbroker.protocol.messages import InitProducerIdRequest, InitProducerIdResponse

FENCED_FROM = 4


def _failed(_request: InitProducerIdRequest, code: int, version: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=told(code, version, fenced_from=FENCED_FROM), producer_id=-1, producer_epoch=-1
    )


@api(22, versions="0-5", failed=_failed)
def init_producer_id(
    request: InitProducerIdRequest, ctx: Context
) -> InitProducerIdResponse | Later | Coroutine[Any, Any, InitProducerIdResponse]:
    if request.transactional_id == "" or (request.producer_id == -1) != (request.producer_epoch == -1):
        return _failed(request, Err.INVALID_REQUEST, ctx.api_version)
    if request.transactional_id is None:
        return _idempotent(ctx)
    expected = None if request.producer_id == -1 else (request.producer_id, request.producer_epoch)
    return ctx.rooms.transactions.init_producer(
        Wish(request.transactional_id, request.transaction_timeout_ms, expected)
    )


async def _idempotent(ctx: Context) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=await ctx.rooms.producer_ids.next(), producer_epoch=0)
