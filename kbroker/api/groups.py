"""What the handlers of group requests share."""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64encode

from kbroker.api.context import Context
from kbroker.coordinator.group.facts import Caller


def caller(ctx: Context) -> Caller:
    """Who asks; a client's host stands behind a slash, as in Kafka."""
    return Caller(ctx.api_version, ctx.client_id or "", "/" + ctx.peer.rpartition(":")[0])


def new_member_id() -> str:
    """As Kafka writes its own ids: 22 characters of base 64, never with a dash in front."""
    while True:
        made = urlsafe_b64encode(secrets.token_bytes(16)).rstrip(b"=").decode()
        if not made.startswith("-"):
            return made
