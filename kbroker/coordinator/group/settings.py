"""The settings that a group shard decides by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

MINUTE_MS = 60_000


class GroupSettings(NamedTuple):
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 10_080 * MINUTE_MS
    offsets_retention_check_interval_ms: int = 600_000
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2_147_483_647
    max_record_bytes: int = 1_048_588  # what a batch of the topic may take
    pending_bytes_max: int = 4 << 20  # of ids given out: beyond it the oldest are forgotten and must be asked for anew

    @classmethod
    def of(cls, setting: Callable[[str], Any]) -> GroupSettings:
        return cls(
            offset_metadata_max_bytes=setting("offset.metadata.max.bytes"),
            offsets_retention_ms=setting("offsets.retention.minutes") * MINUTE_MS,
            offsets_retention_check_interval_ms=setting("offsets.retention.check.interval.ms"),
            min_session_timeout_ms=setting("group.min.session.timeout.ms"),
            max_session_timeout_ms=setting("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=setting("group.initial.rebalance.delay.ms"),
            max_size=setting("group.max.size"),
            max_record_bytes=setting("message.max.bytes"),
        )
