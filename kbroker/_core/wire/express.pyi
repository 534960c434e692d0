from collections.abc import Callable
from typing import Any, TypeVar

Facts = TypeVar("Facts", bound=tuple[str, bytes, int])  # name, id, partitions
Kept = TypeVar("Kept", bound=tuple[Any, ...])

class PlainHeartbeat:
    """A Heartbeat, read."""

    generation_id: int
    group_id: str
    member_id: str
    group_instance_id: str | None
    def reply(self, code: int) -> bytes: ...

class PlainCommit:
    """An OffsetCommit, read as far as its topics."""

    version: int
    generation_id_or_member_epoch: int
    group_id: str
    member_id: str
    group_instance_id: str | None
    def decide(
        self,
        topics: dict[bytes, Facts],
        find: Callable[[Any], Facts | None],  # by name, or from version 10 on by id
        kind: type[Kept],
        now_ms: int,
        metadata_max: int,
    ) -> tuple[list[tuple[bytes, bytes | None]], int, list[tuple[tuple[str, int], Kept]], bytes] | None: ...

def read_heartbeat(frame: bytes) -> PlainHeartbeat | None: ...
def read_commit(frame: bytes) -> PlainCommit | None: ...
