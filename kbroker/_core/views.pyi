from kbroker._core.partitions import PartitionHandle

class ViewHandle:
    """What the clients of one listener (or virtual cluster) see: topics, and where the brokers are reached."""

    def __init__(self) -> None: ...
    @property
    def version(self) -> int: ...
    def publish(
        self,
        topics: list[tuple[str, bytes, bool, list[PartitionHandle]]],
        endpoints: list[tuple[int, str, int, str | None]] | None = None,
    ) -> None: ...
