from kbroker._core.log.partition_log import PartitionLog

def rename(log: PartitionLog, directory: str) -> None:
    """Gives a log's directory another name, while it is appended to and read."""

def write_snapshot(log: PartitionLog) -> None:
    """Writes down what is known of producers now: of those whose batches are gone no scan could tell."""
