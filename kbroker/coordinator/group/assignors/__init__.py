"""How a group's partitions are shared out among its members: `uniform` (the default) and `range`.

Pure functions of the members, their subscriptions, the number of partitions and what everyone had: the same input gives
the same output on every broker.
"""

from __future__ import annotations

from kbroker.coordinator.group.assignors.range import assign_range
from kbroker.coordinator.group.assignors.spec import Assignor
from kbroker.coordinator.group.assignors.uniform import assign_uniform

ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
KAFKA_CLASSES = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
