from kbroker._core.partitions import PartitionHandle

class SyncThreads:
    """The threads that wait for disks where flush.messages asks for it: one for all partitions of a broker."""

    def __init__(self) -> None: ...
    def serve(self, handle: PartitionHandle) -> None:
        """From now on this partition's syncs are done here."""
    @property
    def synced(self) -> int:
        """How many times a partition was synced here."""
    def close(self) -> None:
        """Ends the threads when the queue is empty. A partition that wants a sync afterwards does it itself."""
