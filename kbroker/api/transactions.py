"""How the transaction coordinator's answer is told to a producer."""

from __future__ import annotations

from kbroker._core.errors import Err

NOT_ADDED = "Partition was not added to the transaction"
UNVERIFIED = "Unable to verify the partition has been added to the transaction. Underlying error: {}"
UNREACHABLE = {
    Err.NETWORK_EXCEPTION,
    Err.COORDINATOR_LOAD_IN_PROGRESS,
    Err.COORDINATOR_NOT_AVAILABLE,
    Err.NOT_COORDINATOR,
}


def as_produced(code: int, version: int) -> tuple[int, str | None]:
    """(error, words) of Produce for what the coordinator answered: older clients know fewer errors."""
    if code == Err.PRODUCER_FENCED:
        code = Err.INVALID_PRODUCER_EPOCH
    elif code == Err.TRANSACTION_ABORTABLE and version < 11:
        code = Err.INVALID_TXN_STATE
    if code == Err.INVALID_TXN_STATE:
        return code, NOT_ADDED
    # Not every client asks again after these; after too few replicas each one does, without looking for another leader.
    if code in UNREACHABLE or (code == Err.CONCURRENT_TRANSACTIONS and version < 12):
        return Err.NOT_ENOUGH_REPLICAS, UNVERIFIED.format(Err(code).name)
    return code, None
