from pathlib import Path

import pytest

from kbroker.cluster.image import ClusterImage
from kbroker.cluster.topics import NewTopic
from kbroker.protocol.records import AccessControlEntryRecord, ProducerIdsRecord, VotersRecord
from kbroker.quorum.frames import BrokenMetadataError, Membership
from kbroker.quorum.snapshot import (
    SnapshotId,
    find_snapshots,
    image_records,
    read_snapshot,
    write_bootstrap,
    write_snapshot,
)
from kbroker.tests.unit.cluster.given import cluster, uuid_of, with_topics

# bootstrap.checkpoint as `kafka-storage format` of 4.3.1 wrote it, with metadata.version alone.
BOOTSTRAP = bytes.fromhex(
    "0000000000000000000000470000000002"
    "6e0d3c26002000000000000001a1e274f04c000001a1e274f04cffffffffffffffffffffffffffff000000012a000000080000000316"
    "0000000000000000000000"
)


def image_with_everything() -> ClusterImage:
    image = with_topics(
        cluster(1, 2, elr=True), NewTopic("t", 3, 2, configs={"retention.ms": "5"}), NewTopic("u", 1, 1)
    )
    image.apply(ProducerIdsRecord(broker_id=1, broker_epoch=11, next_producer_id=4000))
    image.apply(AccessControlEntryRecord(id=uuid_of(9), principal="User:a"))
    return image


def test_an_image_comes_back_from_its_snapshot(tmp_path: Path) -> None:
    image = image_with_everything()
    path = tmp_path / SnapshotId(77, 3).file_name
    write_snapshot(path, image_records(image), Membership(), epoch=3, last_timestamp=5, now_ms=6)
    again = ClusterImage()
    for record in read_snapshot(path):
        again.apply(record)
    assert again.features == image.features
    assert again.brokers == image.brokers
    assert again.topics == image.topics
    assert again.configs == image.configs
    assert again.next_producer_id == 4000
    assert again.others == image.others


def test_the_header_of_a_snapshot_is_apaches_to_the_byte(tmp_path: Path) -> None:
    write_bootstrap(tmp_path, 0x1A1E274F04C)
    assert (tmp_path / "bootstrap.checkpoint").read_bytes()[: len(BOOTSTRAP)] == BOOTSTRAP


def test_snapshots_are_found_by_their_names_oldest_first(tmp_path: Path) -> None:
    for name in (
        "00000000000000000100-0000000002.checkpoint",
        "00000000000000000009-0000000001.checkpoint",
        "00000000000000000200-0000000002.checkpoint.part",
        "bootstrap.checkpoint",
    ):
        (tmp_path / name).touch()
    assert find_snapshots(tmp_path) == [SnapshotId(9, 1), SnapshotId(100, 2)]


def test_a_snapshot_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.checkpoint"
    write_snapshot(path, image_records(cluster(1)), Membership(), epoch=1, last_timestamp=0, now_ms=0)
    whole = path.read_bytes()
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        with pytest.raises(BrokenMetadataError):
            read_snapshot(path)


def test_dynamic_voters_travel_with_the_snapshot(tmp_path: Path) -> None:
    voters = VotersRecord(voters=[VotersRecord.Voter(voter_id=1, voter_directory_id=uuid_of(5))])
    path = tmp_path / "x.checkpoint"
    write_snapshot(path, [], Membership(1, voters), epoch=1, last_timestamp=0, now_ms=0)
    found = Membership()
    read_snapshot(path, found)
    assert found.is_dynamic
    assert found.voter_ids == [1]
    assert found.directory_of(1) == uuid_of(5)
    assert found.directory_of(2) == bytes(16)
