"""AlterConfigs and IncrementalAlterConfigs, and what DescribeConfigs tells afterwards."""

from typing import Any

import pytest

from kbroker.protocol.messages import (
    AlterConfigsRequest,
    CreateTopicsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from kbroker.tests.unit.api.desk import Desk

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


def desk_with_topics(*names: str, **settings: object) -> Desk:
    desk = Desk(**settings)
    wanted = [CreateTopicsRequest.CreatableTopic(name=one, num_partitions=1, replication_factor=1) for one in names]
    desk.ask(CreateTopicsRequest(topics=wanted), 7)
    return desk


def change(
    desk: Desk,
    kind: int,
    name: str,
    *changes: tuple[str, int, str | None],
    version: int = 1,
    validate_only: bool = False,
) -> Any:
    setting = IncrementalAlterConfigsRequest.AlterableConfig
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[setting(name=one, config_operation=operation, value=value) for one, operation, value in changes],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (result,) = desk.ask(request, version).responses
    return result


def replace(
    desk: Desk, *resources: tuple[int, str, dict[str, str | None]], version: int = 2, validate_only: bool = False
) -> Any:
    wanted = [
        AlterConfigsRequest.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[AlterConfigsRequest.AlterableConfig(name=one, value=value) for one, value in settings.items()],
        )
        for kind, name, settings in resources
    ]
    return desk.ask(AlterConfigsRequest(resources=wanted, validate_only=validate_only), version).responses


def described(desk: Desk, kind: int, name: str, setting: str) -> tuple[str | None, int, list[tuple[str, str, int]]]:
    """Value, source and synonyms."""
    asked = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=[setting]
    )
    (result,) = desk.ask(DescribeConfigsRequest(resources=[asked], include_synonyms=True), 4).results
    (one,) = result.configs
    return one.value, one.config_source, [(each.name, each.value, each.source) for each in one.synonyms]


@pytest.mark.parametrize("version", range(2))
def test_incremental_alter_configs_of_every_version_changes_a_topic(version: int) -> None:
    desk = desk_with_topics("t")
    result = change(
        desk, TOPIC, "t", ("retention.ms", SET, "5"), ("cleanup.policy", APPEND, "compact"), version=version
    )
    assert (result.error_code, result.error_message) == (0, None)
    assert (result.resource_type, result.resource_name) == (TOPIC, "t")
    assert described(desk, TOPIC, "t", "retention.ms") == ("5", 1, [("retention.ms", "5", 1)])
    assert described(desk, TOPIC, "t", "cleanup.policy")[0] == "delete,compact"
    change(desk, TOPIC, "t", ("retention.ms", DELETE, None), ("cleanup.policy", SUBTRACT, "delete"), version=version)
    assert described(desk, TOPIC, "t", "retention.ms")[:2] == ("604800000", 5)
    assert described(desk, TOPIC, "t", "cleanup.policy")[0] == "compact"


@pytest.mark.parametrize("version", range(3))
def test_alter_configs_of_every_version_replaces_what_was_set(version: int) -> None:
    desk = desk_with_topics("t")
    replace(desk, (TOPIC, "t", {"retention.ms": "5", "segment.ms": "6"}), version=version)
    (result,) = replace(desk, (TOPIC, "t", {"segment.ms": "7"}), version=version)
    assert (result.error_code, result.resource_type, result.resource_name) == (0, TOPIC, "t")
    assert desk.controller.image.topic_configs("t") == {"segment.ms": "7"}


def test_a_request_that_only_validates_changes_nothing() -> None:
    desk = desk_with_topics("t")
    assert change(desk, TOPIC, "t", ("retention.ms", SET, "5"), validate_only=True).error_code == 0
    assert change(desk, TOPIC, "t", ("retention.ms", SET, "x"), validate_only=True).error_code == 40
    assert replace(desk, (TOPIC, "t", {"retention.ms": "5"}), validate_only=True)[0].error_code == 0
    assert desk.controller.image.configs == {}


def test_each_resource_is_answered_by_itself_in_the_order_of_the_request() -> None:
    desk = desk_with_topics("t", "u")
    results = replace(
        desk,
        (TOPIC, "u", {"retention.ms": "x"}),
        (TOPIC, "none", {}),
        (TOPIC, "t", {"retention.ms": "5"}),
        (BROKER, "7", {}),
        (8, "1", {}),
    )
    assert [(one.resource_name, one.error_code) for one in results] == [
        ("u", 40),
        ("none", 3),
        ("t", 0),
        ("7", 42),
        ("1", 42),
    ]
    assert desk.controller.image.configs == {(TOPIC, "t"): {"retention.ms": "5"}}


def test_settings_of_brokers_are_described_where_they_hold_with_their_sources() -> None:
    desk = desk_with_topics("t", log_retention_ms=3)
    change(desk, BROKER, "", ("log.retention.ms", SET, "6"))
    assert described(desk, BROKER, "1", "log.retention.ms")[:2] == ("6", 3)
    change(desk, BROKER, "1", ("log.retention.ms", SET, "5"))
    sources = [
        ("log.retention.ms", "5", 2),
        ("log.retention.ms", "6", 3),
        ("log.retention.ms", "3", 4),
        ("log.retention.hours", "168", 5),
    ]
    assert described(desk, BROKER, "1", "log.retention.ms") == ("5", 2, sources)
    assert described(desk, BROKER, "", "log.retention.ms") == ("6", 3, [("log.retention.ms", "6", 3)])
    assert described(desk, TOPIC, "t", "retention.ms") == ("5", 2, sources)
    change(desk, TOPIC, "t", ("retention.ms", SET, "4"))
    assert described(desk, TOPIC, "t", "retention.ms") == ("4", 1, [("retention.ms", "4", 1), *sources])
    change(desk, BROKER, "1", ("log.retention.ms", DELETE, None))
    assert described(desk, BROKER, "1", "log.retention.ms")[:2] == ("6", 3)


def test_a_new_topic_is_checked_against_what_brokers_were_told() -> None:
    desk = desk_with_topics()
    change(desk, BROKER, "", ("compression.type", SET, "zstd"))
    wanted = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    (made,) = desk.ask(CreateTopicsRequest(topics=[wanted]), 7).topics
    assert {one.name: (one.value, one.config_source) for one in made.configs}["compression.type"] == ("zstd", 3)


def test_a_request_of_too_many_changes_fails_whole() -> None:
    topics = [f"t{number}" for number in range(400)]
    desk = desk_with_topics(*topics)
    settings = {one.name: one.value for one in desk.config.describe_topic({}) if one.value is not None}
    assert len(settings) * len(topics) > 10_000
    assert {one.error_code for one in replace(desk, *((TOPIC, name, settings) for name in topics))} == {44}
    assert desk.controller.image.configs == {}
    assert {one.error_code for one in replace(desk, *((TOPIC, name, settings) for name in topics[:200]))} == {0}
