"""What every generated class is: slots, equality by value, a short repr. Pure Python: the pure rooms import records.

Why these are not dataclasses: `@dataclass(slots=True)` builds each class twice and compiles its methods at import,
0.6 ms a class against 0.03 ms for the same class written out; there are over 600 of them. So the generator writes
`__init__` and the rest is shared here.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from typing import Any, ClassVar, TypeAlias

    # One field: name, type as in the schema, first and last version, versions in which it may be null, tag or -1,
    # default (`...`: fresh), ignorable. The plan is built from these.
    Row: TypeAlias = tuple[str, str, int, int, tuple[int, int] | None, int, Any, bool]

FRESH: Any = type("Fresh", (), {"__repr__": lambda self: "FRESH"})()
"""The default of a parameter whose value must be new for each object: an empty list, a struct of defaults."""

ZERO_UUID = bytes(16)


class Struct:
    """A message or a struct inside one. Holds the fields of all versions; unlike a record on disk it may be changed."""

    __slots__: tuple[str, ...] = ()
    FIELDS: ClassVar[tuple[Row, ...]] = ()
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __repr__(self) -> str:
        """Only what differs from the defaults: a message of one version is mostly other versions' fields."""
        plain = type(self)()
        shown = (name for name in self.__slots__ if getattr(self, name) != getattr(plain, name))
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


class Message(Struct):
    """What stands alone on the wire or in a log."""

    __slots__ = ()
    KEY: ClassVar[int] = -1
    VERSIONS: ClassVar[tuple[int, int]] = (0, -1)
    FLEXIBLE_FROM: ClassVar[int] = 32767
