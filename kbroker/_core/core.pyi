from collections.abc import Mapping, Sequence
from typing import Final, TypedDict

from kbroker._core.clock import BrokerClock
from kbroker._core.views import ViewHandle

CLOSE_REASON_NAMES: Final[tuple[str, ...]]
EVENT_NAMES: Final[tuple[str, ...]]
IS_PORTABLE_BUILD: Final[bool]

class Counters(TypedDict):
    connections_open: int
    connections_accepted: int
    connections_closed: dict[str, int]  # by CLOSE_REASON_NAMES
    requests: dict[int, int]  # by api key; -1: beyond the table
    requests_parked: int  # since the start
    requests_parked_now: int
    requests_posted: int
    posts_stalled: int
    bytes_in: int
    bytes_out: int
    turns: int
    frames_starved: int
    receive_buffer_bytes: int
    request_bytes_held: int
    reply_bytes_held: int
    connections_moved: int
    fetch_sessions: int
    mailbox_depth: int
    slices_warmed: int
    events_dropped: int

def never_free(thing: object) -> None: ...

class Core:
    """One broker's network threads and what they share. Start it with listen() and start(); end it with close()."""

    addresses: list[tuple[str, int]]  # that each listener is bound to, in the order of listen()

    def __init__(
        self,
        clock: BrokerClock,
        *,
        node_id: int,
        network_threads: int = 1,
        socket_request_max_bytes: int = 104857600,
        max_idle_ms: int = 600000,
        max_connections: int = 2147483647,
        max_connections_per_ip: int = 2147483647,
        per_ip_overrides: Sequence[tuple[bytes, int]] = (),  # packed addresses
        max_connection_creation_rate: int = 2147483647,
        mailbox_slots: int = 8192,
        mailbox_max_bytes: int = 268435456,
        request_bytes_max: int = 1073741824,
        reply_bytes_max: int = 536870912,
        fetch_max_bytes: int = 57671680,
        fetch_sessions_max: int = 1000,
        force_fallback_codecs: int = 0,
        portable: bool = False,
        relief_thread: bool = False,  # one more thread, for large requests while the others are full
        move_always: bool = False,  # test switch: a connection moves after each of its requests
    ) -> None: ...
    def limit_connections(
        self, most: int, most_per_ip: int, per_ip_overrides: Sequence[tuple[bytes, int]], creation_rate: int
    ) -> None: ...
    def listen(
        self,
        host: str,
        port: int,
        view: ViewHandle | None = None,
        backlog: int = 4096,
        *,
        receive_buffer_bytes: int = -1,
        send_buffer_bytes: int = -1,
    ) -> int: ...
    def start(self) -> None: ...
    def drain(self, timeout_ms: int) -> bool: ...
    def close(self) -> None: ...
    def nudge(self) -> None: ...
    def descriptors(self) -> set[int]: ...
    def fileno(self) -> int: ...
    def linger(self, microseconds: int) -> bool: ...
    def take(self, limit: int = 256) -> list[tuple[int, int, int, str, int, bytes]]: ...
    def reply(
        self,
        token: int,
        payload: bytes | None,
        *,
        principal: int = -1,
        mute_ms: int = 0,
        close_after: bool = False,
    ) -> None: ...
    def reply_all(self, replies: Sequence[tuple[int, bytes | None]]) -> None: ...
    def close_connection(self, token: int, reason: str) -> None: ...
    def publish_apis(
        self, served: Mapping[int, tuple[int, int, int | None, bool]], bodies: Sequence[bytes]
    ) -> None: ...
    def events(self) -> list[tuple[str, str, str, int, int]]: ...
    def counters(self) -> Counters: ...
