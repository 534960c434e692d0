"""WriteTxnMarkers (27), versions 1-2: coordinators end transactions in the partitions that this node leads.

Administrators do, too, when a transaction hangs (KIP-664). v2: the transaction version, which decides which epochs a
marker may carry (KIP-1228).
"""

from __future__ import annotations

from kbroker.api.context import Context
from kbroker.api.registry import api
from kbroker.errors import UnknownServerError
from kbroker.protocol.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse

Answer = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult
Key = tuple[str, int]
NO_PRODUCER_ID = -1


def _told(found: dict[int, dict[Key, int]]) -> WriteTxnMarkersResponse:
    markers = []
    for producer_id, errors in found.items():
        if not errors:
            continue  # it named no partition
        topics: dict[str, list[Answer]] = {}
        for (topic, index), error in errors.items():
            topics.setdefault(topic, []).append(Answer(partition_index=index, error_code=error))
        markers.append(
            WriteTxnMarkersResponse.WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(name=name, partitions=partitions)
                    for name, partitions in topics.items()
                ],
            )
        )
    return WriteTxnMarkersResponse(markers=markers)


def _failed(request: WriteTxnMarkersRequest, code: int, version: int) -> WriteTxnMarkersResponse:
    found: dict[int, dict[Key, int]] = {}
    for marker in request.markers:
        for topic in marker.topics:
            for index in topic.partition_indexes:
                found.setdefault(marker.producer_id, {})[topic.name, index] = code
    return _told(found)


@api(27, versions="1-2", failed=_failed)
async def write_txn_markers(request: WriteTxnMarkersRequest, ctx: Context) -> WriteTxnMarkersResponse:
    found: dict[int, dict[Key, int]] = {}
    writing = []
    for marker in request.markers:
        if marker.producer_id == NO_PRODUCER_ID or marker.producer_epoch < 0 or marker.transaction_version < 0:
            raise UnknownServerError  # as Kafka: there is no such marker
        errors = found.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for index in topic.partition_indexes:
                told = ctx.rooms.markers.write_marker(
                    topic.name,
                    index,
                    marker.producer_id,
                    marker.producer_epoch,
                    commit=marker.transaction_result,
                    coordinator_epoch=marker.coordinator_epoch,
                    transaction_version=marker.transaction_version,
                )
                writing.append((errors, (topic.name, index), told))
    for errors, key, told in writing:
        errors[key] = await told
    return _told(found)
