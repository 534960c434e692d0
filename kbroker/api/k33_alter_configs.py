"""AlterConfigs (33), versions 0-2: the whole set of a resource's settings is replaced (KIP-133).

Two clients that each change one setting undo each other's work: IncrementalAlterConfigs (44) is what to use instead.
"""

from __future__ import annotations

from kbroker.api.context import Context
from kbroker.api.registry import api
from kbroker.cluster.configs import Alteration, Change
from kbroker.protocol.messages import AlterConfigsRequest, AlterConfigsResponse

Result = AlterConfigsResponse.AlterConfigsResourceResponse


def _failed(request: AlterConfigsRequest, code: int, version: int) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[
            Result(
                error_code=code, error_message=None, resource_type=one.resource_type, resource_name=one.resource_name
            )
            for one in request.resources
        ]
    )


@api(33, versions="0-2", failed=_failed)
async def alter_configs(request: AlterConfigsRequest, ctx: Context) -> AlterConfigsResponse:
    wanted = [
        Alteration(
            one.resource_type,
            one.resource_name,
            [Change(setting.name, setting.value) for setting in one.configs],
            replace=True,
        )
        for one in request.resources
    ]
    results = await ctx.rooms.controller.alter_configs(wanted, validate_only=request.validate_only)
    return AlterConfigsResponse(
        responses=[
            Result(
                error_code=one.error_code,
                error_message=one.error_message,
                resource_type=one.resource_type,
                resource_name=one.resource_name,
            )
            for one in results
        ]
    )
