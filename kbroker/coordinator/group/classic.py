"""A group of the classic protocol."""

from __future__ import annotations

from kbroker.coordinator.step import Record
from kbroker.errors import UnknownMemberIdError

EMPTY = "Empty"


class ClassicGroup:
    """A group without members: whoever commits for it only borrows its name."""

    kind = "classic"

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state_name = EMPTY
        self.members: dict[str, object] = {}

    @property
    def is_empty(self) -> bool:
        return not self.members

    def check_commit(self, member_id: str, instance_id: str | None, epoch: int, api_version: int) -> None:
        if epoch < 0 and not member_id and instance_id is None and self.is_empty:
            return
        if member_id not in self.members:
            raise UnknownMemberIdError()

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Whoever asks is told."""

    def check_delete(self) -> None:
        """Nobody is in it."""

    def is_subscribed(self, topic: str) -> bool:
        return False

    def idle_since_ms(self, committed_ms: int) -> int | None:
        return committed_ms

    def tombstones(self) -> list[Record]:
        return []
