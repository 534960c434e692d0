"""AddOffsetsToTxn (25), versions 0-4: a group's offsets become part of a transaction. v2: PRODUCER_FENCED (KIP-588)."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from kbroker.api.answers import code_of, told
from kbroker.api.context import Context
from kbroker.api.internal_topics import create_offsets_topic
from kbroker.api.registry import api
from kbroker.coordinator.later import Later, gather
from kbroker.coordinator.placement import OFFSETS_TOPIC, partition_for
from kbroker.coordinator.runtime import answer_of
from kbroker.coordinator.txn.shard import Producer
from kbroker.protocol.messages import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

FENCED_FROM = 2


def _failed(_request: AddOffsetsToTxnRequest, code: int, version: int) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=told(code, version, fenced_from=FENCED_FROM))


@api(25, versions="0-4", failed=_failed, followed=lambda _: True)
def add_offsets_to_txn(
    request: AddOffsetsToTxnRequest, ctx: Context
) -> Later | Coroutine[Any, Any, AddOffsetsToTxnResponse]:
    if OFFSETS_TOPIC not in ctx.rooms.image.topics:
        return _after_creation(request, ctx)
    return _add(request, ctx)


async def _after_creation(request: AddOffsetsToTxnRequest, ctx: Context) -> AddOffsetsToTxnResponse:
    """The marker will need it."""
    await create_offsets_topic(ctx.rooms)
    answer = await answer_of(_add(request, ctx))
    assert isinstance(answer, AddOffsetsToTxnResponse)
    return answer


def _add(request: AddOffsetsToTxnRequest, ctx: Context) -> Later:
    who = Producer(request.transactional_id, request.producer_id, request.producer_epoch)
    partition = partition_for(request.group_id, len(ctx.rooms.image.topics[OFFSETS_TOPIC].partitions))
    added = ctx.rooms.transactions.add(who, [(OFFSETS_TOPIC, partition)], 0)
    return gather([added], lambda answers: _failed(request, code_of(answers[0]), ctx.api_version))
