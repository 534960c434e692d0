"""SaslAuthenticate (36), versions 0-2. Every listener is PLAINTEXT, so it is answered ILLEGAL_SASL_STATE, as
Apache does.

A client that sends it without SaslHandshake is logged as one that sends SaslHandshake.
"""

from __future__ import annotations

from kbroker._core.errors import Err
from kbroker.api.context import Context
from kbroker.api.k17_sasl_handshake import warn_of_sasl
from kbroker.api.registry import api
from kbroker.protocol.messages import SaslAuthenticateRequest, SaslAuthenticateResponse


@api(36, versions="0-2", failed=lambda _request, code, _version: SaslAuthenticateResponse(error_code=code))
def sasl_authenticate(request: SaslAuthenticateRequest, ctx: Context) -> SaslAuthenticateResponse:
    warn_of_sasl(ctx, None)
    return SaslAuthenticateResponse(
        error_code=Err.ILLEGAL_SASL_STATE, error_message="This listener is PLAINTEXT and asks for no authentication."
    )
