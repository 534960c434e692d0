"""SaslHandshake (17), versions 0-1. Every listener is PLAINTEXT: nothing is left to authenticate, so
ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from kbroker._core.errors import Err
from kbroker.api.context import Context
from kbroker.api.registry import api
from kbroker.protocol.messages import SaslHandshakeRequest, SaslHandshakeResponse


@api(17, versions="0-1", failed=lambda _request, code, _version: SaslHandshakeResponse(error_code=code))
def sasl_handshake(request: SaslHandshakeRequest, ctx: Context) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=Err.ILLEGAL_SASL_STATE)
