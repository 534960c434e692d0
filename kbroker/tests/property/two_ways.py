"""A coordinator that knows a short way beside one that knows none, in the same state and on logs of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st

from kbroker.tests.unit.api.desk import Desk


class Way(Protocol):
    def __init__(self, directory: Path, *, short: bool) -> None: ...
    async def start(self) -> None: ...
    def close(self) -> None: ...


W = TypeVar("W", bound=Way)


def on_both(way: type[W], story: Callable[[W, W], Awaitable[None]]) -> None:
    """The story of the one that takes the short way and of the one that does not."""

    async def told(directory: Path) -> None:
        ways = [way(directory / name, short=name == "short") for name in ("short", "long")]
        try:
            for one in ways:
                await one.start()
            await story(*ways)
        finally:
            for one in ways:
                one.close()

    with TemporaryDirectory() as directory:
        for name in ("short", "long"):
            (Path(directory) / name).mkdir()
        asyncio.run(told(Path(directory)))


def ask(desk: Desk, *frames: bytes) -> list[tuple[bytes | None, str | None]]:
    """All in one turn: what is answered in it, and why the connection was closed if it was."""
    tokens = desk.begin_all(frames)
    return [(desk.mailbox.replies.get(token), desk.mailbox.closed.get(token)) for token in tokens]


@st.composite
def harmed(draw: st.DrawFn, frames: st.SearchStrategy[bytes]) -> bytes:
    """Most of them whole; some with bytes changed, added or cut off behind the key and the version."""
    frame = bytearray(draw(frames))
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(4, len(frame) - 1))
        match draw(st.sampled_from(["set", "insert", "cut"])):
            case "set":
                frame[at] = draw(st.integers(0, 255))
            case "insert":
                frame[at:at] = draw(st.binary(min_size=1, max_size=8))
            case _:
                del frame[at:]
    return bytes(frame)


CLIENT_IDS: st.SearchStrategy[Any] = st.sampled_from(["client", None, "cli\u00ebnt"])
