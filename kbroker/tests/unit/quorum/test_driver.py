"""A controller on its files: what it answered is there after a restart, whatever way it stopped."""

import asyncio
import shutil
from pathlib import Path

import pytest

from kbroker._core.record.records import Record, build_batch, iterate
from kbroker.cluster.topics import NewTopic
from kbroker.errors import KafkaStorageError
from kbroker.protocol.records import VotersRecord
from kbroker.quorum.frames import Membership, read_batches
from kbroker.quorum.snapshot import SnapshotId, find_snapshots, read_snapshot, write_bootstrap, write_snapshot
from kbroker.storage.identity import DataDirectoryError, MetaProperties, write_meta
from kbroker.tests.unit.quorum.node import Node, running, start


def metadata_names(directory: Path) -> list[str]:
    data = (directory / "__cluster_metadata-0" / f"{0:020d}.log").read_bytes()
    return [
        name
        for batch in read_batches(data)
        for name in (
            [f"control {kind}" for kind in batch.control_types] or [type(one).__name__ for one in batch.records]
        )
    ]


def produce(node: Node, topic: str, partition: int, *values: bytes) -> None:
    handle = node.replicas.find(topic, partition)
    assert handle is not None
    produced = handle.produce(build_batch([Record(timestamp=1, key=b"k", value=value) for value in values]))
    assert produced.error == 0


def consume(node: Node, topic: str, partition: int) -> list[bytes | None]:
    log = node.replicas.logs()[(topic, partition)]
    return [record.value for record in iterate(log.read(0))]


def test_a_new_directory_starts_as_apaches_does(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            assert node.controller.image.features == {"metadata.version": 30, "transaction.version": 2}
            assert node.controller.image.brokers[1].active
            assert node.controller.broker_epoch == 6

    asyncio.run(scenario())
    assert metadata_names(tmp_path) == [
        "control 2",
        "BeginTransactionRecord",
        "FeatureLevelRecord",
        "FeatureLevelRecord",
        "EndTransactionRecord",
        "RegisterControllerRecord",
        "RegisterBrokerRecord",
        "BrokerRegistrationChangeRecord",
        "BrokerRegistrationChangeRecord",
        "BrokerRegistrationChangeRecord",
    ]
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        ".kafka_cleanshutdown",
        ".lock",
        "bootstrap.checkpoint",
        "cleaner-offset-checkpoint",
        "log-start-offset-checkpoint",
        "meta.properties",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    ]


def test_topics_settings_and_records_survive_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            results = await node.controller.create_topics([NewTopic("t", 2, 1, configs={"retention.ms": "77"})])
            topic_id = results[0].topic_id
            produce(node, "t", 1, b"a", b"b")
        async with running(tmp_path) as node:
            topic = node.controller.image.topics["t"]
            assert topic.topic_id == topic_id
            assert node.controller.image.topic_configs("t") == {"retention.ms": "77"}
            assert consume(node, "t", 1) == [b"a", b"b"]
            assert topic.partitions[1].leader_epoch == 2  # left at the stop, led again at the start
            handle = node.replicas.find("t", 1)
            assert handle is not None
            assert (handle.is_leader, handle.leader_epoch, handle.high_watermark) == (True, 2, 2)
            produce(node, "t", 1, b"c")
            assert consume(node, "t", 1) == [b"a", b"b", b"c"]

    asyncio.run(scenario())


