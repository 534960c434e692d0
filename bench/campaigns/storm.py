"""Rebalances without end: a hundred members of one group come and go, then five hundred groups at once, both protocols.

    python -m bench.campaigns.storm [--seconds 60] [--members 100] [--groups 500] [--seed N]

When the storm is over, every group must find together: its members in one generation, every partition owned once. Who
is still apart after a minute is stuck, and fails the campaign. The broker must have stayed as small as it was, but for
what its members and groups weigh.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Callable, Sequence

from bench.campaigns.crash.talk import Talk
from bench.members import ConsumerMember, Member, find_coordinator
from bench.servers import KbrokerServer

PATIENCE_S = 60.0
BEAT_S = {"classic": 0.1, "consumer": 0.2}
HEAVIEST_MIB = 64.0  # more than before the storm
CONFIG = {
    "offsets.topic.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.max.size": "1000",
}


class Whole(ConsumerMember):
    """A member of the consumer protocol, which is somewhere once its broker has heard what it owns."""

    @property
    def generation(self) -> int:
        return self.epoch if self._said and self.epoch > 0 else -1


Someone = Member | Whole


class Storm:
    def __init__(self, port: int, seed: int) -> None:
        self._port = port
        self._chance = random.Random(seed)
        self.comings = 0

    async def rage(self, protocol: str, groups: Sequence[str], each: int, seconds: float) -> float:
        """`each` members of every group come and go for so long. The seconds until all groups are together."""
        topic = f"{protocol}-{each}x{len(groups)}"
        talk = Talk(self._port)
        talk.create_topic(topic, each, {})
        talk.close()
        await find_coordinator(self._port, groups[0])
        make: Callable[[str], Someone] = (
            (lambda group: Member(self._port, group))
            if protocol == "classic"
            else (lambda group: Whole(self._port, group, topic))
        )
        crowds = [[make(group) for _ in range(each)] for group in groups]
        everyone = [one for crowd in crowds for one in crowd]
        end = time.monotonic() + seconds
        lives = [asyncio.ensure_future(self._restless(one, BEAT_S[protocol], end)) for one in everyone]
        try:
            while time.monotonic() < end:
                self._check(lives)
                await asyncio.sleep(0.05)
            while not all(_together(crowd, each) for crowd in crowds):
                self._check(lives)
                if time.monotonic() > end + PATIENCE_S:
                    stuck = [crowd[0].group for crowd in crowds if not _together(crowd, each)]
                    raise SystemExit(f"storm: {len(stuck)} groups are stuck, {stuck[0]} among them")
                await asyncio.sleep(0.01)
            return time.monotonic() - end
        finally:
            for life in lives:
                life.cancel()
            await asyncio.gather(*lives, return_exceptions=True)
            await asyncio.gather(*(one.close() for one in everyone), return_exceptions=True)

    async def _restless(self, one: Someone, beat_s: float, end: float) -> None:
        await asyncio.sleep(self._chance.random() * 0.5)
        await one.connect()
        while time.monotonic() < end:
            await one.join()
            self.comings += 1
            until = min(end, time.monotonic() + self._chance.uniform(0.05, 2.0))
            while time.monotonic() < until:
                await asyncio.sleep(beat_s)
                if await one.beat() and isinstance(one, Member):
                    await one.join()
            await one.leave()
        await one.join()
        await one.stay(beat_s)

    def _check(self, lives: Sequence[asyncio.Future[None]]) -> None:
        for life in lives:
            if life.done():
                life.result()


def _together(crowd: Sequence[Someone], partitions: int) -> bool:
    if len({one.generation for one in crowd}) > 1 or crowd[0].generation < 0:
        return False
    owned = sorted(part for one in crowd if isinstance(one, Whole) for part in one.owned)
    return isinstance(crowd[0], Member) or owned == list(range(partitions))


async def run(arguments: argparse.Namespace) -> None:
    server = KbrokerServer(config=CONFIG)
    try:
        storm = Storm(server.port, arguments.seed)
        await find_coordinator(server.port, "first")
        before = server.resident_mib()
        for protocol in ("classic", "consumer"):
            for label, groups, each in (
                (f"one group of {arguments.members}", [f"{protocol}-one"], arguments.members),
                (f"{arguments.groups} groups", [f"{protocol}-{one}" for one in range(arguments.groups)], 2),
            ):
                comings, cpu = storm.comings, server.cpu_seconds()
                settled_s = await storm.rage(protocol, groups, each, arguments.seconds)
                print(
                    f"storm: {protocol:<9} {label:<18} {storm.comings - comings:6} comings and goings, together "
                    f"{settled_s:5.2f} s after it, {server.cpu_seconds() - cpu:5.1f} s of CPU, "
                    f"{server.resident_mib():4.0f} MiB (began with {before:.0f})",
                    flush=True,
                )
        grown = server.resident_mib() - before
        if grown > HEAVIEST_MIB + (arguments.members + 4 * arguments.groups) * 0.05:
            raise SystemExit(f"storm: the broker has grown by {grown:.0f} MiB")
    finally:
        server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.campaigns.storm", description="rebalances without end")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each of the four storms")
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--groups", type=int, default=500)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    arguments = parser.parse_args()
    print(f"storm: seed {arguments.seed}", flush=True)
    asyncio.run(run(arguments))
    print("storm: no group is stuck")


if __name__ == "__main__":
    main()
