"""DescribeLogDirs and AlterReplicaLogDirs: which versions say what, and which errors are told apart."""

from __future__ import annotations

import asyncio

import pytest

from kbroker._core.errors import Err
from kbroker.cluster.topics import NewTopic
from kbroker.protocol.messages import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from kbroker.storage.usage import DirectoryUsage, ReplicaUsage
from kbroker.tests.unit.api.desk import Desk

ONE = ReplicaUsage("t", 0, 4711, 0, False)
COPY = ReplicaUsage("u", 1, 100, 7, True)


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.replicas.directories = [
        DirectoryUsage("/a", None, 1000, 400, (ONE, COPY)),
        DirectoryUsage("/b", OSError("gone")),
    ]
    return desk


@pytest.mark.parametrize("version", range(1, 6))
def test_directories_are_told_with_what_lies_in_them(desk: Desk, version: int) -> None:
    good, bad = desk.ask(DescribeLogDirsRequest(topics=None), version).results
    told = [
        (topic.name, one.partition_index, one.partition_size, one.offset_lag, one.is_future_key)
        for topic in good.topics
        for one in topic.partitions
    ]
    assert told == [tuple(ONE), tuple(COPY)]
    assert (good.log_dir, good.error_code, bad.log_dir, bad.error_code) == ("/a", 0, "/b", Err.KAFKA_STORAGE_ERROR)
    assert (good.total_bytes, good.usable_bytes) == ((1000, 400) if version >= 4 else (-1, -1))
    assert (bad.total_bytes, bad.usable_bytes, bad.topics) == (-1, -1, [])


def test_only_what_is_asked_for_is_told(desk: Desk) -> None:
    wanted = [DescribeLogDirsRequest.DescribableLogDirTopic(topic="u", partitions=[1, 9])]
    first, _ = desk.ask(DescribeLogDirsRequest(topics=wanted), 4).results
    assert [topic.name for topic in first.topics] == ["u"]
    first, _ = desk.ask(DescribeLogDirsRequest(topics=[]), 4).results
    assert first.topics == []


@pytest.mark.parametrize("version", [1, 2])
def test_an_unknown_partition_is_told_from_one_that_is_not_here(desk: Desk, version: int) -> None:
    asyncio.run(desk.controller.create_topics([NewTopic("t", 2, 1)]))
    desk.replicas.local = {("t", 0)}
    topics = [
        AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name="t", partitions=[0, 1, 2]),
        AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name="x", partitions=[0]),
    ]
    wanted = AlterReplicaLogDirsRequest.AlterReplicaLogDir(path="/a", topics=topics)
    answer = desk.ask(AlterReplicaLogDirsRequest(dirs=[wanted]), version)
    told = {
        (topic.topic_name, one.partition_index): one.error_code for topic in answer.results for one in topic.partitions
    }
    assert told == {("t", 0): 0, ("t", 1): 9, ("t", 2): 3, ("x", 0): 3}
    assert desk.replicas.moved == [dict.fromkeys(told, "/a")]
