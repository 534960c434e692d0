"""DescribeCluster (60), versions 0-2. v1: broker or controller endpoints (KIP-919). v2: fenced brokers on request."""

from __future__ import annotations

from kbroker._core.errors import Err
from kbroker.api.context import CLUSTER_OPERATIONS, NOT_REQUESTED, Context
from kbroker.api.registry import api
from kbroker.protocol.messages import DescribeClusterRequest, DescribeClusterResponse

BROKERS, CONTROLLERS = 1, 2


def _failed(
    request: DescribeClusterRequest, code: int, version: int, message: str | None = None
) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, error_message=message)


@api(60, versions="0-2", failed=_failed)
def describe_cluster(request: DescribeClusterRequest, ctx: Context) -> DescribeClusterResponse:
    if request.endpoint_type == CONTROLLERS:
        return _failed(
            request, Err.MISMATCHED_ENDPOINT_TYPE, ctx.api_version, "This is a broker's listener; ask a controller's."
        )
    if request.endpoint_type != BROKERS:
        return _failed(
            request,
            Err.UNSUPPORTED_ENDPOINT_TYPE,
            ctx.api_version,
            f"Unsupported endpoint type {request.endpoint_type}",
        )
    image = ctx.rooms.image
    brokers = []
    for broker in image.brokers.values():
        endpoint = broker.endpoint(ctx.listener_name)
        if endpoint is not None and (not broker.fenced or request.include_fenced_brokers):
            brokers.append(
                DescribeClusterResponse.DescribeClusterBroker(
                    broker_id=broker.broker_id,
                    host=endpoint.host,
                    port=endpoint.port,
                    rack=broker.rack,
                    is_fenced=broker.fenced,
                )
            )
    return DescribeClusterResponse(
        cluster_id=ctx.rooms.cluster_id,
        controller_id=ctx.rooms.node_id,
        brokers=brokers,
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_REQUESTED,
    )
