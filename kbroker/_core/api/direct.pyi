from kbroker._core.clock import BrokerClock
from kbroker._core.views import ViewHandle

OUTCOMES: tuple[str, ...]

class DirectCaller:
    """Calls dispatch on whole frames (without their four size bytes) as a network thread would."""

    def __init__(
        self,
        clock: BrokerClock,
        view: ViewHandle,
        apis: dict[int, tuple[int, int, int, bool]],
        bodies: list[bytes],
        node_id: int = 1,
        fetch_max_bytes: int = 57671680,
        sessions_max: int = 1000,
        neighbour: DirectCaller | None = None,
        force_fallback_codecs: int = 0,
    ) -> None: ...
    def call(self, frame: bytes, slot: int = 0, generation: int = 1) -> tuple[str, bytes | None, str | None]: ...
    def pipeline(
        self, frames: list[bytes], slot: int = 0, generation: int = 1
    ) -> list[tuple[str, bytes | None, str | None]]: ...
    def collect(self) -> tuple[int, bytes] | None: ...
    def forget(self, slot: int, generation: int = 1) -> None: ...
    @property
    def parked(self) -> int: ...
    @property
    def wakes(self) -> int: ...
    @property
    def sessions(self) -> int: ...
    @property
    def next_deadline_ms(self) -> int: ...
