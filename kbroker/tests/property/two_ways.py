"""A coordinator that knows a short way beside one that knows none, in the same state and on logs of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st

from kbroker._core.clock import BrokerClock
from kbroker._core.log.partition_log import PartitionLog
from kbroker._core.partitions import PartitionHandle
from kbroker._core.record.records import build_plain_batch
from kbroker.cluster.image import ClusterImage
from kbroker.coordinator.frames import encode_record
from kbroker.coordinator.runtime import Site
from kbroker.coordinator.step import Record
from kbroker.observe.logging import BrokerLog
from kbroker.protocol.records import PartitionRecord, TopicRecord
from kbroker.tests.unit.api.desk import Desk

NODE, NOW_MS = 1, 1_700_000_000_000


def topic_id(name: str) -> bytes:
    return name.encode()[:16].ljust(16, b"-")


class Ground:
    """What a coordinator stands on: a partition of its topic with records in it, and a node with some topics."""

    def __init__(self, directory: Path, topic: str, topics: Mapping[str, int], records: Iterable[Record]) -> None:
        """`topics`: how many partitions each has."""
        self.clock = BrokerClock()
        self.clock.hold(NOW_MS)
        self.log = PartitionLog.open(directory / f"{topic}-0", self.clock, {})
        self.handle = PartitionHandle(0, self.log)
        self.handle.lead(NODE, 0, 1, 1)
        self.handle.append(build_plain_batch([encode_record(one) for one in records], NOW_MS))
        image = ClusterImage()
        for name, count in {topic: 1, **topics}.items():
            image.apply(TopicRecord(name=name, topic_id=topic_id(name)))
            for index in range(count):
                image.apply(PartitionRecord(partition_id=index, topic_id=topic_id(name), leader=NODE, replicas=[NODE]))
        log = BrokerLog("json", "error")
        self.site = Site(NODE, lambda: image, lambda topic, index: self.handle, self.clock, log, asyncio.to_thread)

    def written(self) -> bytes:
        return self.log.read(0, 1 << 24, self.log.log_end_offset)


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


SELDOM = st.sampled_from([0, 0, 0, 1])


@st.composite
def harmed(draw: st.DrawFn, frames: st.SearchStrategy[bytes], times: st.SearchStrategy[int] = SELDOM) -> bytes:
    """With bytes changed, added or cut off behind the key and the version, so many times."""
    frame = bytearray(draw(frames))
    for _ in range(draw(times)):
        if len(frame) <= 4:
            break
        at = draw(st.integers(4, len(frame) - 1))
        match draw(st.sampled_from(["set", "insert", "cut"])):
            case "set":
                frame[at] = draw(st.integers(0, 255))
            case "insert":
                frame[at:at] = draw(st.binary(min_size=1, max_size=12))
            case _:
                del frame[at:]
    return bytes(frame)


CLIENT_IDS: st.SearchStrategy[Any] = st.sampled_from(["client", None, "cli\u00ebnt"])
