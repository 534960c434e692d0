"""Memory that the machine must still fetch from its host, as all memory of a machine that has just started.

A virtual machine gets a page from its host when it first writes to it, and gives free pages back after a while
(free-page reporting). The first write to a fresh page costs 3 to 15 µs, a write to a page that the machine has already
about 1 µs. `Sponge.soak` allocates and holds the free pages that the machine has already, so that the next work gets
fresh ones.
"""

from __future__ import annotations

import mmap
import time
from pathlib import Path

from bench.settle import free_bytes

FIGURE = "µs to touch a page"
CHUNK_BYTES = 2 << 20
SAMPLE_CHUNKS = 32
FRESH_US_PER_PAGE = 1.5
LEFT_FREE_BYTES = 4 << 30
REPORTED = Path("/sys/module/page_reporting/parameters/reported_kib")
REPORTING_SECONDS = 30.0
_POPULATED = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_POPULATE", 0)


class Sponge:
    """Anonymous memory that holds the pages which the machine has already."""

    def __init__(self) -> None:
        self._chunks: list[mmap.mmap] = []

    def soak(self) -> dict[str, float]:
        """Holds settled free pages until 64 MiB in a row were fresh, and returns the cost of one page of these.

        On a machine without a host, or one that never gives pages back, no page is fresh. Then it stops while 4 GiB are
        free and returns the cost of a settled page, so the figure shows how fresh the memory was.
        """
        if free_bytes() < 2 * LEFT_FREE_BYTES:
            self.release()
            await_reported()
        costs: list[float] = []
        while free_bytes() > LEFT_FREE_BYTES:
            costs.append(self._take_chunk())
            if len(costs) >= SAMPLE_CHUNKS and min(costs[-SAMPLE_CHUNKS:]) > FRESH_US_PER_PAGE:
                break
        last = costs[-SAMPLE_CHUNKS:]
        return {FIGURE: sum(last) / len(last) if last else 0.0}

    def _take_chunk(self) -> float:
        began = time.perf_counter()
        self._chunks.append(mmap.mmap(-1, CHUNK_BYTES, flags=_POPULATED))
        return (time.perf_counter() - began) / (CHUNK_BYTES // mmap.PAGESIZE) * 1e6

    def release(self) -> None:
        for chunk in self._chunks:
            chunk.close()
        self._chunks.clear()


def await_reported() -> None:
    """Returns once the machine has given no free page back to its host for two seconds, or after half a minute."""
    deadline = time.monotonic() + REPORTING_SECONDS
    before, now = "", _reported()
    while now != before and time.monotonic() < deadline:
        time.sleep(2.0)
        before, now = now, _reported()


def _reported() -> str:
    return REPORTED.read_text() if REPORTED.exists() else ""
