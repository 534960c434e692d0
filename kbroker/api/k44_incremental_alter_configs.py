"""IncrementalAlterConfigs (44), versions 0-1: single settings are set, deleted, or changed as lists (KIP-339)."""

from __future__ import annotations

from kbroker.api.context import Context
from kbroker.api.registry import api
from kbroker.cluster.configs import Alteration, Change
from kbroker.protocol.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse

Result = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse


def _failed(request: IncrementalAlterConfigsRequest, code: int, version: int) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[
            Result(
                error_code=code, error_message=None, resource_type=one.resource_type, resource_name=one.resource_name
            )
            for one in request.resources
        ]
    )


@api(44, versions="0-1", failed=_failed)
async def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, ctx: Context
) -> IncrementalAlterConfigsResponse:
    wanted = [
        Alteration(
            one.resource_type,
            one.resource_name,
            [Change(setting.name, setting.value, setting.config_operation) for setting in one.configs],
        )
        for one in request.resources
    ]
    results = await ctx.rooms.controller.alter_configs(wanted, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(
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
