"""Members that live through kills of their broker: they connect again, beat on, and commit what they own."""

from __future__ import annotations

import asyncio
import random

from bench.campaigns.crash.ledger import Broken
from bench.campaigns.regroup.ledger import Ledger
from bench.members import (
    COORDINATOR_TROUBLE,
    FENCED_MEMBER_EPOCH,
    ILLEGAL_GENERATION,
    REBALANCE_IN_PROGRESS,
    STALE_MEMBER_EPOCH,
    UNKNOWN_MEMBER_ID,
    ConsumerMember,
    Member,
)

TOPIC, PARTITIONS = "work", 6
SESSION_MS = 1_500
BEAT_S = 0.05
PAUSE_S = 0.03
GONE = (ConnectionError, asyncio.IncompleteReadError, OSError)
# A commit that comes too late is refused: with one of these.
LATE = {
    ILLEGAL_GENERATION,
    UNKNOWN_MEMBER_ID,
    REBALANCE_IN_PROGRESS,
    FENCED_MEMBER_EPOCH,
    STALE_MEMBER_EPOCH,
    *COORDINATOR_TROUBLE,
}


class Classic(Member):
    """Its assignment is a byte for each partition."""

    def __init__(self, port: int, group: str, topic: str) -> None:
        super().__init__(port, group, SESSION_MS)
        self.owned: set[int] = set()
        self._topic = topic

    def divide(self, members: list[str]) -> dict[str, bytes]:
        ordered = sorted(members)
        return {
            one: bytes(part for part in range(PARTITIONS) if ordered[part % len(ordered)] == one) for one in ordered
        }

    def take(self, assignment: bytes) -> None:
        self.owned = set(assignment)

    async def turn(self) -> None:
        """One heartbeat, and what follows from it."""
        if self.generation < 0 or await self.beat():
            self.owned = set()
            await self.join()

    @property
    def age(self) -> int:
        """Of its group as it knows it; below 1 it is not in it."""
        return self.generation


class Modern(ConsumerMember):
    async def turn(self) -> None:
        await self.beat()

    @property
    def age(self) -> int:
        return self.epoch if self.settled else 0

    @property
    def settled(self) -> bool:
        return self._said


class Person:
    """One member of one group, from its coming to its going."""

    def __init__(self, kind: type[Classic] | type[Modern], port: int, group: str, ledger: Ledger) -> None:
        self.member = kind(port, group, TOPIC)
        self.commits = True
        self._ledger = ledger
        self._leaving = False
        self.task = asyncio.ensure_future(self._live())

    async def _live(self) -> None:
        while not self._leaving:
            try:
                await self.member.connect()
            except GONE:
                await asyncio.sleep(PAUSE_S)
                continue
            try:
                await self.member.find()
                while not self._leaving:
                    await self._turn()
                await self.member.leave()
            except GONE:
                await asyncio.sleep(PAUSE_S)
            finally:
                await self.member.close()

    async def _turn(self) -> None:
        await self.member.turn()
        end = asyncio.get_running_loop().time() + BEAT_S
        while self.commits and asyncio.get_running_loop().time() < end:
            for partition in sorted(self.member.owned):
                if not await self._commit(partition):
                    return
            if not self.member.owned:
                break
        await asyncio.sleep(max(0.001, end - asyncio.get_running_loop().time()))

    async def _commit(self, partition: int) -> bool:
        offset = self._ledger.next(self.member.group, partition)
        error = await self.member.commit(TOPIC, partition, offset)
        if error == 0:
            self._ledger.acknowledge(self.member.group, partition, offset)
        elif error not in LATE:
            raise Broken(f"a commit of {self.member.group} was answered with {error}")
        return error == 0

    async def leave(self) -> None:
        """Says goodbye if the broker is there to hear it."""
        self._leaving = True
        await self.task

    async def vanish(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Crowd:
    """The people of one group."""

    def __init__(self, kind: type[Classic] | type[Modern], port: int, name: str, ledger: Ledger) -> None:
        self.name, self._kind, self._port, self._ledger = name, kind, port, ledger
        self.people: list[Person] = []

    def come(self) -> None:
        self.people.append(Person(self._kind, self._port, self.name, self._ledger))

    async def go(self, chance: random.Random) -> None:
        """One of them, with or without a goodbye."""
        one = self.people.pop(chance.randrange(len(self.people)))
        if chance.random() < 0.3:
            await one.vanish()
        else:
            await one.leave()

    def waiting(self, request: str) -> int:
        return sum(one.member.waits_for == request for one in self.people)

    def revoking(self) -> int:
        return sum(isinstance(one.member, Modern) and not one.member.settled for one in self.people)

    def is_whole(self) -> bool:
        """Everyone in one generation, every partition owned once."""
        ages = {one.member.age for one in self.people}
        owned = sorted(part for one in self.people for part in one.member.owned)
        return len(ages) == 1 and ages.pop() > 0 and owned == list(range(PARTITIONS))

    def check(self) -> None:
        for one in self.people:
            if one.task.done():
                one.task.result()

    def __str__(self) -> str:
        told = [(one.member.age, sorted(one.member.owned), one.member.waits_for) for one in self.people]
        return f"{self.name}: {told}"
