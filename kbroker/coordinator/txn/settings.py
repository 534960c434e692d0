"""The settings that a transaction shard decides by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class TransactionSettings(NamedTuple):
    max_timeout_ms: int = 900_000
    abort_check_interval_ms: int = 10_000
    id_expiration_ms: int = 604_800_000
    expiry_check_interval_ms: int = 3_600_000
    max_record_bytes: int = 1_048_588  # what a batch of the topic may take

    @classmethod
    def of(cls, setting: Callable[[str], Any]) -> TransactionSettings:
        return cls(
            max_timeout_ms=setting("transaction.max.timeout.ms"),
            abort_check_interval_ms=setting("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            id_expiration_ms=setting("transactional.id.expiration.ms"),
            expiry_check_interval_ms=setting("transaction.remove.expired.transaction.cleanup.interval.ms"),
            max_record_bytes=setting("message.max.bytes"),
        )
