"""The command: cycles of living, dying and finding together, and a line about each."""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from bench.campaigns.crash import tripwire, verdict
from bench.campaigns.crash.ledger import Broken
from bench.campaigns.crash.server import KILLED, Server
from bench.campaigns.crash.talk import Talk
from bench.campaigns.crash.tripwire import Moment
from bench.campaigns.regroup.ledger import Ledger
from bench.campaigns.regroup.people import PARTITIONS, SESSION_MS, TOPIC, Classic, Crowd, Modern
from bench.members import COORDINATOR_TROUBLE
from kbroker.coordinator.placement import OFFSETS_TOPIC
from kbroker.protocol import messages

GROUPS = 3  # of each protocol
MEMBERS = 3
PATIENCE_S = 60.0
GRACE_S = 1.5  # for a moment that may never come; then the clock kills
MOMENTS = ("commit", "commit", "rebalance", "rebalance", "joining", "syncing", "revoking", "loading", "stop")
WAITS = {"joining": "JoinGroup", "syncing": "SyncGroup"}
LONG = 60  # cycles from which on every kind of moment must have come
BROKER = {
    "offsets.topic.num.partitions": "3",
    "log.cleaner.backoff.ms": "40",
    "log.segment.delete.delay.ms": "150",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "50",
    "auto.create.topics.enable": "false",
}


class Campaign:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.seed: int = arguments.seed
        self.cycles: int = arguments.cycles
        self.home: Path = arguments.keep or Path(tempfile.mkdtemp(prefix="kbroker-regroup-"))
        self.home.mkdir(parents=True, exist_ok=True)
        self.library = tripwire.build()
        self.server = Server(self.home, self.library, 0, BROKER)
        self.ledger = Ledger()
        self.crowds: list[Crowd] = []
        self.came: Counter[str] = Counter()
        self.slowest_s = 0.0

    async def run(self) -> int:
        began = time.monotonic()
        cycle = 0
        try:
            await self._begin()
            for cycle in range(1, self.cycles + 1):
                await self._cycle(cycle)
            files = await self._finish()
        except Exception as problem:
            traceback.print_exception(problem)
            for crowd in self.crowds:
                print(f"regroup: {crowd}", file=sys.stderr)
            print(f"regroup: cycle {cycle} of seed {self.seed}; the data is in {self.server.data}", file=sys.stderr)
            self.server.close()
            return 1
        finally:
            shutil.rmtree(self.library.parent)
        print(f"  {', '.join(f'{count} {kind}' for kind, count in sorted(self.came.items()))}")
        print(f"  {self.ledger.acknowledgements} commits acknowledged, {files} files read by kafka-dump-log")
        print(
            f"regroup: {self.cycles} cycles of seed {self.seed} in {time.monotonic() - began:.0f} s: no offset lost, "
            f"every group found together, at the latest {self.slowest_s:.1f} s after the start"
        )
        shutil.rmtree(self.home, ignore_errors=True)
        never = set(MOMENTS) - self.came.keys()
        if self.cycles >= LONG and never:
            print(f"regroup: never happened: {', '.join(sorted(never))}", file=sys.stderr)
            return 1
        return 0

    async def _begin(self) -> None:
        await self._start()
        talk = Talk(self.server.port)
        talk.create_topic(TOPIC, PARTITIONS, {})
        talk.close()
        for number in range(GROUPS):
            self.crowds.append(Crowd(Classic, self.server.port, f"classic-{number}", self.ledger))
            self.crowds.append(Crowd(Modern, self.server.port, f"consumer-{number}", self.ledger))
        for crowd in self.crowds:
            for _ in range(MEMBERS):
                crowd.come()
        await self._find_together()
        talk = Talk(self.server.port)
        talk.alter(OFFSETS_TOPIC, "internal.segment.bytes", "40000")  # rolls and compaction come with the commits
        talk.alter(OFFSETS_TOPIC, "min.cleanable.dirty.ratio", "0.1")
        talk.close()

    async def _start(self) -> None:
        if not await asyncio.to_thread(self.server.start):
            raise Broken("a broker that nobody killed has died")

    async def _cycle(self, cycle: int) -> None:
        chance = random.Random(f"{self.seed}/{cycle}")
        moment = MOMENTS[cycle % len(MOMENTS)] if cycle <= len(MOMENTS) else chance.choice(MOMENTS)
        began = time.monotonic()
        how = await self._die(moment, chance)
        if moment == "loading":
            self.server.wire.disarm()
            await asyncio.to_thread(self.server.start, kill_after_s=chance.uniform(0.1, 0.7))
        self.server.wire.disarm()
        for crowd in self.crowds:
            for one in crowd.people:
                one.commits = True
        await self._start()
        found = time.monotonic()
        await asyncio.to_thread(self._judge)
        await self._find_together()
        took = time.monotonic() - found
        self.slowest_s = max(self.slowest_s, took)
        self.server.lines()
        self.came[moment] += 1
        print(
            f"regroup: {cycle:4}/{self.cycles}  {time.monotonic() - began:4.1f} s  together after {took:4.1f} s  "
            f"{self.ledger.acknowledgements:6} acknowledged  {moment}: {how}",
            flush=True,
        )

    async def _die(self, moment: str, chance: random.Random) -> str:
        if moment in ("commit", "loading"):
            return await self._trip(_write(chance, 60))
        if moment == "rebalance":
            for crowd in self.crowds:
                for one in crowd.people:
                    one.commits = False
            await asyncio.sleep(0.1)  # what was on its way
            wire = _write(chance, 8)
            moving = asyncio.ensure_future(self._move(chance))
            how = await self._trip(wire)
            await moving
            return how
        moving = asyncio.ensure_future(self._move(chance))
        wanted = chance.randint(1, 2 if moment == "revoking" else 4)
        reached = await self._reach(moment, wanted)
        if moment == "stop":
            await asyncio.to_thread(self._stop)
        else:
            self.server.kill()
        await moving
        return f"{reached} of {wanted} members"

    def _stop(self) -> None:
        self.server.ask_to_stop()
        code = self.server.await_end()
        if code != 0:
            raise Broken(f"a broker that was asked to stop ended with {code}")

    async def _move(self, chance: random.Random) -> None:
        """In every group somebody comes or goes."""
        for crowd in self.crowds:
            if len(crowd.people) <= 1 or (len(crowd.people) < PARTITIONS and chance.random() < 0.5):
                crowd.come()
            else:
                await crowd.go(chance)

    async def _reach(self, moment: str, wanted: int) -> int:
        """Until so many are in the middle of it, or the time is over."""
        end = time.monotonic() + GRACE_S
        count: Callable[[], int] = {
            "revoking": lambda: sum(crowd.revoking() for crowd in self.crowds),
        }.get(moment, lambda: sum(crowd.waiting(WAITS.get(moment, "JoinGroup")) for crowd in self.crowds))
        while (found := count()) < wanted and time.monotonic() < end:
            await asyncio.sleep(0)
        return found

    async def _trip(self, wire: Moment) -> str:
        self.server.wire.arm(wire)
        end = time.monotonic() + GRACE_S
        while self.server.alive() and time.monotonic() < end:
            await asyncio.sleep(0.005)
        if self.server.alive():
            self.server.wire.disarm()
            if self.server.alive():
                self.server.kill()
                return f"by the clock, waiting for {wire}"
        code = await asyncio.to_thread(self.server.await_end)
        if code != KILLED:
            raise Broken(f"the broker ended by itself, with {code}")
        return str(wire)

    def _judge(self) -> None:
        least = self.ledger.least()  # members commit meanwhile
        talk = Talk(self.server.port)
        try:
            for crowd in self.crowds:
                for partition, stored in enumerate(_stored(talk, crowd.name)):
                    self.ledger.judge(crowd.name, partition, stored, least)
        finally:
            talk.close()

    async def _find_together(self) -> None:
        end = time.monotonic() + PATIENCE_S
        while not all(crowd.is_whole() for crowd in self.crowds):
            for crowd in self.crowds:
                crowd.check()
            if time.monotonic() > end:
                stuck = [crowd.name for crowd in self.crowds if not crowd.is_whole()]
                raise Broken(f"{', '.join(stuck)} did not find together in {PATIENCE_S:.0f} s")
            await asyncio.sleep(0.01)

    async def _finish(self) -> int:
        for crowd in self.crowds:
            for one in crowd.people:
                await one.leave()
        await asyncio.to_thread(self._judge)
        await asyncio.to_thread(self._stop)
        return 0 if verdict.is_possible() else verdict.dump_all(self.server.data, set())


