"""InitProducerId (22), versions 0-5: a producer id for an idempotent producer. v3: resume with an id and epoch
(KIP-360).

v6 (two-phase commit) is unstable in Kafka 4.3 and not served there either. A transactional id needs a transaction
coordinator: until there is one the answer is COORDINATOR_NOT_AVAILABLE, as FindCoordinator's.
"""

from __future__ import annotations

from kbroker._core.errors import Err
from kbroker.api.context import Context
from kbroker.api.registry import api
from kbroker.protocol.messages import InitProducerIdRequest, InitProducerIdResponse


def _failed(_request: InitProducerIdRequest, code: int, version: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


@api(22, versions="0-5", failed=_failed)
async def init_producer_id(request: InitProducerIdRequest, ctx: Context) -> InitProducerIdResponse:
    if request.transactional_id == "" or (request.producer_id == -1) != (request.producer_epoch == -1):
        return _failed(request, Err.INVALID_REQUEST, ctx.api_version)
    if request.transactional_id is not None:
        return _failed(request, Err.COORDINATOR_NOT_AVAILABLE, ctx.api_version)
    return InitProducerIdResponse(producer_id=await ctx.rooms.producer_ids.next(), producer_epoch=0)
