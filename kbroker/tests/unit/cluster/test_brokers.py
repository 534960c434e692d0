import pytest

from kbroker.cluster.brokers import (
    Registration,
    assign_directories,
    begin_controlled_shutdown,
    fence,
    leave,
    lose_directory,
    register_broker,
    unfence,
)
from kbroker.cluster.image import ClusterImage, Endpoint
from kbroker.cluster.topics import NewTopic
from kbroker.errors import DuplicateBrokerRegistrationError, InconsistentClusterIdError
from kbroker.protocol.records import BrokerRegistrationChangeRecord, PartitionChangeRecord, RegisterBrokerRecord
from kbroker.tests.unit.cluster.given import cluster, uuid_of, with_topics


def registration(incarnation: int = 7, previous: int = -1) -> Registration:
    endpoints = [Endpoint("PLAINTEXT", "127.0.0.1", 9092, 0)]
    features = {"metadata.version": (7, 30)}
    return Registration(1, uuid_of(incarnation), endpoints, features, None, [uuid_of(201)], "cluster", previous)


def apply(image: ClusterImage, records: list) -> None:  # type: ignore[type-arg]
    for record in records:
        image.apply(record)


def test_a_brokers_epoch_is_the_offset_of_its_registration() -> None:
    records, epoch = register_broker(ClusterImage(), registration(), 11, "cluster")
    assert epoch == 11
    assert isinstance(records[0], RegisterBrokerRecord)
    assert (records[0].broker_epoch, records[0].fenced, records[0].end_points[0].port) == (11, True, 9092)


def test_a_new_incarnation_loses_its_leaderships_first() -> None:
    image = with_topics(cluster(1), NewTopic("t", 2, 1))
    records, epoch = register_broker(image, registration(), 50, "cluster")
    assert [type(record) for record in records] == [PartitionChangeRecord, PartitionChangeRecord, RegisterBrokerRecord]
    assert epoch == 52
    apply(image, records)
    assert [partition.leader for _, _, partition in image.partitions()] == [-1, -1]
    assert image.brokers[1].fenced


def test_an_unfenced_broker_leads_again_in_a_new_epoch() -> None:
    image = with_topics(cluster(1), NewTopic("t", 1, 1))
    records, epoch = register_broker(image, registration(), 50, "cluster")
    apply(image, records)
    apply(image, unfence(image, 1, epoch))
    partition = image.topics["t"].partitions[0]
    assert (partition.leader, partition.leader_epoch, partition.isr) == (1, 2, (1,))
    assert image.brokers[1].active


def test_a_second_live_broker_with_the_same_id_is_refused() -> None:
    with pytest.raises(DuplicateBrokerRegistrationError):
        register_broker(cluster(1), registration(), 50, "cluster", alive=True)


def test_a_broker_of_another_cluster_is_refused() -> None:
    with pytest.raises(InconsistentClusterIdError):
        register_broker(cluster(1), registration(), 50, "other")


def test_a_controlled_stop_hands_leadership_to_the_next_in_sync_replica() -> None:
    image = with_topics(cluster(1, 2), NewTopic("t", assignments=[(0, [1, 2]), (1, [2, 1])]))
    records = begin_controlled_shutdown(image, 1, 11)
    assert records == [
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=11, in_controlled_shutdown=1),
        PartitionChangeRecord(partition_id=0, topic_id=uuid_of(1), leader=2, isr=[2]),
        PartitionChangeRecord(partition_id=1, topic_id=uuid_of(1), isr=[2]),
    ]
    apply(image, records)
    apply(image, fence(1, 11))
    assert not image.brokers[1].active


def test_the_last_in_sync_replica_stays_in_sync_without_leading() -> None:
    image = with_topics(cluster(1), NewTopic("t", 1, 1))
    assert leave(image, 1, clean=True) == [PartitionChangeRecord(partition_id=0, topic_id=uuid_of(1), leader=-1)]


def test_with_eligible_leader_replicas_the_last_one_moves_there_as_apache_does() -> None:
    image = with_topics(cluster(1, elr=True), NewTopic("t", 1, 1))
    gone = leave(image, 1, clean=True)
    assert gone == [
        PartitionChangeRecord(
            partition_id=0, topic_id=uuid_of(1), leader=-1, isr=[], eligible_leader_replicas=[1], last_known_elr=[1]
        )
    ]
    apply(image, gone)
    back = unfence(image, 1, 11)[1:]
    assert back == [
        PartitionChangeRecord(
            partition_id=0, topic_id=uuid_of(1), leader=1, isr=[1], eligible_leader_replicas=[], last_known_elr=[]
        )
    ]


def test_after_an_unclean_stop_the_last_known_leader_may_lead_when_nobody_else_can() -> None:
    image = with_topics(cluster(1, elr=True), NewTopic("t", 1, 1))
    apply(image, leave(image, 1, clean=False))
    assert image.topics["t"].partitions[0].elr == ()
    apply(image, unfence(image, 1, 11))
    assert image.topics["t"].partitions[0].leader == 1


def test_what_is_left_already_is_not_left_again() -> None:
    image = with_topics(cluster(1), NewTopic("t", 1, 1))
    apply(image, leave(image, 1, clean=True))
    assert leave(image, 1, clean=True) == []


def test_a_lost_directory_costs_its_partitions_their_leader_until_it_is_registered_again() -> None:
    first, second = uuid_of(301), uuid_of(302)
    image = with_topics(cluster(1, log_dirs={1: [first, second]}), NewTopic("t", 3, 1))
    topic = image.topics["t"]
    apply(image, assign_directories(image, 1, {(topic.topic_id, 0): first, (topic.topic_id, 1): second}))
    apply(image, lose_directory(image, 1, 11, second, [("t", 2)]))  # of the third nobody had told the directory
    assert image.brokers[1].log_dirs == (first,)
    assert [topic.partitions[index].leader for index in range(3)] == [1, -1, -1]
    assert [topic.partitions[index].isr for index in range(3)] == [(1,)] * 3
    assert topic.partitions[2].directory_of(1) == second
    assert lose_directory(image, 1, 11, second, []) == []
    apply(image, unfence(image, 1, 11))
    assert [topic.partitions[index].leader for index in range(3)] == [1, -1, -1]  # it is still not there
    image.brokers[1] = image.brokers[1]._replace(log_dirs=(first, second))
    apply(image, unfence(image, 1, 11))
    assert [topic.partitions[index].leader for index in range(3)] == [1, 1, 1]


def test_a_lost_directory_gives_the_lead_to_a_replica_elsewhere() -> None:
    image = with_topics(cluster(1, 2), NewTopic("t", 1, 2))
    leader = image.topics["t"].partitions[0].leader
    apply(image, lose_directory(image, leader, 10 + leader, uuid_of(200 + leader), []))
    partition = image.topics["t"].partitions[0]
    assert (partition.leader, partition.isr) == (3 - leader, (3 - leader,))
