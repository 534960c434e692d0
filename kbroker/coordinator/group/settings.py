"""The settings that a group shard decides by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

MINUTE_MS = 60_000


class GroupSettings(NamedTuple):
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 10_080 * MINUTE_MS
    offsets_retention_check_interval_ms: int = 600_000

    @classmethod
    def of(cls, setting: Callable[[str], Any]) -> GroupSettings:
        return cls(
            offset_metadata_max_bytes=setting("offset.metadata.max.bytes"),
            offsets_retention_ms=setting("offsets.retention.minutes") * MINUTE_MS,
            offsets_retention_check_interval_ms=setting("offsets.retention.check.interval.ms"),
        )
