"""ListTransactions (66), versions 0-2: the transactional ids of this node (KIP-664).

v1: those whose transaction has been open for longer than so many ms (KIP-994). v2: those that match a pattern
(KIP-1152).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kbroker.api.context import Context
from kbroker.api.registry import api
from kbroker.coordinator.later import Later, gather
from kbroker.coordinator.re2_engine import Re2
from kbroker.coordinator.txn.transaction import STATES_BY_TITLE
from kbroker.protocol.messages import ListTransactionsRequest, ListTransactionsResponse


def _failed(_request: ListTransactionsRequest, code: int, version: int) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=code)


@api(66, versions="0-2", failed=_failed)
def list_transactions(request: ListTransactionsRequest, ctx: Context) -> Later:
    matches = _matcher(request.transactional_id_pattern)
    unknown = [state for state in request.state_filters if state not in STATES_BY_TITLE]

    def combine(answers: list[Any]) -> Any:
        failure = next((one for one in answers if isinstance(one, Exception)), None)
        return failure or ListTransactionsResponse(
            unknown_state_filters=unknown,
            transaction_states=[found for one in answers for found in one.transaction_states],
        )

    return gather(
        ctx.rooms.transactions.submit_to_all(
            lambda shard, token, now_ms: shard.on_list(token, request, matches, now_ms)
        ),
        combine,
    )


def _matcher(pattern: str | None) -> Callable[[str], bool] | None:
    if not pattern:
        return None
    engine = Re2()
    engine.check(pattern)
    return lambda name: bool(engine.matching(pattern, [name]))
