"""A Core on a loopback port, a control thread that answers what is posted, and clients that speak frames."""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from kbroker._core.clock import BrokerClock
from kbroker._core.core import Core

Taken = tuple[int, int, int, str, int, bytes]
T = TypeVar("T")


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def request(correlation_id: int, body: bytes = b"", *, key: int = 3, version: int = 1) -> bytes:
    return frame(struct.pack(">hhi", key, version, correlation_id) + body)


def receive_exactly(sock: socket.socket, length: int) -> bytes:
    parts = []
    while length > 0:
        part = sock.recv(min(length, 1 << 20))
        if not part:
            raise EOFError(f"the stream ended {length} bytes early")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def receive_frame(sock: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", receive_exactly(sock, 4))
    return receive_exactly(sock, size)


def closed_by_server(sock: socket.socket) -> bool:
    """Read to the end: True when the server closed (or reset) without sending anything more."""
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def eventually(condition: Callable[[], object], timeout: float = 20.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.001)


def gather(give: Callable[[], list[T]], enough: Callable[[list[T]], bool] = bool) -> list[T]:
    """What repeated calls give, until it is enough: by default, anything."""
    got: list[T] = []

    def more() -> bool:
        got.extend(give())
        return enough(got)

    eventually(more)
    return got


def take_one(core: Core) -> Taken:
    return gather(lambda: core.take(1))[0]


class Control:
    """Stands for the control loop: takes what is posted and answers it, by default with the frame itself."""

    def __init__(self, core: Core, answer: Callable[[Core, Taken], None]) -> None:
        self.core = core
        self._answer = answer
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self.core.fileno(), select.POLLIN)
        while not self._stopping.is_set():
            poller.poll(50)
            for taken in self.core.take():
                self._answer(self.core, taken)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


def echo(core: Core, taken: Taken) -> None:
    core.reply(taken[0], taken[5])


class House:
    """Builds cores and clients and takes them down again."""

    def __init__(self, portable: bool, *, moving: bool = False) -> None:
        self.portable = portable
        self.moving = moving
        self.options = {"portable": portable, "relief_thread": moving, "move_always": moving}
        self.clock = BrokerClock()
        self._controls: list[Control] = []
        self._cores: list[Core] = []
        self._sockets: list[socket.socket] = []

    def core(self, *, host: str = "127.0.0.1", start: bool = True, **settings: Any) -> tuple[Core, int]:
        core = Core(self.clock, node_id=1, **{**self.options, **settings})
        self._cores.append(core)
        port = core.listen(host, 0)
        if start:
            core.start()
        return core, port

    def keep(self, core: Core) -> None:
        self._cores.append(core)

    def control(self, core: Core, answer: Callable[[Core, Taken], None] = echo) -> Control:
        control = Control(core, answer)
        self._controls.append(control)
        return control

    def connect(self, port: int, host: str = "127.0.0.1", receive_buffer: int | None = None) -> socket.socket:
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.settimeout(30)
        sock.connect((host, port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sockets.append(sock)
        return sock

    def close(self) -> None:
        for control in self._controls:
            control.stop()
        for core in self._cores:
            core.close()
        for sock in self._sockets:
            sock.close()
