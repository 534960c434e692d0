from typing import TypedDict

class Described(TypedDict):
    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    partitions: list[tuple[bytes, int, int, int, int, int]]

def describe(frame: bytes, version: int) -> Described | None: ...
