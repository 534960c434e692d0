"""kbroker with one guarantee off, and with its own command line.

    JEPSEN_OFF=fences python -m bench.campaigns.jepsen.broken start …

The broker as shipped has no such switch: its functions are exchanged here, before it starts. What lives in the data
plane cannot be exchanged, see lies.py for that.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.campaigns.jepsen.worker import QUEUE
from kbroker import cli
from kbroker._core.errors import Err
from kbroker.coordinator import runtime
from kbroker.coordinator.frames import TRANSACTION
from kbroker.coordinator.group.offsets import Offsets
from kbroker.coordinator.replay import replay
from kbroker.coordinator.step import NO_PRODUCER
from kbroker.coordinator.txn.shard import TransactionShard
from kbroker.storage.markers import Markers

VARIABLE = "JEPSEN_OFF"
ONE_PARTITION = (QUEUE, 0)
TAIL_BYTES = 1500


def aborts() -> None:
    """An abort is written as a commit."""
    write = Markers.write_marker

    def write_marker(self: Markers, *where: Any, commit: bool, **more: Any) -> asyncio.Future[int]:
        return write(self, *where, commit=True, **more)

    _exchange(Markers, "write_marker", write_marker)


def commits() -> None:
    """A commit is written as an abort into one of the partitions."""
    write = Markers.write_marker

    def write_marker(self: Markers, topic: str, number: int, *who: int, commit: bool, **more: Any) -> Any:
        return write(self, topic, number, *who, commit=commit and (topic, number) != ONE_PARTITION, **more)

    _exchange(Markers, "write_marker", write_marker)


def markers() -> None:
    """One of the partitions gets no markers."""
    write = Markers.write_marker

    def write_marker(self: Markers, topic: str, number: int, *who: int, **more: Any) -> asyncio.Future[int]:
        if (topic, number) != ONE_PARTITION:
            return write(self, topic, number, *who, **more)
        written: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        written.set_result(Err.NONE)
        return written

    _exchange(Markers, "write_marker", write_marker)


def fences() -> None:
    """The coordinator takes every epoch."""
    _exchange(TransactionShard, "_claimed", TransactionShard._mapped)


def timeouts() -> None:
    """No transaction is too old."""
    _exchange(TransactionShard, "_is_overdue", lambda self, transaction, now_ms: False)


def offsets() -> None:
    """The offsets of a transaction that commits are dropped."""
    end = Offsets.apply_end

    def apply_end(self: Offsets, producer_id: int, *, commit: bool) -> list[str]:
        return end(self, producer_id, commit=False)

    _exchange(Offsets, "apply_end", apply_end)


def undone_offsets() -> None:
    """The offsets of a transaction that aborts are kept."""
    end = Offsets.apply_end

    def apply_end(self: Offsets, producer_id: int, *, commit: bool) -> list[str]:
        return end(self, producer_id, commit=True)

    _exchange(Offsets, "apply_end", apply_end)


def pending_offsets() -> None:
    """The offsets of a transaction count before it commits."""
    hold = Offsets.apply

    def apply(self: Offsets, key: Any, value: Any, producer_id: int = NO_PRODUCER) -> None:
        hold(self, key, value)

    _exchange(Offsets, "apply", apply)


def state() -> None:
    """A start does not read __transaction_state."""

    def forget(kind: str, *of: Any) -> int:
        return 0 if kind == TRANSACTION else replay(kind, *of)

    _exchange(runtime, "replay", forget)


def tails() -> None:
    """A start finds less of the topic's partitions than was acknowledged."""
    data = Path(sys.argv[sys.argv.index("--data-dir") + 1])
    for directory in data.glob(f"{QUEUE}-*"):
        newest = max(directory.glob("*.log"))
        os.truncate(newest, max(0, newest.stat().st_size - TAIL_BYTES))


def _exchange(owner: object, name: str, by: object) -> None:
    assert hasattr(owner, name)
    setattr(owner, name, by)


GUARANTEES: dict[str, Callable[[], None]] = {
    one.__name__: one
    for one in (aborts, commits, markers, fences, timeouts, offsets, undone_offsets, pending_offsets, state, tails)
}

if __name__ == "__main__":
    off = os.environ.get(VARIABLE)
    if off:
        GUARANTEES[off]()
    cli.main(prog_name="kbroker")
