"""One data directory, two brokers: Apache Kafka opens what kbroker wrote, and kbroker what Apache wrote.

The kbroker side is its rooms without the network (directories, controller, replicas), so what is judged is the files.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined]

from compat_tests.oracle import ApacheKafka, run_tool
from kbroker._core.record.records import Record, build_batch, iterate
from kbroker.cluster.configs import Alteration, Change, Operation
from kbroker.cluster.topics import NewTopic as Wanted
from kbroker.config import Config, ConfigEntry, Dynamic
from kbroker.protocol import codec
from kbroker.protocol.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    MetadataRequest,
    MetadataResponse,
)
from kbroker.storage.identity import format_uuid
from kbroker.tests.unit.quorum.node import Node, running, start

pytestmark = pytest.mark.usefixtures("java_tools")

Contents = dict[tuple[str, int], list[bytes]]
OURS = (
    "node.id",
    "log.dir",
    "controller.listener.names",
    "listeners",
    "process.roles",
    "group.initial.rebalance.delay.ms",
)  # defaults of our own, on purpose


def with_node(directory: Path, scenario: Callable[[Node], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        async with running(directory, **settings) as node:
            await scenario(node)

    asyncio.run(run())


async def fill(node: Node) -> None:
    """Topics that were created, configured, grown, deleted and created again, with records in every partition."""
    topics = [
        Wanted("orders", 3, 1, configs={"retention.ms": "86400000", "max.message.bytes": "1000000"}),
        Wanted("plain", 1, 1),
        Wanted("gone", 2, 1),
    ]
    assert [one.error_code for one in await node.controller.create_topics(topics)] == [0, 0, 0]
    await node.controller.create_partitions([("plain", 2, None)])
    await node.controller.delete_topics(["gone"])
    await node.controller.create_topics([Wanted("gone", 1, 1)])
    await node.controller.allocate_producer_ids()
    changed = await node.controller.alter_configs(
        [
            Alteration(2, "orders", [Change("retention.ms", None, Operation.DELETE), Change("segment.ms", "70000")]),
            Alteration(4, "1", [Change("log.roll.jitter.ms", "7")]),
            Alteration(4, "", [Change("message.max.bytes", "2000000")]),
        ]
    )
    assert [one.error_code for one in changed] == [0, 0, 0]
    for topic, index in sorted(node.replicas.logs()):
        put(node, topic, index, *(b"%s %d %d" % (topic.encode(), index, i) for i in range(100)))


def put(node: Node, topic: str, index: int, *values: bytes) -> None:
    handle = node.replicas.find(topic, index)
    assert handle is not None
    batch = build_batch([Record(timestamp=1_700_000_000_000, key=b"k", value=value) for value in values])
    assert handle.produce(batch).error == 0


def seen_by_kbroker(node: Node) -> tuple[dict[str, str], Contents]:
    ids = {name: format_uuid(topic.topic_id) for name, topic in node.controller.image.topics.items()}
    records: Contents = {}
    for key, log in node.replicas.logs().items():
        offset, values = 0, []
        while offset < log.log_end_offset:
            part = iterate(log.read(offset))
            values += [record.value or b"" for record in part]
            offset = part[-1].offset + 1
        records[key] = values
    return ids, records


def call(bootstrap: str, request: object, version: int, answer: type) -> object:
    host, _, port = bootstrap.rpartition(":")
    frame = codec.encode_request(request, version, 1, "judge")  # type: ignore[arg-type]
    with socket.create_connection((host, int(port)), timeout=30) as connection, connection.makefile("rb") as stream:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        (length,) = struct.unpack(">i", stream.read(4))
        return codec.decode_response(answer, version, stream.read(length))[1]


def seen_by_apache(apache: ApacheKafka) -> tuple[dict[str, str], Contents]:
    metadata = call(apache.bootstrap, MetadataRequest(topics=None), 12, MetadataResponse)
    assert isinstance(metadata, MetadataResponse)
    ids = {topic.name or "": format_uuid(topic.topic_id) for topic in metadata.topics}
    records: Contents = {}
    consumer = Consumer(
        {"bootstrap.servers": apache.bootstrap, "group.id": "judge", "enable.auto.commit": False, "log_level": 0}
    )
    for topic in metadata.topics:
        for partition in topic.partitions:
            assert partition.leader_id == 1, (topic.name, partition.partition_index)
            at = TopicPartition(topic.name or "", partition.partition_index, 0)
            end = _end_offset(consumer, at)
            consumer.assign([at])
            values: list[bytes] = []
            while len(values) < end:
                message = consumer.poll(30)
                assert message is not None, (topic.name, partition.partition_index, len(values), end)
                assert message.error() is None, message.error()
                values.append(message.value() or b"")
            records[(topic.name or "", partition.partition_index)] = values
    consumer.close()
    return ids, records


def _end_offset(consumer: Consumer, at: TopicPartition) -> int:
    """Metadata names a leader a moment before the leader knows."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return int(consumer.get_watermark_offsets(at, timeout=30)[1])
        except KafkaException as problem:
            if problem.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION or time.monotonic() > deadline:
                raise


