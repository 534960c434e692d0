from typing import Any

class PlainEnd:
    """An EndTxn, read."""

    version: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    def reply(self, producer_id: int, producer_epoch: int) -> bytes: ...

def read_end(frame: bytes) -> PlainEnd | None: ...
def transaction_record(transactional_id: str, transaction: tuple[Any, ...]) -> tuple[bytes, bytes]: ...
