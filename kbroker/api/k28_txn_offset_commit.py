"""TxnOffsetCommit (28), versions 0-5: a group's offsets as part of a producer's transaction.

v3: the consumer says which member it is, and is fenced like one (KIP-447). v4: TRANSACTION_ABORTABLE. v5: the group's
partition becomes part of the transaction here, without AddOffsetsToTxn (KIP-890).
"""

from __future__ import annotations

from kbroker._core.errors import Err
from kbroker.api.answers import code_of
from kbroker.api.context import Context
from kbroker.api.groups import caller
from kbroker.api.registry import api
from kbroker.coordinator.placement import OFFSETS_TOPIC
from kbroker.coordinator.runtime import answer_of
from kbroker.protocol.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse

ABORTABLE_FROM = 4
ADDS_FROM = 5
AWAY = {Err.COORDINATOR_LOAD_IN_PROGRESS, Err.COORDINATOR_NOT_AVAILABLE, Err.NOT_COORDINATOR}  # of the transaction


def _failed(request: TxnOffsetCommitRequest, code: int, version: int) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponse.Topic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponse.Partition(partition_index=one.partition_index, error_code=code)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@api(28, versions="0-5", failed=_failed)
async def txn_offset_commit(request: TxnOffsetCommitRequest, ctx: Context) -> TxnOffsetCommitResponse:
    groups, version = ctx.rooms.groups, ctx.api_version
    if not request.group_id:
        return _failed(request, Err.INVALID_GROUP_ID, version)
    partition = groups.partition_of(request.group_id)
    if partition is None:
        return _failed(request, Err.COORDINATOR_NOT_AVAILABLE, version)
    guard = 0
    if _is_for_something(request, ctx):
        adds = version >= ADDS_FROM
        if adds:
            await ctx.rooms.transactions.last_one_ended(request.transactional_id)
        guard = groups.begin_verification(request.group_id, request.producer_id, request.producer_epoch, adds=adds)
        code = await _verify(request, ctx, (OFFSETS_TOPIC, partition)) if guard else Err.NONE
        if code != Err.NONE:
            return _failed(request, code, version)
    who = caller(ctx)
    answer = await answer_of(
        groups.submit(
            request.group_id,
            lambda shard, token, now_ms: shard.on_txn_offset_commit(token, request, who, guard, now_ms),
        )
    )
    if isinstance(answer, TxnOffsetCommitResponse):
        return answer
    return _failed(request, code_of(answer), version)


def _is_for_something(request: TxnOffsetCommitRequest, ctx: Context) -> bool:
    """Whoever commits for topics that do not exist is told so, and nothing else is looked at."""
    topics = ctx.rooms.image.topics
    return any(
        topic.name in topics and one.partition_index in topics[topic.name].partitions
        for topic in request.topics
        for one in topic.partitions
    )


async def _verify(request: TxnOffsetCommitRequest, ctx: Context, place: tuple[str, int]) -> int:
    codes = await ctx.rooms.transactions.verify(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [place],
        add=ctx.api_version >= ADDS_FROM,
    )
    code = codes.get(place, Err.NONE)
    if code == Err.PRODUCER_FENCED:
        return Err.INVALID_PRODUCER_EPOCH
    if code == Err.TRANSACTION_ABORTABLE and ctx.api_version < ABORTABLE_FROM:
        return Err.INVALID_TXN_STATE
    return Err.COORDINATOR_LOAD_IN_PROGRESS if code in AWAY else code
