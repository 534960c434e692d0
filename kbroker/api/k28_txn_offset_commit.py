"""TxnOffsetCommit (28), versions 0-5: a group's offsets as part of a producer's transaction.

v3: the consumer says which member it is, and is fenced like one (KIP-447). v4: TRANSACTION_ABORTABLE. v5: the group's
partition becomes part of the transaction here, without AddOffsetsToTxn (KIP-890).
"""

from __future__ import annotations

from kbroker._core.errors import Err
from kbroker.api.context import Context
from kbroker.api.groups import caller
from kbroker.api.registry import api
from kbroker.coordinator.later import Later
from kbroker.coordinator.placement import OFFSETS_TOPIC
from kbroker.errors import KafkaError
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


@api(28, versions="0-5", failed=_failed, followed=lambda _: True)
def txn_offset_commit(request: TxnOffsetCommitRequest, ctx: Context) -> Later:
    groups, transactions, version = ctx.rooms.groups, ctx.rooms.transactions, ctx.api_version
    whole = Later()
    partition = groups.partition_of(request.group_id)
    if not request.group_id or partition is None:
        code = Err.COORDINATOR_NOT_AVAILABLE if request.group_id else Err.INVALID_GROUP_ID
        whole.settle(_failed(request, code, version))
        return whole
    adds = version >= ADDS_FROM
    place = (OFFSETS_TOPIC, partition)
    who = caller(ctx)

    def begin(_ended: object) -> None:
        try:
            guard = groups.begin_verification(request.group_id, request.producer_id, request.producer_epoch, adds=adds)
        except KafkaError as error:
            whole.settle(error)
            return
        if guard:
            codes = transactions.verify(
                request.transactional_id, request.producer_id, request.producer_epoch, [place], add=adds
            )
            codes.then(lambda told: verified(_told(told[place], version), guard))
        else:
            verified(Err.NONE, guard)

    def verified(code: int, guard: int) -> None:
        if code != Err.NONE:
            whole.settle(_failed(request, code, version))
        else:
            commit(guard)

    def commit(guard: int) -> None:
        answer = groups.submit(
            request.group_id,
            lambda shard, token, now_ms: shard.on_txn_offset_commit(token, request, who, guard, now_ms),
        )
        answer.then(whole.settle)

    if not _is_for_something(request, ctx):
        commit(0)
    elif adds:
        transactions.last_one_ended(request.transactional_id).then(begin)
    else:
        begin(None)
    return whole


def _is_for_something(request: TxnOffsetCommitRequest, ctx: Context) -> bool:
    """Whoever commits for topics that do not exist is told so, and nothing else is looked at."""
    topics = ctx.rooms.image.topics
    return any(
        topic.name in topics and one.partition_index in topics[topic.name].partitions
        for topic in request.topics
        for one in topic.partitions
    )


def _told(code: int, version: int) -> int:
    """The answer of the transaction's coordinator, as this request tells it."""
    if code == Err.PRODUCER_FENCED:
        return Err.INVALID_PRODUCER_EPOCH
    if code == Err.TRANSACTION_ABORTABLE and version < ABORTABLE_FROM:
        return Err.INVALID_TXN_STATE
    return Err.COORDINATOR_LOAD_IN_PROGRESS if code in AWAY else code