def internal_left_out(found: tuple[dict[str, str], Contents]) -> tuple[dict[str, str], Contents]:
    ids, records = found
    return (
        {name: topic_id for name, topic_id in ids.items() if not name.startswith("__")},
        {key: values for key, values in records.items() if not key[0].startswith("__")},
    )


def dump(*files: Path, metadata: bool = False) -> str:
    options = ["--cluster-metadata-decoder"] if metadata else ["--deep-iteration"]
    result = run_tool("kafka-dump-log", *options, "--files", ",".join(str(file) for file in files))
    assert result.exit_code == 0, result.out + result.err
    for complaint in ("isvalid: false", "Found invalid", "mismatch", "Exception", "out of order", "not in the correct"):
        assert complaint not in result.out + result.err, result.out + result.err
    return result.out


def test_dump_log_reads_everything_kbroker_wrote(tmp_path: Path) -> None:
    with_node(tmp_path, fill)
    with_node(tmp_path, _nothing, **{"metadata.log.max.record.bytes.between.snapshots": 1})
    log = tmp_path / "__cluster_metadata-0"
    said = dump(log / f"{0:020d}.log", metadata=True)
    kinds = {json.loads(line.split("payload: ", 1)[1])["type"] for line in said.splitlines() if "payload: " in line}
    assert kinds == {
        "BEGIN_TRANSACTION_RECORD",
        "FEATURE_LEVEL_RECORD",
        "END_TRANSACTION_RECORD",
        "REGISTER_CONTROLLER_RECORD",
        "REGISTER_BROKER_RECORD",
        "BROKER_REGISTRATION_CHANGE_RECORD",
        "TOPIC_RECORD",
        "CONFIG_RECORD",
        "PARTITION_RECORD",
        "REMOVE_TOPIC_RECORD",
        "PRODUCER_IDS_RECORD",
        "PARTITION_CHANGE_RECORD",
    }
    assert said.count("LeaderChange") == 2
    snapshots = sorted(log.glob("*.checkpoint"))
    assert snapshots
    assert "SnapshotHeader" in dump(snapshots[-1], metadata=True)
    assert "metadata.version" in dump(tmp_path / "bootstrap.checkpoint", metadata=True)
    partitions = [path for path in tmp_path.iterdir() if path.is_dir() and not path.name.endswith("-delete")]
    dump(*(file for path in partitions for file in sorted(path.glob("*.log"))))
    dump(*(file for path in partitions for file in sorted(path.glob("*index"))))


async def _nothing(node: Node) -> None:
    """Starts and stops."""


def test_apache_opens_a_directory_kbroker_stopped_cleanly(tmp_path: Path) -> None:
    seen: list[tuple[dict[str, str], Contents]] = []

    async def look(node: Node) -> None:
        seen.append(seen_by_kbroker(node))

    with_node(tmp_path, fill)
    with_node(tmp_path, look, **{"metadata.log.max.record.bytes.between.snapshots": 1})
    with ApacheKafka.on_data_directory(tmp_path) as apache:
        found = internal_left_out(seen_by_apache(apache))
        assert found == seen[0]
        admin = AdminClient({"bootstrap.servers": apache.bootstrap, "log_level": 0})
        described = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "orders")])
        values = next(iter(described.values())).result(30)
        assert (values["segment.ms"].value, values["max.message.bytes"].value) == ("70000", "1000000")
        assert (values["retention.ms"].value, values["segment.jitter.ms"].value) == ("604800000", "7")
        of_broker = _described(apache, 4, "1")
        assert (of_broker["log.roll.jitter.ms"][3], of_broker["message.max.bytes"][1]) == (2, "2000000")
        for future in admin.create_topics([NewTopic("from-apache", 2, 1)]).values():
            future.result(30)
        producer = Producer({"bootstrap.servers": apache.bootstrap, "enable.idempotence": True})
        producer.produce("from-apache", b"hello", partition=1)
        producer.produce("plain", b"hello", partition=1)
        assert producer.flush(30) == 0
        output = apache.output().splitlines()
    # Apache says "Performing controller activation" as a warning whenever it takes over a log, its own included.
    usual = ("INFO", "WARN QuorumController [QuorumController id=1] Performing controller activation.")
    assert [line for line in output if not line.startswith(usual)] == []

    async def look_again(node: Node) -> None:
        ids, records = internal_left_out(seen_by_kbroker(node))
        expected_ids, expected = seen[0]
        assert {name: ids[name] for name in expected_ids} == expected_ids
        assert records[("from-apache", 1)] == [b"hello"]
        assert records[("plain", 1)] == [*expected[("plain", 1)], b"hello"]
        put(node, "from-apache", 0, b"back again")

    with_node(tmp_path, look_again)


