"""DescribeCluster, DescribeConfigs, FindCoordinator, InitProducerId, SASL on a plaintext listener."""

from typing import Any

import pytest

from kbroker.protocol.messages import (
    CreateTopicsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from kbroker.tests.unit.api.desk import Desk, FakeGroups, registration

TOPIC, BROKER = 2, 4


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster_names_brokers_and_the_cluster(version: int) -> None:
    answer = Desk().ask(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, "a-cluster-id", 1)
    assert [(one.broker_id, one.host, one.port) for one in answer.brokers] == [(1, "broker.example", 9092)]
    assert answer.cluster_authorized_operations == 8096


def test_describe_cluster_shows_fenced_brokers_only_on_request() -> None:
    desk = Desk()
    desk.controller.apply([registration(2, fenced=True)])
    assert [one.broker_id for one in desk.ask(DescribeClusterRequest(), 2).brokers] == [1]
    answer = desk.ask(DescribeClusterRequest(include_fenced_brokers=True), 2)
    assert [(one.broker_id, one.is_fenced) for one in answer.brokers] == [(1, False), (2, True)]


@pytest.mark.parametrize(("kind", "error"), [(2, 114), (3, 115)])
def test_describe_cluster_knows_only_brokers(kind: int, error: int) -> None:
    assert Desk().ask(DescribeClusterRequest(endpoint_type=kind), 2).error_code == error


def describe_configs(desk: Desk, kind: int, name: str, *keys: str, version: int = 4, **more: Any) -> Any:
    asked = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    (result,) = desk.ask(DescribeConfigsRequest(resources=[asked], **more), version).results
    return result


def desk_with_topic() -> Desk:
    desk = Desk()
    setting = CreateTopicsRequest.CreatableTopicConfig(name="retention.ms", value="1000")
    wanted = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=[setting])
    desk.ask(CreateTopicsRequest(topics=[wanted]), 7)
    return desk


def test_describe_configs_answers_what_is_asked_again_once() -> None:
    desk = desk_with_topic()
    asked = DescribeConfigsRequest.DescribeConfigsResource(resource_type=TOPIC, resource_name="t")
    part = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC, resource_name="t", configuration_keys=["cleanup.policy"]
    )
    unknown = DescribeConfigsRequest.DescribeConfigsResource(resource_type=TOPIC, resource_name="unknown")
    results = desk.ask(DescribeConfigsRequest(resources=[asked, part, unknown] * 1_000), 4).results
    assert [(one.error_code, one.resource_name) for one in results] == [(0, "t"), (0, "t"), (3, "unknown")]
    assert len(results[0].configs) > len(results[1].configs) == 1


@pytest.mark.parametrize("kind", [TOPIC, BROKER])
@pytest.mark.parametrize("name", ["x" * 32_767, "\\" * 32_767])
def test_describe_configs_of_an_endless_name_is_refused_with_its_own_error(kind: int, name: str) -> None:
    result = describe_configs(Desk(), kind, name)
    assert result.error_code == (17 if kind == TOPIC else 42)


@pytest.mark.parametrize("version", range(1, 5))
def test_describe_configs_of_a_topic_tells_value_source_and_type(version: int) -> None:
    result = describe_configs(desk_with_topic(), TOPIC, "t", version=version)
    settings = {one.name: one for one in result.configs}
    assert (result.error_code, result.error_message) == (0, "")
    assert (settings["retention.ms"].value, settings["retention.ms"].config_source) == ("1000", 1)
    assert (settings["cleanup.policy"].value, settings["cleanup.policy"].config_source) == ("delete", 5)
    if version >= 3:
        assert (settings["retention.ms"].config_type, settings["cleanup.policy"].config_type) == (5, 7)


def test_describe_configs_adds_synonyms_on_request_in_order_of_precedence() -> None:
    desk = desk_with_topic()
    assert describe_configs(desk, TOPIC, "t", "retention.ms").configs[0].synonyms == []
    (one,) = describe_configs(desk, TOPIC, "t", "cleanup.policy", include_synonyms=True).configs
    assert [(each.name, each.value, each.source) for each in one.synonyms] == [("log.cleanup.policy", "delete", 5)]


def test_describe_configs_gives_only_the_keys_asked_for() -> None:
    result = describe_configs(desk_with_topic(), TOPIC, "t", "retention.ms", "no.such.setting")
    assert [one.name for one in result.configs] == ["retention.ms"]


