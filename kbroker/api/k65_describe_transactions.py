"""DescribeTransactions (65), version 0: transactional ids as their coordinator knows them (KIP-664)."""

from __future__ import annotations

from functools import partial
from typing import Any

from kbroker._core.errors import Err
from kbroker.api.answers import code_of
from kbroker.api.context import Context
from kbroker.api.registry import api
from kbroker.coordinator.later import Later, gather
from kbroker.coordinator.step import Step
from kbroker.coordinator.txn.shard import TransactionShard
from kbroker.protocol.messages import DescribeTransactionsRequest, DescribeTransactionsResponse

Described = DescribeTransactionsResponse.TransactionState


def _failed(request: DescribeTransactionsRequest, code: int, version: int) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[Described(transactional_id=one, error_code=code) for one in request.transactional_ids]
    )


@api(65, versions="0-0", failed=_failed)
def describe_transactions(request: DescribeTransactionsRequest, ctx: Context) -> Later:
    wanted = request.transactional_ids
    parts = [_describe(one, ctx) for one in wanted]

    def combine(answers: list[Any]) -> DescribeTransactionsResponse:
        return DescribeTransactionsResponse(
            transaction_states=[
                answer if isinstance(answer, Described) else Described(transactional_id=one, error_code=code_of(answer))
                for one, answer in zip(wanted, answers, strict=True)
            ]
        )

    return gather(parts, combine)


def _describe(transactional_id: str, ctx: Context) -> Later:
    if transactional_id:
        return ctx.rooms.transactions.submit(transactional_id, partial(_ask, transactional_id=transactional_id))
    refused = Later()
    refused.settle(Described(transactional_id="", error_code=Err.INVALID_REQUEST))
    return refused


def _ask(shard: TransactionShard, token: object, _now_ms: int, *, transactional_id: str) -> Step:
    return shard.on_describe(token, transactional_id)
