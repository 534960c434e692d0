"""ListPartitionReassignments (46), version 0: the partitions whose replica set is being changed (KIP-455)."""

from __future__ import annotations

from kbroker.api.context import Context
from kbroker.api.registry import api
from kbroker.protocol.messages import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse

Ongoing = ListPartitionReassignmentsResponse.OngoingPartitionReassignment
OngoingTopic = ListPartitionReassignmentsResponse.OngoingTopicReassignment


@api(46, versions="0", failed=lambda _request, code, _version: ListPartitionReassignmentsResponse(error_code=code))
def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, ctx: Context
) -> ListPartitionReassignmentsResponse:
    image = ctx.rooms.image
    if request.topics is None:
        asked = {name: list(topic.partitions) for name, topic in image.topics.items()}
    else:
        asked = {one.name: one.partition_indexes for one in request.topics}
    topics = []
    for name, indexes in asked.items():
        partitions = image.topics[name].partitions if name in image.topics else {}
        ongoing = [
            Ongoing(
                partition_index=index,
                replicas=list(one.replicas),
                adding_replicas=list(one.adding_replicas),
                removing_replicas=list(one.removing_replicas),
            )
            for index in indexes
            if (one := partitions.get(index)) is not None and (one.adding_replicas or one.removing_replicas)
        ]
        if ongoing:
            topics.append(OngoingTopic(name=name, partitions=ongoing))
    return ListPartitionReassignmentsResponse(error_message=None, topics=topics)
