"""What the handlers of transactional requests share."""

from __future__ import annotations

from typing import Any

from kbroker.errors import InvalidProducerEpochError, KafkaError, ProducerFencedError, UnknownServerError


def told(code: int, version: int, *, fenced_from: int) -> int:
    """Clients from before PRODUCER_FENCED know an epoch that is too old by another code (KIP-588)."""
    if code == ProducerFencedError.code and version < fenced_from:
        return InvalidProducerEpochError.code
    return code


def code_of(answer: Any) -> int:
    """Of a coordinator's answer; 0: it is no exception."""
    if isinstance(answer, KafkaError):
        return int(answer.code)
    return UnknownServerError.code if isinstance(answer, Exception) else 0