def test_describe_configs_of_this_broker_tells_what_was_given_and_what_is_read_only() -> None:
    result = describe_configs(Desk(num_partitions=7), BROKER, "1", "num.partitions")
    assert [(one.value, one.config_source, one.read_only) for one in result.configs] == [("7", 4, True)]


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [(TOPIC, "nope", 3), (TOPIC, "b ad", 17), (BROKER, "5", 42), (BROKER, "x", 42), (99, "x", 42), (BROKER, "", 0)],
)
def test_describe_configs_refuses_what_it_cannot_know(kind: int, name: str, error: int) -> None:
    assert describe_configs(Desk(), kind, name).error_code == error


@pytest.mark.parametrize("version", range(1, 4))
def test_the_first_transactional_id_makes_the_topic_of_transactions(version: int) -> None:
    desk = Desk()
    answer = desk.ask(FindCoordinatorRequest(key="tx", key_type=1), version)
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 1, "broker.example", 9092)
    topic = desk.rooms.image.topics["__transaction_state"]
    assert {len(topic.partitions), *(len(one.replicas) for one in topic.partitions.values())} == {50, 1}
    configs = desk.rooms.image.topic_configs("__transaction_state")
    assert configs["cleanup.policy"] == "compact"
    assert configs["min.insync.replicas"] == "1"


@pytest.mark.parametrize("asked", [1, 1 << 20, 1 << 21])
@pytest.mark.parametrize(
    ("kind", "topic", "setting"),
    [(0, "__consumer_offsets", "offsets_topic"), (1, "__transaction_state", "transaction_state_log")],
)
def test_an_internal_topic_has_segments_as_asked_but_no_smaller_than_a_topic_may(
    kind: int, topic: str, setting: str, asked: int
) -> None:
    desk = Desk(**{f"{setting}_segment_bytes": asked})
    desk.ask(FindCoordinatorRequest(key="a", key_type=kind), 3)
    assert desk.rooms.image.topic_configs(topic)["segment.bytes"] == str(max(asked, 1 << 20))


@pytest.mark.parametrize("version", range(4, 7))
def test_find_coordinator_answers_every_key(version: int) -> None:
    answer = Desk().ask(FindCoordinatorRequest(coordinator_keys=["g", "h"], key_type=1), version)
    assert [(one.key, one.error_code, one.node_id) for one in answer.coordinators] == [("g", 0, 1), ("h", 0, 1)]


def test_the_coordinator_of_a_group_hears_who_asked_for_it() -> None:
    groups = FakeGroups()
    desk = Desk(groups)
    desk.ask(FindCoordinatorRequest(key="g", key_type=0), 3)
    desk.ask(FindCoordinatorRequest(coordinator_keys=["h", "i"], key_type=0), 4)
    desk.ask(FindCoordinatorRequest(key="tx", key_type=1), 3)
    assert [group for group, _ in groups.sought] == ["g", "h", "i"]
    assert {who.rpartition(":")[0] for _, who in groups.sought} == {"127.0.0.1"}


def test_find_coordinator_refuses_unknown_key_types_and_malformed_share_keys() -> None:
    desk = Desk()
    assert desk.ask(FindCoordinatorRequest(key="g", key_type=9), 3).error_code == 42
    asked = FindCoordinatorRequest(coordinator_keys=["g", "g:AAAAAAAAAAAAAAAAAAAAAA:0"], key_type=2)
    assert [one.error_code for one in desk.ask(asked, 6).coordinators] == [42, 15]


@pytest.mark.parametrize("version", range(6))
def test_each_idempotent_producer_gets_an_id_of_its_own(version: int) -> None:
    desk = Desk()
    answers = [desk.ask(InitProducerIdRequest(transactional_id=None), version) for _ in range(2)]
    assert [(one.error_code, one.producer_epoch) for one in answers] == [(0, 0), (0, 0)]
    assert answers[0].producer_id != answers[1].producer_id


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (InitProducerIdRequest(transactional_id=""), 42),
        (InitProducerIdRequest(transactional_id=None, producer_id=5), 42),
        (InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000), 16),
    ],
)
def test_init_producer_id_refuses(request_: InitProducerIdRequest, error: int) -> None:
    answer = Desk().ask(request_, 4)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (error, -1, -1)


def test_sasl_on_a_plaintext_listener_is_an_illegal_state() -> None:
    desk = Desk()
    for version in range(2):
        assert desk.ask(SaslHandshakeRequest(mechanism="PLAIN"), version).error_code == 34
    for version in range(3):
        assert desk.ask(SaslAuthenticateRequest(auth_bytes=b"x"), version).error_code == 34