def test_what_was_answered_survives_a_stop_without_goodbye(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await start(tmp_path)
        await node.controller.create_topics([NewTopic("t", 1, 1)])
        block = await node.controller.allocate_producer_ids()
        produce(node, "t", 0, b"a")
        node.log_dirs.release()  # the process is gone; nothing is closed or marked
        async with running(tmp_path) as again:
            assert list(again.controller.image.topics) == ["t"]
            assert consume(again, "t", 0) == [b"a"]
            handle = again.replicas.find("t", 0)
            assert handle is not None
            assert handle.high_watermark == 1
            assert (await again.controller.allocate_producer_ids()).first == block.first + block.count

    asyncio.run(scenario())


def test_requests_made_together_are_decided_one_after_the_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            create = node.controller.create_topics
            answers = await asyncio.gather(*(create([NewTopic("same", 1, 1)]) for _ in range(5)))
            assert sorted(answer[0].error_code for answer in answers) == [0, 36, 36, 36, 36]
            blocks = await asyncio.gather(*(node.controller.allocate_producer_ids() for _ in range(3)))
            assert sorted(block.first for block in blocks) == [0, 1000, 2000]

    asyncio.run(scenario())


def test_validating_creates_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            before = node.controller.image.copy()
            results = await node.controller.create_topics([NewTopic("t", 3, 1)], validate_only=True)
            assert (results[0].error_code, results[0].num_partitions) == (0, 3)
            assert results[0].topic_id != bytes(16)
            assert node.controller.image.topics == before.topics == {}

    asyncio.run(scenario())


def test_a_deleted_topics_directory_is_renamed_then_gone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            await node.controller.create_topics([NewTopic("t", 1, 1)])
            produce(node, "t", 0, b"old")
            handle = node.replicas.find("t", 0)
            await node.controller.delete_topics(["t"])
            assert node.replicas.find("t", 0) is None
            assert handle is not None
            assert handle.produce(build_batch([Record(value=b"x")])).error == 3
            names = [path.name for path in tmp_path.iterdir()]
            assert any(name.startswith("t-0.") and name.endswith("-delete") for name in names)
            await node.controller.create_topics([NewTopic("t", 1, 1)])
            assert consume(node, "t", 0) == []
        async with running(tmp_path):
            assert not list(tmp_path.glob("*-delete"))

    asyncio.run(scenario())


def test_a_deleted_topics_files_go_after_the_delay(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, log_segment_delete_delay_ms=0) as node:
            await node.controller.create_topics([NewTopic("t", 1, 1)])
            await node.controller.delete_topics(["t"])
            while list(tmp_path.glob("*-delete")):
                await asyncio.sleep(0.005)

    asyncio.run(scenario())


def test_a_partition_no_topic_owns_is_set_aside(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            await node.controller.create_topics([NewTopic("t", 1, 1)])
        (tmp_path / "t-0").rename(tmp_path / "lost-7")
        async with running(tmp_path) as node:
            assert [path.name.split(".")[0] for path in node.strays.moved] == ["lost-7"]
            assert (tmp_path / "t-0").is_dir()

    asyncio.run(scenario())


@pytest.mark.parametrize("snapshots", [False, True])
def test_what_a_kill_left_of_a_deleted_topic_is_removed(tmp_path: Path, snapshots: bool) -> None:
    """As it was before the directory got its new name, and as earlier versions, or Apache, have set it aside."""

    async def scenario() -> None:
        often = {"metadata.log.max.record.bytes.between.snapshots": 1} if snapshots else {}
        async with running(tmp_path, **often) as node:
            await node.controller.create_topics([NewTopic("gone", 2, 1), NewTopic("lost", 2, 1)])
            for partition in range(2):
                shutil.copytree(tmp_path / f"gone-{partition}", tmp_path / "copies" / f"gone-{partition}")
                shutil.copytree(tmp_path / f"lost-{partition}", tmp_path / "copies" / f"lost-{partition}")
            await node.controller.delete_topics(["gone"])
            await node.controller.create_topics([NewTopic("gone", 1, 1)])
        copies = tmp_path / "copies"
        shutil.rmtree(tmp_path / "gone-0")
        (copies / "gone-0").rename(tmp_path / "gone-0")
        (copies / "gone-1").rename(tmp_path / f"gone-1.{'0' * 32}-stray")
        (copies / "lost-0").rename(tmp_path / f"lost-0.{'0' * 32}-stray")
        (copies / "lost-1").rename(tmp_path / "lost-7")
        copies.rmdir()
        for turn in range(2):
            async with running(tmp_path) as node:
                assert consume(node, "gone", 0) == []
                removed, moved, kept = (sorted(path.name for path in paths) for paths in _of(node))
                assert removed == (["gone-0", f"gone-1.{'0' * 32}-stray"] if turn == 0 else [])
                assert [name.split(".")[0] for name in moved] == (["lost-7"] if turn == 0 else [])
                assert [name.split(".")[0] for name in kept] == (["lost-0"] if turn == 0 else ["lost-0", "lost-7"])
                left = {path.name.split(".")[0] for path in tmp_path.glob("*.*-*")}
                assert left == {"lost-0", "lost-7"}

    asyncio.run(scenario())


def _of(node: Node) -> tuple[list[Path], list[Path], list[Path]]:
    return node.strays.removed, node.strays.moved, node.strays.kept


def test_a_second_broker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path):
            with pytest.raises(DataDirectoryError, match="is in use by another broker"):
                await start(tmp_path)
            with pytest.raises(DataDirectoryError, match="is in use by another broker"):
                await start(tmp_path)  # the first refusal did not unlock it

    asyncio.run(scenario())


def test_several_directories_share_the_partitions_and_the_cluster_knows_where_they_are(tmp_path: Path) -> None:
    async def scenario() -> None:
        one, two = tmp_path / "one", tmp_path / "two"
        async with running(one, two) as node:
            await node.controller.create_topics([NewTopic("t", 4, 1)])
            assert len(list(one.glob("t-*"))) == len(list(two.glob("t-*"))) == 2
            while any(bytes(16) in part.directories for _, _, part in node.controller.image.partitions()):
                await asyncio.sleep(0.001)
            found = {directory for _, _, part in node.controller.image.partitions() for directory in part.directories}
            assert found == set(node.log_dirs.directory_ids)
        async with running(one, two) as node:
            assert len(list(one.glob("t-*"))) == len(list(two.glob("t-*"))) == 2

    asyncio.run(scenario())


def test_a_snapshot_is_written_and_read_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, **{"metadata.log.max.record.bytes.between.snapshots": 1}) as node:
            await node.controller.create_topics([NewTopic("t", 2, 1, configs={"retention.ms": "9"})])
            await node.controller.allocate_producer_ids()
            await node.controller.create_topics([NewTopic("u", 1, 1)])
        log = tmp_path / "__cluster_metadata-0"
        assert find_snapshots(log)
        async with running(tmp_path) as node:
            image = node.controller.image
            assert sorted(image.topics) == ["t", "u"]
            assert image.topic_configs("t") == {"retention.ms": "9"}
            assert image.next_producer_id == 1000
            assert all(part.leader == 1 for _, _, part in image.partitions())

    asyncio.run(scenario())


