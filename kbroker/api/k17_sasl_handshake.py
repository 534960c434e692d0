"""SaslHandshake (17), versions 0-1. Every listener is PLAINTEXT, so it is answered ILLEGAL_SASL_STATE, as Apache does.

Clients show that error code without a reason. The log names the client and the setting to change.
"""

from __future__ import annotations

from kbroker._core.errors import Err
from kbroker.api.context import Context
from kbroker.api.registry import api
from kbroker.protocol.messages import SaslHandshakeRequest, SaslHandshakeResponse

MECHANISM_CHARS_MAX = 32  # in the log; the client may send any text


@api(17, versions="0-1", failed=lambda _request, code, _version: SaslHandshakeResponse(error_code=code))
def sasl_handshake(request: SaslHandshakeRequest, ctx: Context) -> SaslHandshakeResponse:
    warn_of_sasl(ctx, request.mechanism[:MECHANISM_CHARS_MAX])
    return SaslHandshakeResponse(error_code=Err.ILLEGAL_SASL_STATE)


def warn_of_sasl(ctx: Context, mechanism: str | None) -> None:
    """Logs that a client wants to authenticate where nobody does."""
    ctx.rooms.warn(
        "SASL client on a listener without SASL",
        ctx.peer_host,
        peer=ctx.peer,
        client_id=ctx.client_id,
        listener=ctx.listener_name,
        mechanism=mechanism,
        what_to_do="set security.protocol=PLAINTEXT on the client",
    )