def test_apache_opens_a_directory_kbroker_had_no_time_to_close(tmp_path: Path) -> None:
    seen: list[tuple[dict[str, str], Contents]] = []
    copied = tmp_path / "copy"

    async def run() -> None:
        node = await start(tmp_path / "live")
        await fill(node)
        seen.append(seen_by_kbroker(node))
        shutil.copytree(tmp_path / "live", copied)
        await node.stop()

    asyncio.run(run())
    with ApacheKafka.on_data_directory(copied) as apache:
        assert internal_left_out(seen_by_apache(apache)) == seen[0]


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_kbroker_opens_a_directory_of_apache(tmp_path: Path, clean: bool) -> None:
    apache = ApacheKafka(tmp_path, settings={"metadata.log.max.record.bytes.between.snapshots": "1500"}).start()
    admin = AdminClient({"bootstrap.servers": apache.bootstrap, "log_level": 0})
    wanted = [NewTopic("a", 3, 1, config={"retention.ms": "5000000"}), NewTopic("b", 1, 1), NewTopic("gone", 1, 1)]
    for future in admin.create_topics(wanted).values():
        future.result(30)
    for future in admin.delete_topics(["gone"]).values():
        future.result(30)
    run_tool(
        "kafka-configs", "--bootstrap-server", apache.bootstrap, "--alter", "--entity-type", "brokers",
        "--entity-default", "--add-config", "log.roll.jitter.ms=7,some.plugin=x",
    )  # fmt: skip
    producer = Producer({"bootstrap.servers": apache.bootstrap, "enable.idempotence": True, "compression.type": "lz4"})
    for number in range(300):
        producer.produce("a", b"value %d" % number, partition=number % 3)
    assert producer.flush(30) == 0
    expected = internal_left_out(seen_by_apache(apache))
    if clean:
        apache.stop()
    else:
        shutil.copytree(apache.data_directory, tmp_path / "killed")
        apache.stop()
    directory = apache.data_directory if clean else tmp_path / "killed"

    async def look(node: Node) -> None:
        assert internal_left_out(seen_by_kbroker(node)) == expected
        assert node.controller.image.topic_configs("a") == {"retention.ms": "5000000"}
        assert node.controller.image.broker_configs(None) == {"log.roll.jitter.ms": "7", "some.plugin": "x"}
        assert node.config.topic_value("segment.jitter.ms", {}, node.controller.dynamic()) == 7
        assert node.replicas.offline == {}
        assert all(node.replicas.find(*key).is_leader for key in node.replicas.logs())  # type: ignore[union-attr]
        put(node, "a", 0, b"from kbroker")

    with_node(directory, look)
    with ApacheKafka.on_data_directory(directory) as again:
        ids, records = internal_left_out(seen_by_apache(again))
        assert ids == expected[0]
        assert records[("a", 0)] == [*expected[1][("a", 0)], b"from kbroker"]


def test_settings_are_described_as_apache_describes_them(tmp_path: Path) -> None:
    settings = {"log.retention.hours": "24", "log.roll.ms": "100000000", "num.partitions": "3"}
    with ApacheKafka(tmp_path, settings=settings) as apache:
        admin = AdminClient({"bootstrap.servers": apache.bootstrap, "log_level": 0})
        for future in admin.create_topics([NewTopic("t", 1, 1, config={"cleanup.policy": "compact,delete"})]).values():
            future.result(30)
        theirs = {name: _described(apache, kind, name) for kind, name in ((2, "t"), (4, "1"), (4, ""))}
    given = {name: one[1] for name, one in theirs["1"].items() if one[3] == 4 and name != "broker.id"}
    config = Config({name: value for name, value in given.items() if value is not None})
    dynamic = Dynamic(default={name: one[1] or "" for name, one in theirs[""].items()})
    ours = {
        "t": _as_described(config.describe_topic({"cleanup.policy": "compact,delete"}, dynamic)),
        "1": _as_described(config.describe_broker(dynamic)),
        "": _as_described(config.describe_cluster_default(dynamic)),
    }
    for name in OURS:
        ours["1"].pop(name)
        theirs["1"].pop(name)
    assert ours == theirs


Described = dict[str, tuple[int, "str | None", bool, int, bool, list[tuple[str, "str | None", int]]]]


def _described(apache: ApacheKafka, kind: int, name: str) -> Described:
    asked = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[asked], include_synonyms=True)
    answer = call(apache.bootstrap, request, 4, DescribeConfigsResponse)
    assert isinstance(answer, DescribeConfigsResponse)
    return {
        one.name: (
            one.config_type,
            one.value,
            one.read_only,
            one.config_source,
            one.is_sensitive,
            [(synonym.name, synonym.value, synonym.source) for synonym in one.synonyms],
        )
        for one in answer.results[0].configs
    }


def _as_described(entries: list[ConfigEntry]) -> Described:
    return {
        one.name: (
            int(one.type),
            one.value,
            one.read_only,
            int(one.source),
            one.is_sensitive,
            [(synonym.name, synonym.value, int(synonym.source)) for synonym in one.synonyms],
        )
        for one in entries
    }
