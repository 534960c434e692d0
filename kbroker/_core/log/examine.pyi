from os import PathLike
from typing import NamedTuple

class Fault(NamedTuple):
    """What does not add up, in which file of the segment (by its suffix) and where; `offset`: the first affected."""

    suffix: str
    position: int
    offset: int
    bytes: int
    reason: str

class Examination:
    """One segment: call step() until it answers False, then read what was found. Nothing is changed."""

    def __init__(
        self,
        path: str | PathLike[str],
        base_offset: int,
        index: bytes = b"",
        times: bytes = b"",
        *,
        in_depth: bool = True,
    ) -> None: ...
    def step(self, max_bytes: int = 67108864) -> bool:
        """Reads on; False when the end is reached. OSError when the file cannot be read."""
    @property
    def unread(self) -> list[int]:
        """Positions of the batches of the last step that have no native codec here: Python must inflate them."""
    @property
    def faults(self) -> list[Fault]: ...
    @property
    def fault_count(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def first_gap(self) -> int: ...
    @property
    def batches(self) -> int: ...
    @property
    def records(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def damaged_at(self) -> int: ...
    @property
    def good_behind_damage(self) -> int: ...
    @property
    def epochs(self) -> list[tuple[int, int]]: ...