def test_a_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path):
            pass
        with pytest.raises(DataDirectoryError, match=r"belongs to node 1, but this broker's node.id is 2"):
            await start(tmp_path, node_id=2)

    asyncio.run(scenario())


def test_a_torn_tail_of_the_metadata_log_is_cut(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            await node.controller.create_topics([NewTopic("t", 1, 1)])
        log = tmp_path / "__cluster_metadata-0" / f"{0:020d}.log"
        with log.open("ab") as file:
            file.write(b"\x00" * 30)
        (tmp_path / ".kafka_cleanshutdown").unlink()  # as if the stop had been a crash
        async with running(tmp_path) as node:
            assert list(node.controller.image.topics) == ["t"]
            (repair,) = node.controller.repairs
            assert "30 bytes from offset" in repair

    asyncio.run(scenario())


def formatted_with_voters(directory: Path, *voter_ids: int) -> None:
    """What `kafka-storage format --standalone` leaves: a snapshot at offset 0 that names the voters (KIP-853)."""
    log = directory / "__cluster_metadata-0"
    log.mkdir(parents=True)
    write_meta(directory, MetaProperties("AAAAAAAAAAAAAAAAAAAAAg", 1, b"\x07" * 16))
    write_bootstrap(directory, 0)
    voters = [VotersRecord.Voter(voter_id=one, voter_directory_id=b"\x07" * 16) for one in voter_ids]
    membership = Membership(1, VotersRecord(voters=voters))
    write_snapshot(log / SnapshotId(0, 0).file_name, [], membership, epoch=0, last_timestamp=0, now_ms=0)


def test_a_directory_of_dynamic_voters_is_led_in_their_format(tmp_path: Path) -> None:
    formatted_with_voters(tmp_path, 1)

    async def scenario() -> None:
        async with running(tmp_path, **{"metadata.log.max.record.bytes.between.snapshots": 1}) as node:
            await node.controller.create_topics([NewTopic("t", 1, 1)])
        async with running(tmp_path) as node:
            assert list(node.controller.image.topics) == ["t"]

    asyncio.run(scenario())
    log = tmp_path / "__cluster_metadata-0"
    assert '"data_version":1' in (log / "quorum-state").read_text()
    found = Membership()
    read_snapshot(log / find_snapshots(log)[-1].file_name, found)
    assert found.voter_ids == [1]


def test_a_directory_of_several_voters_is_refused(tmp_path: Path) -> None:
    formatted_with_voters(tmp_path, 1, 2, 3)
    with pytest.raises(DataDirectoryError, match="belongs to a quorum of the nodes 1, 2, 3"):
        asyncio.run(start(tmp_path))


def test_one_replica_that_cannot_be_opened_does_not_stop_the_others(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            await node.controller.create_topics([NewTopic("t", 2, 1)])
        shutil.rmtree(tmp_path / "t-0")
        (tmp_path / "t-0").touch()
        async with running(tmp_path) as node:
            produce(node, "t", 1, b"a")
            handle = node.replicas.find("t", 0)
            assert handle is not None
            assert handle.produce(build_batch([Record(value=b"x")])).error == 56
            assert node.replicas.is_local("t", 0)

    asyncio.run(scenario())


def test_a_metadata_log_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path):
            pass
        (tmp_path / "__cluster_metadata-0" / "quorum-state").write_text("{")
        with pytest.raises(DataDirectoryError, match="cannot be used"):
            await start(tmp_path)

    asyncio.run(scenario())


def test_the_metadata_log_may_lie_in_another_of_the_directories(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"

    async def scenario() -> None:
        for _ in range(2):
            async with running(one, two, **{"metadata.log.dir": str(two)}):
                assert (two / "__cluster_metadata-0").is_dir()
                assert (two / "bootstrap.checkpoint").is_file()
                assert not (one / "__cluster_metadata-0").exists()

    asyncio.run(scenario())


def test_a_decision_that_breaks_fails_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            with pytest.raises(ZeroDivisionError):
                await node.controller.submit(lambda image, next_offset: ([], next_offset // 0))
            assert (await node.controller.create_topics([NewTopic("t", 1, 1)]))[0].error_code == 0

    asyncio.run(scenario())


def test_a_metadata_log_that_cannot_be_written_fails_everything_from_then_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = await start(tmp_path)
        node.controller._log.close()  # as a disk that went away
        with pytest.raises(KafkaStorageError):
            await node.controller.create_topics([NewTopic("t", 1, 1)])
        with pytest.raises(KafkaStorageError):
            await node.controller.create_topics([NewTopic("u", 1, 1)])
        assert node.controller.failure is not None
        assert node.controller.image.topics == {}
        await node.stop()

    asyncio.run(scenario())
