from typing import Any, TypeAlias

from _typeshed import ReadableBuffer

# name, base type, is an array, may be null, flexible, tag or -1, default (`...`: fresh), ignorable, plan of a struct
Step: TypeAlias = tuple[str, str, bool, bool, bool, int, Any, bool, Plan | None]

class DecodeError(ValueError):
    """The bytes are not what they are said to be. The only error that reading raises."""

    reason: str
    path: str
    offset: int
    def __init__(self, reason: str, path: str, offset: int) -> None: ...

class EncodeError(ValueError):
    """The object cannot be written in this version."""

class Plan:
    """The fields of one struct in one version, in wire order."""

    title: str
    flexible: bool
    min_bytes: int
    object_bytes: int
    def __init__(
        self, cls: type[Any], title: str, flexible: bool, body: list[Step], tagged: list[Step], absent: list[Step]
    ) -> None: ...

def decode(plan: Plan, data: ReadableBuffer, offset: int = 0, budget: int | None = None) -> tuple[Any, int]: ...
def encode(plan: Plan, value: object, prefix: bytes = b"") -> bytes: ...
