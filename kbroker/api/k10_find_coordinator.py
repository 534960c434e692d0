"""FindCoordinator (10), versions 0-6. v4+: several keys at once (KIP-699). v6: share coordinators (KIP-932).

There is no coordinator here yet: every valid key is answered COORDINATOR_NOT_AVAILABLE, on which clients wait and ask
again.
"""

from __future__ import annotations

from kbroker._core.errors import Err
from kbroker.api.context import Context
from kbroker.api.registry import api
from kbroker.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse

GROUP, TRANSACTION, SHARE = 0, 1, 2

NOT_AVAILABLE = "The coordinator is not available."
MALFORMED = "This broker has no coordinator of key type {}."


def _failed(
    request: FindCoordinatorRequest, code: int, version: int, message: str | None = None
) -> FindCoordinatorResponse:
    if version >= 4:
        found = [
            FindCoordinatorResponse.Coordinator(
                key=key, node_id=-1, port=-1, error_code=code, error_message=message or ""
            )
            for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(coordinators=found)
    return FindCoordinatorResponse(error_code=code, error_message=message, node_id=-1, port=-1)


def _is_share_key(key: str) -> bool:
    group, _, rest = key.partition(":")
    topic_id, _, partition = rest.partition(":")
    return bool(group) and len(topic_id) == 22 and partition.isdigit()


@api(10, versions="0-6", failed=_failed)
def find_coordinator(request: FindCoordinatorRequest, ctx: Context) -> FindCoordinatorResponse:
    if request.key_type not in (GROUP, TRANSACTION, SHARE):
        return _failed(request, Err.INVALID_REQUEST, ctx.api_version, MALFORMED.format(request.key_type))
    response = _failed(request, Err.COORDINATOR_NOT_AVAILABLE, ctx.api_version, NOT_AVAILABLE)
    for coordinator in response.coordinators:
        coordinator.error_message = ""
        if request.key_type == SHARE and not _is_share_key(coordinator.key):
            coordinator.error_code = Err.INVALID_REQUEST
    return response
