"""The mailbox on one side, the handlers on the other: frames are decoded, answered and encoded here, and nowhere else.

Errors become codes here, once: a KafkaError is answered with its code; an unknown exception with UNKNOWN_SERVER_ERROR,
and it is logged with the request's key, version, client and correlation id. A frame that cannot be decoded closes its
connection.

Threads     the control loop only.
Bounded by  the data plane, which lets one request of a connection through at a time, or so many commits and heartbeats;
            of large requests only so many are decoded at once, and the others wait as the bytes they came as.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from types import CoroutineType
from typing import Any, NamedTuple, Protocol

from kbroker.api import REGISTRY, Row
from kbroker.api.context import NO_REPLY, Context, HangUpError, Rooms
from kbroker.coordinator.later import Later
from kbroker.errors import KafkaError, UnknownServerError
from kbroker.observe.logging import BrokerLog
from kbroker.protocol import apis, codec
from kbroker.protocol.message import Message

TAKEN_AT_ONCE = 256  # frames per turn of the loop, so that timers and waiting handlers get their turn too
LARGE_FRAME = 65_536  # bytes of a request from which on it may have to wait for others
LARGE_AT_ONCE = 4_194_304  # bytes of such requests under way: as objects they are up to a hundred times that
KEPT_MAX = 256  # answers kept for clients that ask the same again
KEPT_FRAME_MAX = 1_024  # bytes of a request, and
KEPT_REPLY_MAX = 262_144  # of a reply, beyond which it is not kept

OFFSET_COMMIT, HEARTBEAT, END_TXN = (key.to_bytes(2, "big") for key in (8, 12, 26))  # as a frame begins

STEADY = {row.key.to_bytes(2, "big") for row in REGISTRY if row.steady}  # whose answers are kept

Posted = tuple[int, int, int, str, int, bytes]  # token, listener index, principal, peer's host and port, frame


class Mailbox(Protocol):
    """What the gateway needs of Core."""

    def take(self, limit: int) -> list[Posted]: ...
    def reply(self, token: int, payload: bytes | None) -> None: ...
    def reply_all(self, replies: list[tuple[int, bytes | None]]) -> None: ...
    def close_connection(self, token: int, reason: str) -> None: ...


class Route(NamedTuple):
    """What is known of a request by its key and version."""

    row: Row
    version: int
    request: type[Message]
    response: type[Message]
    flexible: bool


class Express(Later):
    """A request that a coordinator took as it came, and whose answer is the reply's bytes."""

    __slots__ = ("_gateway", "_posted")

    def __init__(self, gateway: Gateway, posted: Posted) -> None:
        self._gateway = gateway
        self._posted = posted

    def settle(self, answer: Any) -> None:
        if type(answer) is bytes:
            self._gateway.send(self._posted[0], answer)
        else:
            self._gateway.fail_express(self._posted, answer)


