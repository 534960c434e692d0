"""What a handler may use: who asks, and the doors of the rooms that decide."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kbroker.api.producer_ids import ProducerIds
from kbroker.config import Dynamic

if TYPE_CHECKING:
    from kbroker.cluster.image import ClusterImage
    from kbroker.cluster.runtime import Replicas
    from kbroker.config import Config
    from kbroker.coordinator.group.runtime import GroupCoordinator
    from kbroker.coordinator.txn.runtime import TransactionCoordinator
    from kbroker.quorum.driver import Controller
    from kbroker.storage.markers import Markers

NO_REPLY = object()  # what a handler returns when the client waits for nothing (Produce with acks 0)
NOT_REQUESTED = -2147483648  # AuthorizedOperations when the client did not ask for them


class HangUpError(Exception):
    """Raised by a handler whose only answer is to close the connection."""


@dataclass(slots=True)
class Rooms:
    """The doors that server/broker_server.py hands to the handlers. One per broker, for its whole life."""

    node_id: int
    cluster_id: str
    config: Config
    controller: Controller
    replicas: Replicas
    producer_ids: ProducerIds
    groups: GroupCoordinator
    markers: Markers
    transactions: TransactionCoordinator
    in_thread: Callable[..., Awaitable[Any]]  # for what would hold the loop: in_thread(function, *arguments)
    warn: Callable[..., None]  # logs what clients can repeat, at most once a minute: warn(event, alike, **fields)

    @property
    def image(self) -> ClusterImage:
        """The cluster as committed. Ask again after waiting: it moves on."""
        return self.controller.image

    @property
    def dynamic(self) -> Dynamic:
        """Broker settings changed at run time."""
        return self.controller.dynamic()


class Context(NamedTuple):
    """One request's surroundings."""

    rooms: Rooms
    api_version: int
    correlation_id: int
    client_id: str | None
    listener_name: str
    peer: str
    principal: int  # 0: anonymous

    @property
    def peer_host(self) -> str:
        return self.peer.rpartition(":")[0]


def operations(*codes: int) -> int:
    """AclOperation codes as the bit set that AuthorizedOperations carries."""
    return sum(1 << code for code in codes)


# Without an authorizer everyone may do whatever the resource knows: 3 read, 4 write, 5 create, 6 delete, 7 alter, 8
# describe, 9 cluster action, 10 describe configs, 11 alter configs, 12 idempotent write.
TOPIC_OPERATIONS = operations(3, 4, 5, 6, 7, 8, 10, 11)
CLUSTER_OPERATIONS = operations(5, 7, 8, 9, 10, 11, 12)
GROUP_OPERATIONS = operations(3, 6, 8, 10, 11)
