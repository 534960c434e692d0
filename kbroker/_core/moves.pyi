from kbroker._core.log.partition_log import PartitionLog
from kbroker._core.partitions import PartitionHandle

class MoveError(Exception):
    """Why a log cannot be copied: one of its batches does not match its checksum."""

class CutError(Exception):
    """The end of the source was cut off: a copy that was begun before must be made anew."""

class LogMove:
    """One log on its way into another directory: step() until nothing is missing, then swap()."""

    source: PartitionLog
    copy: PartitionLog
    def __init__(self, source: PartitionLog, copy: PartitionLog) -> None: ...
    def step(self, max_bytes: int = 1048576) -> int:
        """Copies some more, without the GIL; how many bytes. 0: the copy has all there is at this moment."""

    def swap(self, handle: PartitionHandle, retired: str) -> bool:
        """The partition goes on with the copy, and the source's directory is called `retired`.

        False: too much came since the last step, or the partition has another log by now; nothing has changed.
        """
