"""Settings of one group: within the broker's bounds, and only those that exist."""

from __future__ import annotations

import pytest

from kbroker.cluster.configs import Alteration, Change, alter_configs
from kbroker.cluster.image import GROUP_RESOURCE, ClusterImage
from kbroker.config import Config
from kbroker.coordinator.group.consumer_settings import ConsumerSettings
from kbroker.errors import InvalidConfigError, InvalidRequestError


def _altered(image: ClusterImage, config: Config, group: str = "g", **given: str) -> int:
    changes = [Change(name.replace("_", "."), value) for name, value in given.items()]
    decision = alter_configs(image, [Alteration(GROUP_RESOURCE, group, changes)], config)
    for record in decision.records:
        image.apply(record)
    return decision.results[0].error_code


def test_what_a_group_is_given_holds_for_it_alone() -> None:
    image, config = ClusterImage(), Config({})
    assert _altered(image, config, consumer_session_timeout_ms="50000") == 0
    given = ConsumerSettings.of(config.broker_value, image.configs[GROUP_RESOURCE, "g"])
    assert (given.session_timeout_ms, given.heartbeat_interval_ms) == (50_000, 5_000)
    assert ConsumerSettings.of(config.broker_value, {}).session_timeout_ms == 45_000


def test_bounds_that_moved_since_hold_all_the_same() -> None:
    config = Config({"group.consumer.max.session.timeout.ms": "46000"})
    assert (
        ConsumerSettings.of(config.broker_value, {"consumer.session.timeout.ms": "60000"}).session_timeout_ms == 46_000
    )


@pytest.mark.parametrize(
    "given",
    [
        {"consumer_session_timeout_ms": "44999"},
        {"consumer_session_timeout_ms": "60001"},
        {"consumer_heartbeat_interval_ms": "1"},
        {"consumer_session_timeout_ms": "soon"},
        {"streams_num_standby_replicas": "3"},
        {"retention_ms": "1"},
    ],
)
def test_what_is_out_of_bounds_or_unknown_is_refused(given: dict[str, str]) -> None:
    image = ClusterImage()
    assert _altered(image, Config({}), **given) == InvalidConfigError.code
    assert not image.configs


def test_all_groups_at_once_have_no_settings() -> None:
    assert _altered(ClusterImage(), Config({}), "", consumer_session_timeout_ms="50000") == InvalidRequestError.code
