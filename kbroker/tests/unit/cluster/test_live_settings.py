"""What is set while the broker runs holds for the next record, after a restart, and after a snapshot."""

import asyncio
from pathlib import Path

import pytest

from kbroker._core.record.records import Record, build_batch
from kbroker.cluster.configs import Alteration, Change, Operation
from kbroker.cluster.image import BROKER_RESOURCE, TOPIC_RESOURCE
from kbroker.cluster.topics import NewTopic
from kbroker.quorum.snapshot import find_snapshots
from kbroker.tests.unit.quorum.node import Node, running

TOO_LARGE, TOO_FEW = 10, 19
LARGE = build_batch([Record(timestamp=1, value=bytes(3_000))])


async def change(node: Node, kind: int, name: str, **settings: str | None) -> None:
    changes = [
        Change(one.replace("_", "."), value, Operation.DELETE if value is None else Operation.SET)
        for one, value in settings.items()
    ]
    (result,) = await node.controller.alter_configs([Alteration(kind, name, changes)])
    assert result.error_code == 0, result


def produce(node: Node, topic: str = "t", partition: int = 0) -> int:
    handle = node.replicas.find(topic, partition)
    assert handle is not None
    return handle.produce(LARGE).error


def test_a_topic_setting_reaches_every_open_log_and_no_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            await node.controller.create_topics([NewTopic("t", 2, 1), NewTopic("u", 1, 1)])
            await change(node, TOPIC_RESOURCE, "t", max_message_bytes="1000")
            assert [produce(node, "t", 0), produce(node, "t", 1), produce(node, "u")] == [TOO_LARGE, TOO_LARGE, 0]
            await change(node, TOPIC_RESOURCE, "t", max_message_bytes=None)
            assert produce(node) == 0

    asyncio.run(scenario())


def test_a_broker_setting_holds_where_the_topic_has_none(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            await node.controller.create_topics([NewTopic("t", 1, 1), NewTopic("u", 1, 1)])
            await change(node, TOPIC_RESOURCE, "u", max_message_bytes="4000")
            await change(node, BROKER_RESOURCE, "", message_max_bytes="1000")
            assert [produce(node), produce(node, "u")] == [TOO_LARGE, 0]
            await change(node, BROKER_RESOURCE, "1", message_max_bytes="5000")
            assert produce(node) == 0
            await change(node, BROKER_RESOURCE, "1", message_max_bytes=None)
            assert produce(node) == TOO_LARGE
            await node.controller.create_topics([NewTopic("v", 1, 1)])
            assert produce(node, "v") == TOO_LARGE

    asyncio.run(scenario())


def test_a_smaller_segment_holds_from_the_next_append(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            await node.controller.create_topics([NewTopic("t", 1, 1)])
            for _ in range(400):
                assert produce(node) == 0
            log = node.replicas.logs()["t", 0]
            assert len(log.segments()) == 1
            await change(node, TOPIC_RESOURCE, "t", segment_bytes="1048576")
            assert produce(node) == 0
            assert len(log.segments()) == 2

    asyncio.run(scenario())


@pytest.mark.parametrize("snapshot", [False, True])
def test_settings_survive_a_restart(tmp_path: Path, snapshot: bool) -> None:
    often = {"metadata.log.max.record.bytes.between.snapshots": 1} if snapshot else {}

    async def scenario() -> None:
        async with running(tmp_path, **often) as node:
            await node.controller.create_topics([NewTopic("t", 1, 1), NewTopic("u", 1, 1)])
            await change(node, TOPIC_RESOURCE, "t", max_message_bytes="1000")
            await change(node, BROKER_RESOURCE, "1", log_segment_bytes="2000000")
            await change(node, BROKER_RESOURCE, "", log_segment_bytes="3000000", message_max_bytes="2000")
        assert bool(find_snapshots(tmp_path / "__cluster_metadata-0")) == snapshot
        async with running(tmp_path) as node:
            image = node.controller.image
            assert image.topic_configs("t") == {"max.message.bytes": "1000"}
            assert image.broker_configs(1) == {"log.segment.bytes": "2000000"}
            assert image.broker_configs(None) == {"log.segment.bytes": "3000000", "message.max.bytes": "2000"}
            assert [produce(node), produce(node, "u")] == [TOO_LARGE, TOO_LARGE]
            await node.controller.delete_topics(["t"])
            await node.controller.create_topics([NewTopic("t", 1, 1, configs={"max.message.bytes": "4000"})])
            assert produce(node) == 0

    asyncio.run(scenario())