class Gateway:
    """Serves what the data plane posted. `spawn` runs a coroutine to its end on the control loop."""

    def __init__(
        self,
        mailbox: Mailbox,
        rooms: Rooms,
        log: BrokerLog,
        listener_names: list[str],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        *,
        expect: Callable[[], None] = lambda: None,
    ) -> None:
        """`expect` is told of answers behind which their client asks for more at once."""
        self._mailbox = mailbox
        self._rooms = rooms
        self._log = log
        self._listener_names = listener_names
        self._spawn = spawn
        self._expect = expect
        self._large_bytes = 0  # of large requests whose handlers wait for something
        self._waiting: deque[Posted] = deque()  # large requests that are not decoded yet
        # What was answered to whom, without the correlation ids: clients ask for the same metadata over and over.
        self._kept: dict[tuple[int, int, bytes, bytes], bytes] = {}
        # Who takes requests of some keys as they come, if they are plain: False sends one the long way.
        self._express: dict[bytes, Callable[[bytes, Later], bool]] = {
            OFFSET_COMMIT: rooms.groups.take_commit,
            HEARTBEAT: rooms.groups.take_heartbeat,
            END_TXN: rooms.transactions.take_end,
        }
        self._routes: dict[bytes, Route] = {}  # by key and version, as frames begin
        self._ready: list[tuple[int, bytes | None]] | None = None  # replies of this turn, which leave together

    def forget_answers(self) -> None:
        """The cluster image has changed: what was kept may be wrong now."""
        self._kept.clear()

    def serve_pending(self) -> None:
        """Called when the mailbox has frames. What must wait is spawned; the rest is answered before this returns."""
        self._ready = []
        try:
            self._serve_waiting()  # there is room only if serving one of them failed
            for posted in self._mailbox.take(TAKEN_AT_ONCE):
                self._serve_posted(posted)
            self._rooms.transactions.append_decided()
            self._rooms.groups.append_decided()
        finally:
            ready, self._ready = self._ready, None
            if ready:
                self._mailbox.reply_all(ready)

    def _serve_posted(self, posted: Posted) -> None:
        token, listener, principal, host, port, frame = posted
        key = frame[:2]
        express = self._express.get(key)
        if express is not None and len(frame) < LARGE_FRAME:
            try:
                if express(frame, Express(self, posted)):
                    return
            except Exception as error:
                self.fail_express(posted, error)
                return
        kept = self._kept.get((listener, principal, frame[:4], frame[8:])) if key in STEADY else None
        if kept is not None:
            self.send(token, frame[4:8] + kept)
        elif len(frame) >= LARGE_FRAME and (self._waiting or not self._has_room(frame)):
            self._waiting.append(posted)
        else:
            self._serve(token, listener, principal, f"{host}:{port}", frame)

    def know_no_short_way(self) -> None:
        """Everything goes the long way: what the short one is judged by."""
        self._express.clear()

    def send(self, token: int, payload: bytes | None) -> None:
        """What was asked in this turn is answered at its end, with one ring of each network thread's bell."""
        if self._ready is None:
            self._mailbox.reply(token, payload)
        else:
            self._ready.append((token, payload))

    def _has_room(self, frame: bytes) -> bool:
        return not self._large_bytes or self._large_bytes + len(frame) <= LARGE_AT_ONCE

    def _serve_waiting(self) -> None:
        while self._waiting:
            token, listener, principal, host, port, frame = self._waiting[0]
            if not self._has_room(frame):
                return
            self._waiting.popleft()
            self._serve(token, listener, principal, f"{host}:{port}", frame)

    def _keep(self, listener: int, principal: int, frame: bytes, payload: bytes) -> None:
        if len(frame) <= KEPT_FRAME_MAX and len(payload) <= KEPT_REPLY_MAX:
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            self._kept[listener, principal, frame[:4], frame[8:]] = payload[4:]

    def _serve(self, token: int, listener: int, principal: int, peer: str, frame: bytes) -> None:
        try:
            route = self._routes.get(frame[:4]) or self._find_route(frame)
            if route is None:
                key, version = (int.from_bytes(frame[at : at + 2], "big", signed=True) for at in (0, 2))
                self._refuse(token, peer, f"API key {key} version {version} is not served here")
                return
            if len(frame) >= LARGE_FRAME:
                codec.prepare_response(
                    route.response, route.version
                )  # what stays, made among what does not, would pin its memory
            request, ctx = self._read(route, listener, principal, peer, frame)
        except codec.DecodeError as problem:
            self._refuse(token, peer, f"a request cannot be read: {problem}")
            return
        row = route.row
        assert row.handler is not None, row.key
        try:
            answer = row.handler(request, ctx)
        except Exception as error:
            self._fail(token, row, request, ctx, error)
            return
        if type(answer) is Later:
            large = len(frame) if len(frame) >= LARGE_FRAME else 0
            self._large_bytes += large
            answer.then(partial(self._settle, token, row, request, ctx, large=large))
        elif isinstance(answer, CoroutineType):  # not the abstract class: it remembers every type it was asked about
            large = len(frame) if len(frame) >= LARGE_FRAME else 0
            self._large_bytes += large
            self._spawn(self._finish(token, row, request, ctx, answer, large=large))
        else:
            payload = self._reply(token, row, request, ctx, answer)
            if row.steady and payload is not None:
                self._keep(listener, principal, frame, payload)

    def _find_route(self, frame: bytes) -> Route | None:
        """None: such requests are not served. DecodeError: it is none."""
        header, _ = codec.decode_request_header(frame)
        key, version = header.request_api_key, header.request_api_version
        row = REGISTRY.find(key)
        if row is None or row.handler is None or not row.min_version <= version <= row.max_version:
            return None
        api = apis.by_key(key)
        route = Route(row, version, api.request, api.response, api.is_flexible(version))
        self._routes[frame[:4]] = route
        return route

    def _read(self, route: Route, listener: int, principal: int, peer: str, frame: bytes) -> tuple[Any, Context]:
        """The request and who sent it. DecodeError: it cannot be read."""
        correlation_id, client_id, body_at = codec.read_request_header(frame, route.flexible)
        request, _ = codec.decode(route.request, route.version, frame, body_at)
        name = self._listener_names[listener]
        return request, Context(self._rooms, route.version, correlation_id, client_id, name, peer, principal)

    def _settle(self, token: int, row: Row, request: Any, ctx: Context, answer: Any, *, large: int) -> None:
        """A coordinator has answered, or what it answered is to be carried out now, which takes a while."""
        if isinstance(answer, CoroutineType):
            self._spawn(self._finish(token, row, request, ctx, answer, large=large))
            return
        if isinstance(answer, Exception):
            self._fail(token, row, request, ctx, answer)
        else:
            self._reply(token, row, request, ctx, answer)
        if large:
            self._large_bytes -= large
            self._serve_waiting()

    async def _finish(
        self, token: int, row: Row, request: Any, ctx: Context, waiting: Coroutine[Any, Any, Any], *, large: int
    ) -> None:
        try:
            try:
                answer = await waiting
            except Exception as error:
                self._fail(token, row, request, ctx, error)
            else:
                self._reply(token, row, request, ctx, answer)
        finally:
            if large:
                self._large_bytes -= large
                self._serve_waiting()

    def _reply(self, token: int, row: Row, request: Any, ctx: Context, answer: Any) -> bytes | None:
        """Sends the answer; returns what was sent, if it was the answer."""
        try:
            payload = None if answer is NO_REPLY else codec.encode_response(answer, ctx.api_version, ctx.correlation_id)
        except codec.EncodeError as error:
            self._fail(token, row, request, ctx, error)  # our own mistake, and the client is told so
            return None
        self.send(token, payload)
        if row.followed is not None and row.followed(request):
            self._expect()
        return payload

    def _fail(self, token: int, row: Row, request: Any, ctx: Context, error: Exception) -> None:
        if isinstance(error, HangUpError):
            self._refuse(token, ctx.peer, str(error))
            return
        code = error.code if isinstance(error, KafkaError) else UnknownServerError.code
        if not isinstance(error, KafkaError):
            self._log.error(
                "a request failed",
                cause=error,
                api_key=row.key,
                api_version=ctx.api_version,
                client_id=ctx.client_id,
                correlation_id=ctx.correlation_id,
                peer=ctx.peer,
            )
        if row.failed is None:
            self._refuse(token, ctx.peer, f"API key {row.key} failed and has no reply that could say so")
            return
        self.send(
            token,
            codec.encode_response(row.failed(request, code, ctx.api_version), ctx.api_version, ctx.correlation_id),
        )

    def fail_express(self, posted: Posted, error: Exception) -> None:
        """What a coordinator took cannot be done: now the request itself is needed to say so."""
        token, listener, principal, host, port, frame = posted
        route = self._routes.get(frame[:4]) or self._find_route(frame)
        assert route is not None, frame[:4]
        request, ctx = self._read(route, listener, principal, f"{host}:{port}", frame)
        self._fail(token, route.row, request, ctx, error)

    def _refuse(self, token: int, peer: str, reason: str) -> None:
        self._log.warning("a connection was closed", peer=peer, reason=reason)
        self._mailbox.close_connection(token, reason)
