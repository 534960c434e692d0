"""How long `async with kbroker.Broker()` keeps an event loop from running, in fresh processes.

    python -m bench.loop_gap [--processes 20]

A task sleeps for 1 ms again and again; the longest pause between two of its turns is the gap. `start` covers the first
use of kbroker in the process: the import of the package, the constructor and the start; `stop` the end of the block.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time

TICK_S = 0.001


async def measure() -> None:
    """Print the gaps of this process in ms: of the idle loop, of the start, of the stop."""
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        before = time.perf_counter()
        while True:
            await asyncio.sleep(TICK_S)
            now = time.perf_counter()
            longest, before = max(longest, now - before), now

    async def gap_ms() -> float:
        """Return the longest pause since the last call."""
        nonlocal longest
        await asyncio.sleep(2 * TICK_S)  # a pause that began before this call ends here
        found, longest = longest * 1000, 0.0
        return found

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0.1)
    idle = await gap_ms()
    import kbroker

    broker = kbroker.Broker()
    await broker.__aenter__()
    start = await gap_ms()
    await broker.__aexit__(None, None, None)
    stop = await gap_ms()
    ticking.cancel()
    print(idle, start, stop)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=20)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        asyncio.run(measure())
        return
    rows = []
    for _ in range(arguments.processes):
        command = [sys.executable, "-m", "bench.loop_gap", "--one"]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append([float(figure) for figure in ran.stdout.split()])
    for name, column in zip(("idle", "start", "stop"), zip(*rows, strict=True), strict=True):
        print(f"{name:5}  median {statistics.median(column):5.1f} ms  worst {max(column):5.1f} ms")


if __name__ == "__main__":
    main()
