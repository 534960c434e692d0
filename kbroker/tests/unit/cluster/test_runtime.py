"""This node's replicas when their files fail: one partition suffers, the broker and the topics after it do not."""

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from kbroker._core.clock import BrokerClock
from kbroker._core.record.records import Record, build_batch
from kbroker._core.views import ViewHandle
from kbroker.cluster.delta import Delta
from kbroker.cluster.runtime import Replicas
from kbroker.cluster.topics import NewTopic, create_topics
from kbroker.config import Config
from kbroker.storage.identity import format_uuid
from kbroker.storage.log_dirs import LogDirs
from kbroker.storage.news import News
from kbroker.tests.unit.cluster.given import Lines, cluster, rules
from kbroker.tests.unit.quorum.node import Node, running

STORAGE_ERROR = 56
BATCH = build_batch([Record(timestamp=1, value=b"x")])
STRANGER = f"version: 0\ntopic_id: {format_uuid(bytes(range(16)))}"


def produce(node: Node, partition: int) -> int:
    handle = node.replicas.find("t", partition)
    assert handle is not None
    return handle.produce(BATCH).error


@pytest.mark.parametrize("metadata", [STRANGER, "damaged"])
def test_a_directory_of_another_topic_takes_one_partition_offline(tmp_path: Path, metadata: str) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            lines = Lines()
            node.replicas.tell_with(News(lines))
            (tmp_path / "t-0").mkdir()
            (tmp_path / "t-0" / "partition.metadata").write_text(metadata)
            await node.controller.create_topics([NewTopic("t", 2, 1)])
            assert [produce(node, partition) for partition in (0, 1)] == [STORAGE_ERROR, 0]
            assert lines.offline == [("t", 0)]
            await node.controller.delete_topics(["t"])
            assert not (tmp_path / "t-0").exists()
            await node.controller.create_topics([NewTopic("t", 2, 1)])
            assert [produce(node, partition) for partition in (0, 1)] == [0, 0]
            assert node.controller.failure is None

    asyncio.run(scenario())


def test_a_start_survives_a_damaged_topic_id(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            await node.controller.create_topics([NewTopic("t", 2, 1)])
        (tmp_path / "t-0" / "partition.metadata").write_text("damaged")
        async with running(tmp_path) as node:
            assert [produce(node, partition) for partition in (0, 1)] == [STORAGE_ERROR, 0]

    asyncio.run(scenario())


def test_a_topic_created_again_does_not_inherit_an_old_failure(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            node.replicas.offline[("t", 0)] = OSError("told by the worker after the old topic was deleted")
            await node.controller.create_topics([NewTopic("t", 1, 1)])
            assert node.replicas.offline == {}
            assert produce(node, 0) == 0

    asyncio.run(scenario())


def test_a_replica_that_opens_later_is_served(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            await node.controller.create_topics([NewTopic("t", 1, 1)])
        shutil.rmtree(tmp_path / "t-0")
        (tmp_path / "t-0").touch()
        async with running(tmp_path) as node:
            assert produce(node, 0) == STORAGE_ERROR
            (tmp_path / "t-0").unlink()
            await node.controller.create_partitions([("t", 2, None)])
            assert [produce(node, partition) for partition in (0, 1)] == [0, 0]

    asyncio.run(scenario())


@contextmanager
def no_descriptors() -> Iterator[None]:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, before[1]))
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_partition_made_while_descriptors_ran_out_takes_records_afterwards(tmp_path: Path) -> None:
    async def scenario() -> None:
        config = Config.load(settings={"log.dirs": str(tmp_path)})
        log_dirs = LogDirs.open(config.log_dirs, config.node_id, BrokerClock())
        replicas = Replicas(config, log_dirs, {"PLAINTEXT": ViewHandle()})
        image, delta = cluster(config.node_id, log_dirs={config.node_id: log_dirs.directory_ids}), Delta()
        await replicas.start(image)
        for record in create_topics(image, [NewTopic("t", 1, 1)], rules()).records:
            image.apply(record, delta)
        with no_descriptors():
            await replicas.on_commit(image, delta)
            handle = replicas.find("t", 0)
            assert handle is not None
            assert handle.produce(BATCH).error == STORAGE_ERROR
            assert not log_dirs.logs[("t", 0)].made
        assert replicas.offline == {}
        assert handle.produce(BATCH).error == 0
        assert await replicas.close(1) == []

    asyncio.run(scenario())
