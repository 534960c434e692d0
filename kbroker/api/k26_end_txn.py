"""EndTxn (26), versions 0-5: a transaction is committed or aborted. v2: PRODUCER_FENCED (KIP-588).

v5: transaction version 2. Every end gives the producer a new epoch, and the answer tells it (KIP-890). It leaves when
the decision is committed; the markers follow.

What is plain, and ends an open transaction as its producer says, is not seen here: the coordinator takes it as it came
(coordinator/txn/runtime.take_end).
"""

from __future__ import annotations

from kbroker.api.answers import told
from kbroker.api.context import Context
from kbroker.api.registry import api
from kbroker.coordinator.later import Later
from kbroker.coordinator.txn.shard import Producer
from kbroker.coordinator.txn.transaction import client_version_of
from kbroker.protocol.messages import EndTxnRequest, EndTxnResponse

FENCED_FROM = 2


def _failed(_request: EndTxnRequest, code: int, version: int) -> EndTxnResponse:
    return EndTxnResponse(error_code=told(code, version, fenced_from=FENCED_FROM), producer_id=-1, producer_epoch=-1)


@api(26, versions="0-5", failed=_failed)
def end_txn(request: EndTxnRequest, ctx: Context) -> Later:
    return ctx.rooms.transactions.end(
        Producer(request.transactional_id, request.producer_id, request.producer_epoch),
        commit=request.committed,
        client_version=client_version_of(ctx.api_version),
    )
