"""What a node does by itself: retention, checkpoints, and that neither ends because one of them failed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker._core.clock import BrokerClock
from kbroker._core.record.records import Record, build_batch
from kbroker.cluster.topics import NewTopic
from kbroker.storage.checkpoints import LOG_START_OFFSETS, read_offsets
from kbroker.storage.news import News
from kbroker.tests.unit.cluster.given import Lines
from kbroker.tests.unit.quorum.node import Node, running

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
SETTINGS = {"log.initial.task.delay.ms": 1000, "log.retention.check.interval.ms": 60_000}


async def until(holds: Callable[[], bool]) -> None:
    """Looks again and again; a test that waits in vain is ended by its own limit."""

    async def look() -> None:
        while not holds():
            await asyncio.sleep(0.01)

    await asyncio.wait_for(look(), 20)


def held() -> BrokerClock:
    clock = BrokerClock()
    clock.hold(NOW_MS)
    return clock


async def create(node: Node, *topics: str, **configs: str) -> None:
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    await node.controller.create_topics([NewTopic(topic, 1, 1, configs=settings) for topic in topics])


def produce(node: Node, topic: str, *times: int) -> None:
    """A segment per record."""
    handle = node.replicas.find(topic, 0)
    assert handle is not None
    assert handle.log is not None
    for at in times:
        handle.log.roll()
        assert handle.produce(build_batch([Record(timestamp=at, value=b"x")])).error == 0


def starts(node: Node) -> dict[str, int]:
    return {key[0]: log.log_start_offset for key, log in node.log_dirs.logs.items()}


def names(path: Path, pattern: str) -> list[str]:
    return sorted(one.name for one in path.glob(pattern))


def test_retention_runs_by_the_brokers_clock_and_files_go_after_their_delay(tmp_path: Path) -> None:
    clock = held()

    async def scenario() -> None:
        async with running(tmp_path, clock=clock, **SETTINGS) as node:
            told: list[tuple[str, int]] = []
            node.replicas.upkeep.retired = lambda went: told.append((went.key[0], went.log_start_offset))
            await create(node, "t", retention_ms=str(DAY_MS), file_delete_delay_ms="5000")
            produce(node, "t", NOW_MS - DAY_MS, NOW_MS - DAY_MS + 5000, NOW_MS)
            clock.advance(1000)
            await until(lambda: starts(node) == {"t": 1})
            await until(lambda: read_offsets(tmp_path / LOG_START_OFFSETS) == {("t", 0): 1})
            clock.advance(4500)  # the second is old enough, but the next check is not due
            assert names(tmp_path / "t-0", "*.log.deleted") == [f"{0:020d}.log.deleted"]
            clock.advance(500)
            await until(lambda: names(tmp_path / "t-0", "*.deleted") == [])
            assert starts(node) == {"t": 1}
            clock.advance(55_000)
            await until(lambda: starts(node) == {"t": 2})
            assert told == [("t", 1), ("t", 2)]

    asyncio.run(scenario())


def test_a_topics_changed_retention_holds_at_the_next_check(tmp_path: Path) -> None:
    clock = held()

    async def scenario() -> None:
        async with running(tmp_path, clock=clock, **SETTINGS) as node:
            await create(node, "t", "u", retention_ms="-1")
            for topic in ("t", "u"):
                produce(node, topic, NOW_MS - DAY_MS, NOW_MS)
            node.log_dirs.logs["t", 0].configure({"retention.ms": 1000})
            clock.advance(1000)
            await until(lambda: starts(node) == {"t": 1, "u": 0})

    asyncio.run(scenario())


def test_what_a_stop_leaves_undeleted_goes_at_the_next_start(tmp_path: Path) -> None:
    clock = held()

    async def scenario() -> None:
        async with running(tmp_path, clock=clock, **SETTINGS) as node:
            await create(node, "t", retention_ms=str(DAY_MS))
            produce(node, "t", NOW_MS - DAY_MS, NOW_MS)
            clock.advance(1000)
            await until(lambda: starts(node) == {"t": 1})
        assert names(tmp_path / "t-0", "*.deleted") != []
        async with running(tmp_path, clock=clock, **SETTINGS) as node:
            assert starts(node) == {"t": 1}
            assert names(tmp_path / "t-0", "*.deleted") == []

    asyncio.run(scenario())


def test_a_partition_that_fails_is_offline_and_told_and_the_others_age(tmp_path: Path) -> None:
    clock = held()

    async def scenario() -> None:
        async with running(tmp_path, clock=clock, **SETTINGS) as node:
            lines = Lines()
            node.replicas.tell_with(News(lines))
            await create(node, "a", "b", "c", retention_ms=str(DAY_MS))
            for topic in ("a", "b", "c"):
                produce(node, topic, NOW_MS - DAY_MS, NOW_MS)
            (tmp_path / "b-0" / f"{0:020d}.log.deleted").mkdir()
            clock.advance(1000)
            await until(lambda: starts(node)["a"] == starts(node)["c"] == 1)
            assert lines.offline == [("b", 0)]

    asyncio.run(scenario())


def test_upkeep_goes_on_after_a_failure_and_tells_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with running(tmp_path, **{"replica.high.watermark.checkpoint.interval.ms": 1}) as node:
            told: list[str] = []
            node.replicas.upkeep.failed = lambda what, problem: told.append(f"{what}: {problem}")
            await create(node, "t")
            whole = node.log_dirs.checkpoint

            def refuse() -> None:
                raise OSError("no space")

            monkeypatch.setattr(node.log_dirs, "checkpoint", refuse)
            await until(lambda: len(told) > 1)
            assert set(told) == {"a checkpoint failed: no space"}
            monkeypatch.setattr(node.log_dirs, "checkpoint", whole)
            produce(node, "t", NOW_MS)
            path = tmp_path / "replication-offset-checkpoint"
            await until(lambda: read_offsets(path) == {("t", 0): 1})

    asyncio.run(scenario())


def test_topics_deleted_in_a_round_of_flushes_are_no_failure(tmp_path: Path) -> None:
    clock = held()
    topics = [f"t{number}" for number in range(40)]

    async def scenario() -> None:
        async with running(tmp_path, clock=clock, **{"log.flush.scheduler.interval.ms": 100}) as node:
            failed: list[str] = []
            node.replicas.upkeep.failed = lambda what, _problem: failed.append(what)
            await create(node, "last", *topics, flush_ms="50")
            for topic in (*topics, "last"):
                produce(node, topic, NOW_MS)
            log = node.log_dirs.logs["last", 0]
            clock.advance(1000)
            await until(lambda: any(log.recovery_point for log in node.log_dirs.logs.values()))
            await node.controller.delete_topics(topics)
            await until(lambda: log.recovery_point == 1)
            assert failed == []

    asyncio.run(scenario())


def test_deleted_records_are_durable_when_it_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            await create(node, "t", "u")
            for topic in ("t", "u"):
                produce(node, topic, NOW_MS, NOW_MS)
            assert await node.replicas.raise_starts({("t", 0): 2, ("u", 0): 1}) == {("t", 0): 2, ("u", 0): 1}
            assert read_offsets(tmp_path / LOG_START_OFFSETS) == {("t", 0): 2, ("u", 0): 1}

    asyncio.run(scenario())


def test_a_deletion_of_records_that_cannot_be_written_down_is_not_told_as_done(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            told: list[str] = []
            node.replicas.upkeep.failed = lambda what, _problem: told.append(what)
            await create(node, "t")
            produce(node, "t", NOW_MS, NOW_MS)
            (tmp_path / f"{LOG_START_OFFSETS}.tmp").mkdir()
            assert await node.replicas.raise_starts({("t", 0): 1}) == {}
            assert told == ["a deletion of records failed"]
            (tmp_path / f"{LOG_START_OFFSETS}.tmp").rmdir()
            assert await node.replicas.raise_starts({("t", 0): 1}) == {("t", 0): 1}

    asyncio.run(scenario())
