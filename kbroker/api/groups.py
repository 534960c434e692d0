"""What the handlers of group requests share."""

from __future__ import annotations

from kbroker.api.context import Context
from kbroker.coordinator.group.facts import Caller


def caller(ctx: Context) -> Caller:
    """Who asks; a client's host stands behind a slash, as in Kafka."""
    return Caller(ctx.api_version, ctx.client_id or "", "/" + ctx.peer.rpartition(":")[0])
