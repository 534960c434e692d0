"""Blocks of producer ids: the controller hands out ranges, a broker deals them out one by one without asking again."""

from __future__ import annotations

from typing import NamedTuple

from kbroker.cluster.image import ClusterImage
from kbroker.errors import StaleBrokerEpochError, UnknownServerError
from kbroker.protocol.records import ProducerIdsRecord

BLOCK_SIZE = 1000
_LAST_ID = 2**63 - 1


class ProducerIdBlock(NamedTuple):
    first: int
    count: int  # type: ignore[assignment]  # what it is called counts more than tuple.count


def allocate(image: ClusterImage, broker_id: int, broker_epoch: int) -> tuple[list[ProducerIdsRecord], ProducerIdBlock]:
    broker = image.brokers.get(broker_id)
    if broker is None or broker.broker_epoch != broker_epoch:
        raise StaleBrokerEpochError(f"Broker {broker_id} does not have epoch {broker_epoch}.")
    first = image.next_producer_id
    if first > _LAST_ID - BLOCK_SIZE:
        raise UnknownServerError("All producer ids have been handed out.")
    record = ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + BLOCK_SIZE)
    return [record], ProducerIdBlock(first, BLOCK_SIZE)