def _write(chance: random.Random, most: int) -> Moment:
    manner = chance.choice(("before", "after", "torn"))
    return Moment(("write",), "__consumer_offsets-", chance.randint(1, most), manner, chance.randrange(1000))


def _stored(talk: Talk, group: str) -> list[int]:
    """What is committed, by partition; asked again while the coordinator loads."""
    asked = messages.OffsetFetchRequest.Topics(name=TOPIC, partition_indexes=list(range(PARTITIONS)))
    request = messages.OffsetFetchRequest(groups=[messages.OffsetFetchRequest.Group(group_id=group, topics=[asked])])
    end = time.monotonic() + PATIENCE_S
    while True:
        (answer,) = talk.ask(request, 9).groups
        if answer.error_code == 0:
            found = {one.partition_index: one.committed_offset for one in answer.topics[0].partitions}
            return [found[partition] for partition in range(PARTITIONS)]
        if answer.error_code not in COORDINATOR_TROUBLE or time.monotonic() > end:
            raise Broken(f"the offsets of {group} were answered with {answer.error_code}")
        time.sleep(0.01)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.campaigns.regroup", description="kill -9 while groups rebalance and commit"
    )
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--keep", type=Path, help="work in this directory; a failure leaves it there")
    arguments = parser.parse_args()
    print(f"regroup: {arguments.cycles} cycles, seed {arguments.seed}", flush=True)
    sys.exit(asyncio.run(Campaign(arguments).run()))


if __name__ == "__main__":
    main()
