from typing_extensions import Buffer

class Latest:
    """The last record of each key, of batches that are given in the order of their log.

    What belongs to a transaction is kept whole, and so is what ends one: whether it counts is not decided here.
    """

    def __init__(self, start_offset: int) -> None: ...
    @property
    def next_offset(self) -> int: ...
    def take(self, data: Buffer) -> None:
        """More batches; records below `next_offset` are passed over. Raises BrokenRecords: up to there all was good."""

    def entries(self) -> list[tuple[int, int, bytes | None, bytes | bool | None]]:
        """(offset, producer id, key, value) in the log's order; what ends a transaction has no key, and as its value
        whether it commits. A producer id of -1 is a record outside of transactions."""
