"""The settings by which a consumer group is run: the broker's, and what the group itself was given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kbroker.coordinator.group.assignors import KAFKA_CLASSES


class ConsumerSettings(NamedTuple):
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    max_size: int = 2_147_483_647
    assignors: tuple[str, ...] = ("uniform", "range")
    expression_refresh_ms: int = 600_000
    migration_policy: str = "bidirectional"

    @property
    def may_upgrade(self) -> bool:
        return self.migration_policy in ("bidirectional", "upgrade")

    @property
    def may_mix(self) -> bool:
        """Whether members of the classic protocol may join a consumer group."""
        return self.migration_policy != "disabled"

    @property
    def may_downgrade(self) -> bool:
        return self.migration_policy in ("bidirectional", "downgrade")

    @classmethod
    def of(cls, setting: Callable[[str], Any], group: Mapping[str, str]) -> ConsumerSettings:
        """What a group was given counts within the broker's bounds, which may have moved since."""

        def bounded(name: str) -> int:
            value: int = setting(f"group.consumer.{name}")
            given = group.get(f"consumer.{name}")
            if given is None:
                return value
            low: int = setting(f"group.consumer.min.{name}")
            high: int = setting(f"group.consumer.max.{name}")
            return max(low, min(high, int(given)))

        return cls(
            session_timeout_ms=bounded("session.timeout.ms"),
            heartbeat_interval_ms=bounded("heartbeat.interval.ms"),
            assignment_interval_ms=bounded("assignment.interval.ms"),
            max_size=setting("group.consumer.max.size"),
            assignors=tuple(KAFKA_CLASSES.get(one, one) for one in setting("group.consumer.assignors")),
            expression_refresh_ms=setting("group.consumer.regex.refresh.interval.ms"),
            migration_policy=setting("group.consumer.migration.policy").lower(),
        )
