"""What each API key is: name, versions, header, listeners, classes. Read from the table that the schemas become.

This is what Kafka's protocol has, not what this broker serves: that is the registry of `kbroker.api`.
"""

from __future__ import annotations

from kbroker.protocol import messages
from kbroker.protocol.api_table import ROWS

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from collections.abc import Iterator

    from kbroker.protocol.message import Message


class Api:
    """One API key. `last_version` is the last stable one; `flexible_from` is 32767 where no version is flexible."""

    __slots__ = ("first_version", "flexible_from", "key", "last_known_version", "last_version", "listeners", "name")

    def __init__(self, row: tuple[int, str, int, int, int, tuple[str, ...], bool]) -> None:
        self.key, self.name, self.first_version, self.last_known_version, self.flexible_from, self.listeners, new = row
        self.last_version = self.last_known_version - 1 if new else self.last_known_version

    def __repr__(self) -> str:
        return f"<Api {self.key} {self.name} {self.first_version}-{self.last_version}>"

    def has_version(self, version: int) -> bool:
        return self.first_version <= version <= self.last_version

    def is_flexible(self, version: int) -> bool:
        """Also true of versions after the last: their header can be read, and the request refused."""
        return version >= self.flexible_from

    @property
    def request(self) -> type[Message]:
        cls: type[Message] = getattr(messages, f"{self.name}Request")
        return cls

    @property
    def response(self) -> type[Message]:
        cls: type[Message] = getattr(messages, f"{self.name}Response")
        return cls


_APIS = {row[0]: Api(row) for row in ROWS}


def find(key: int) -> Api | None:
    """The API of a key; None for a removed or unknown one."""
    return _APIS.get(key)


def by_key(key: int) -> Api:
    return _APIS[key]


def every() -> Iterator[Api]:
    """All of them, in the order of their keys."""
    return iter(_APIS.values())
