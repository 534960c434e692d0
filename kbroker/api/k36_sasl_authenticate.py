"""SaslAuthenticate (36), versions 0-2. Every listener is PLAINTEXT: nothing is left to authenticate, so
ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from kbroker._core.errors import Err
from kbroker.api.context import Context
from kbroker.api.registry import api
from kbroker.protocol.messages import SaslAuthenticateRequest, SaslAuthenticateResponse


@api(36, versions="0-2", failed=lambda _request, code, _version: SaslAuthenticateResponse(error_code=code))
def sasl_authenticate(request: SaslAuthenticateRequest, ctx: Context) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=Err.ILLEGAL_SASL_STATE, error_message="This listener is PLAINTEXT and asks for no authentication."
    )
