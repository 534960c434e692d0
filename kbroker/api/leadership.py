"""The check that every request for one partition passes: do we hold it, do we lead it, does the client know the right
epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker._core.errors import Err
from kbroker.api.context import Context

if TYPE_CHECKING:
    from kbroker._core.partitions import PartitionHandle


def find_leader(
    ctx: Context, topic: str, index: int, current_leader_epoch: int = -1, *, any_replica: bool = False
) -> tuple[PartitionHandle | None, int]:
    """The live partition and NONE, or None and the error that its reader is told. Epoch -1: the client does not know
    one.
    """
    partition = ctx.rooms.replicas.find(topic, index)
    if partition is None:
        return None, Err.UNKNOWN_TOPIC_OR_PARTITION
    if partition.log is None and ctx.rooms.replicas.is_local(topic, index):
        return None, Err.KAFKA_STORAGE_ERROR
    if current_leader_epoch != -1:
        if current_leader_epoch > partition.leader_epoch:
            return None, Err.UNKNOWN_LEADER_EPOCH
        if current_leader_epoch < partition.leader_epoch:
            return None, Err.FENCED_LEADER_EPOCH
    if partition.log is None or (not partition.is_leader and not any_replica):
        return None, Err.NOT_LEADER_OR_FOLLOWER
    return partition, Err.NONE
