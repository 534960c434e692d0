import pytest

from kbroker.cluster import producer_ids
from kbroker.cluster.delta import Delta
from kbroker.cluster.features import raise_levels, unreadable_levels
from kbroker.cluster.image import ClusterImage
from kbroker.cluster.topics import NewTopic
from kbroker.errors import StaleBrokerEpochError
from kbroker.protocol.records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kbroker.tests.unit.cluster.given import cluster, uuid_of, with_topics


def test_a_change_of_leader_raises_both_epochs_and_any_other_only_the_partitions() -> None:
    image = with_topics(cluster(1, 2), NewTopic("t", assignments=[(0, [1, 2])]))
    topic_id = image.topics["t"].topic_id
    image.apply(PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[1]))
    partition = image.topics["t"].partitions[0]
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch, partition.isr) == (1, 0, 1, (1,))
    image.apply(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=2))
    partition = image.topics["t"].partitions[0]
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch, partition.isr) == (2, 1, 2, (1,))


def test_a_removed_topic_takes_its_settings_along() -> None:
    image = with_topics(cluster(1), NewTopic("t", 1, 1, configs={"retention.ms": "5"}))
    delta = Delta()
    image.apply(RemoveTopicRecord(topic_id=uuid_of(1)), delta)
    assert image.topics == {}
    assert image.topics_by_id == {}
    assert image.topic_configs("t") == {}
    assert delta.deleted_topics == {uuid_of(1): "t"}


def test_records_of_a_transaction_take_effect_at_its_end() -> None:
    image = ClusterImage()
    image.apply(BeginTransactionRecord(name="x"))
    image.apply(FeatureLevelRecord(name="metadata.version", feature_level=30))
    assert image.in_transaction
    assert image.features == {}
    image.apply(EndTransactionRecord())
    assert image.features == {"metadata.version": 30}


def test_an_aborted_transaction_leaves_nothing() -> None:
    image = ClusterImage()
    image.apply(BeginTransactionRecord())
    image.apply(TopicRecord(name="t", topic_id=uuid_of(1)))
    image.apply(AbortTransactionRecord())
    assert image.topics == {}
    assert not image.in_transaction


def test_a_null_setting_is_a_removed_one() -> None:
    image = cluster(1)
    image.apply(ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="1"))
    assert image.broker_configs(None) == {"min.insync.replicas": "1"}
    image.apply(ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value=None))
    assert image.broker_configs(None) == {}


def test_what_other_rooms_will_read_is_kept() -> None:
    image = cluster(1)
    image.apply(AccessControlEntryRecord(id=uuid_of(7), principal="User:a"))
    image.apply(NoOpRecord())
    assert len(image.others) == 1
    image.apply(RemoveAccessControlEntryRecord(id=uuid_of(7)))
    assert image.others == {}


def test_a_copy_goes_its_own_way() -> None:
    image = with_topics(cluster(1), NewTopic("t", 1, 1))
    twin = image.copy()
    twin.apply(PartitionChangeRecord(partition_id=0, topic_id=uuid_of(1), leader=-1))
    twin.apply(ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1"))
    assert image.topics["t"].partitions[0].leader == 1
    assert image.topic_configs("t") == {}


def test_producer_ids_are_handed_out_in_blocks_of_a_thousand() -> None:
    image = cluster(1)
    blocks = []
    for _ in range(3):
        records, block = producer_ids.allocate(image, 1, 11)
        blocks.append((block.first, block.count))
        for record in records:
            image.apply(record)
    assert blocks == [(0, 1000), (1000, 1000), (2000, 1000)]
    with pytest.raises(StaleBrokerEpochError):
        producer_ids.allocate(image, 1, 10)


def test_an_older_directory_is_raised_and_nothing_is_lowered() -> None:
    image = ClusterImage()
    image.apply(FeatureLevelRecord(name="metadata.version", feature_level=20))
    image.apply(FeatureLevelRecord(name="group.version", feature_level=1))
    assert raise_levels(image) == [
        FeatureLevelRecord(name="metadata.version", feature_level=30),
        FeatureLevelRecord(name="transaction.version", feature_level=2),
    ]
    image.apply(FeatureLevelRecord(name="transaction.version", feature_level=2))
    assert unreadable_levels(image) == []
    image.apply(FeatureLevelRecord(name="metadata.version", feature_level=31))
    assert raise_levels(image) == []
    assert unreadable_levels(image) == ["metadata.version 31"]
