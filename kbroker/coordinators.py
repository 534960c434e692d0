"""Builds the coordinators of a node: their settings, and whom they ask and tell."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from kbroker._core.clock import BrokerClock
from kbroker.cluster.features import TRANSACTION_VERSION
from kbroker.cluster.image import GROUP_RESOURCE
from kbroker.cluster.runtime import Replicas
from kbroker.config import Config
from kbroker.coordinator.group.consumer_settings import ConsumerSettings
from kbroker.coordinator.group.runtime import GroupCoordinator
from kbroker.coordinator.group.settings import GroupSettings
from kbroker.coordinator.placement import OFFSETS_TOPIC
from kbroker.coordinator.runtime import Site
from kbroker.coordinator.txn.runtime import TransactionCoordinator
from kbroker.coordinator.txn.settings import TransactionSettings
from kbroker.quorum.driver import Controller
from kbroker.storage.markers import Markers


class Node(NamedTuple):
    """What the coordinators of one node share."""

    config: Config
    controller: Controller
    replicas: Replicas
    clock: BrokerClock
    log: Any
    in_thread: Callable[..., Awaitable[Any]]

    def setting(self, name: str) -> Any:
        return self.config.broker_value(name, self.controller.dynamic())

    @property
    def site(self) -> Site:
        controller = self.controller
        return Site(
            self.config.node_id, lambda: controller.image, self.replicas.find, self.clock, self.log, self.in_thread
        )


def group_coordinator(node: Node) -> GroupCoordinator:
    controller = node.controller

    def consumer_settings(group_id: str) -> ConsumerSettings:
        dynamic = controller.dynamic()
        given = controller.image.configs.get((GROUP_RESOURCE, group_id), {})
        return ConsumerSettings.of(lambda name: node.config.broker_value(name, dynamic), given)

    return GroupCoordinator(
        node.site,
        version=lambda: controller.committed_offset,
        consumer_settings=consumer_settings,
        settings=lambda: GroupSettings.of(node.setting),
    )


def marker_writer(node: Node, groups: GroupCoordinator) -> Markers:
    """Those of offsets are told to whoever keeps the offsets."""
    markers = Markers(node.replicas.find, node.clock)
    markers.tell(OFFSETS_TOPIC, groups)
    return markers


def transaction_coordinator(
    node: Node, markers: Markers, new_producer_id: Callable[[], Awaitable[int]]
) -> TransactionCoordinator:
    controller = node.controller
    return TransactionCoordinator(
        node.site,
        settings=lambda: TransactionSettings.of(node.setting),
        level=lambda: controller.image.features.get(TRANSACTION_VERSION, 0),
        new_producer_id=new_producer_id,
        write_marker=markers.write_marker,
    )
