"""Groups: commits and heartbeats from the native load generator, rebalances of many members, time to a first record."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bench import frames, wireload
from bench.crowd import Crowd, Templates
from bench.members import Member, find_coordinator
from bench.servers import Server
from bench.works.measure import SECONDS, Figures, Meter, Work, make_topic, new_name, percentile, topic
from bench.works.raw import per_request
from kbroker.protocol import messages

COMMIT = 8
BEAT_S = 0.05  # as the rebalance's end is felt by the next heartbeat, every second would measure the heartbeat
PATIENCE_S = 120
FIRSTS = 5  # first records of which the median counts: a client has ways that take longer, by chance


def _commit_frame(group: str, topic_name: str) -> bytes:
    partition = messages.OffsetCommitRequest.Partition(partition_index=0, committed_offset=1, committed_metadata="")
    wanted = messages.OffsetCommitRequest.Topic(name=topic_name, partitions=[partition])
    return frames.frame(messages.OffsetCommitRequest(group_id=group, topics=[wanted]), COMMIT)


def _commit_error_at(topic_name: str) -> int:
    """size, header, throttle time, counts, name, index"""
    return 4 + 5 + 4 + 1 + 1 + len(topic_name) + 1 + 4


def commits(connections: int, depth: int) -> Work:
    def work(server: Server) -> Figures:
        groups = [new_name() for _ in range(connections)]
        asyncio.run(find_coordinator(server.port, groups[0]))
        with topic(server) as name, Meter(server) as meter:
            outcome = wireload.run(
                server.port,
                [[_commit_frame(group, name)] for group in groups],
                depth=depth,
                seconds=SECONDS,
                check_offset=_commit_error_at(name),
            )
        return per_request(outcome, meter)

    return work


def heartbeats(connections: int, depth: int) -> Work:
    def work(server: Server) -> Figures:
        groups = [new_name() for _ in range(connections)]
        members = asyncio.run(_joined(server.port, groups))
        beats = [
            [
                frames.frame(
                    messages.HeartbeatRequest(
                        group_id=group, generation_id=member.generation, member_id=member.member_id
                    ),
                    4,
                )
            ]
            for group, member in zip(groups, members, strict=True)
        ]
        with Meter(server) as meter:
            outcome = wireload.run(server.port, beats, depth=depth, seconds=SECONDS, check_offset=4 + 5 + 4)
        return per_request(outcome, meter)

    return work


async def _joined(port: int, groups: list[str]) -> list[Member]:
    await find_coordinator(port, groups[0])
    members = [Member(port, group) for group in groups]
    await asyncio.gather(*(member.connect() for member in members))
    await asyncio.gather(*(member.join() for member in members))
    for member in members:
        await member.close()
    return members


def rebalance(count: int) -> Work:
    """A group of `count` members; then one more comes: until everyone has an assignment of the new generation.

    The members ask without a pause whether they shall join again: else the time between heartbeats would be measured.
    """

    def work(server: Server) -> Figures:
        group = new_name()
        with _crowd(server, [group] * count) as crowd:
            standing = list(crowd.members.values())
            for member in standing:
                member.join()
            crowd.settle()
            newcomer = crowd.add(Templates(group))
            with Meter(server) as meter:
                newcomer.join()
                for member in standing:
                    member.beat()
                crowd.settle()
        return _took(meter)

    return work


def many_groups(count: int) -> Work:
    """So many groups of one member each, all at once."""

    def work(server: Server) -> Figures:
        with _crowd(server, [new_name() for _ in range(count)]) as crowd, Meter(server) as meter:
            for member in crowd.members.values():
                member.join()
            crowd.settle()
        return _took(meter)

    return work


@contextmanager
def _crowd(server: Server, groups: list[str]) -> Iterator[Crowd]:
    asyncio.run(find_coordinator(server.port, groups[0]))
    crowd = Crowd(server.port, groups)
    try:
        yield crowd
    finally:
        crowd.close()


def _took(meter: Meter) -> Figures:
    return {"seconds": meter.wall, "broker CPU s": meter.cpu, "client CPU s": meter.client_cpu}


def storm(count: int, seconds: float) -> Work:
    """Members of one group come and go for so long; how long each join took."""

    async def story(port: int) -> list[float]:
        group = new_name()
        chance = random.Random(7)
        await find_coordinator(port, group)
        members = [Member(port, group) for _ in range(count)]
        until = time.monotonic() + seconds

        took_ms: list[float] = []

        async def join(member: Member) -> None:
            began = time.monotonic()
            await member.join()
            took_ms.append((time.monotonic() - began) * 1e3)

        async def restless(member: Member) -> None:
            await member.connect()
            await join(member)
            while time.monotonic() < until:
                leaves_at = time.monotonic() + chance.randrange(1, 20) * BEAT_S
                while time.monotonic() < min(leaves_at, until):
                    await asyncio.sleep(BEAT_S)
                    if await member.beat():
                        await join(member)
                if time.monotonic() < until:
                    await member.leave()
                    await join(member)
            staying.add(member)
            await member.stay(BEAT_S)

        staying: set[Member] = set()
        lives = [asyncio.ensure_future(restless(member)) for member in members]
        while time.monotonic() < until:
            await asyncio.sleep(BEAT_S)
        while len(staying) < count or len({member.generation for member in members}) > 1:
            await asyncio.sleep(0.002)
        await _end(members, lives)
        return took_ms

    def work(server: Server) -> Figures:
        async def bounded() -> list[float]:
            return await asyncio.wait_for(story(server.port), PATIENCE_S)

        with Meter(server) as meter:
            took_ms = asyncio.run(bounded())
        return {
            "ms to join, p50": percentile(took_ms, 0.5),
            "ms to join, p99": percentile(took_ms, 0.99),
            "broker CPU s": meter.cpu,
        }

    return work


async def _end(members: list[Member], lives: Sequence[asyncio.Future[None]]) -> None:
    for life in lives:
        life.cancel()
    await asyncio.gather(*lives, return_exceptions=True)
    for member in members:
        await member.close()


def first_record(members: int, protocol: str) -> Work:
    """librdkafka's consumers, from subscribe() until each of them has a record of its own partition."""

    def once(server: Server) -> float:
        from confluent_kafka import Consumer

        name = make_topic(server, members)  # each partition holds a record
        group = new_name()
        consumers = [
            Consumer(
                {
                    "bootstrap.servers": server.bootstrap,
                    "group.id": group,
                    "group.protocol": protocol,
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                }
            )
            for _ in range(members)
        ]
        began = time.monotonic()
        try:
            for consumer in consumers:
                consumer.subscribe([name])
            waiting = set(range(members))
            while waiting:
                if time.monotonic() - began > PATIENCE_S:
                    raise RuntimeError(f"{len(waiting)} consumers have no record after {PATIENCE_S} s")
                for index, consumer in enumerate(consumers):  # who is not polled holds up the others' rebalance
                    message = consumer.poll(0.002)
                    if message is not None and message.error() is None:
                        waiting.discard(index)
            took = time.monotonic() - began
        finally:
            for consumer in consumers:
                consumer.close()
        return took

    def work(server: Server) -> Figures:
        return {"seconds": statistics.median(once(server) for _ in range(FIRSTS))}

    return work
