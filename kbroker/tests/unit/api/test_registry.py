"""The registry: one row a key, filled by decorators, within what Kafka 4.3 advertises."""

import pytest

from kbroker.api import REGISTRY
from kbroker.api.k18_api_versions import bodies, response
from kbroker.api.registry import Registry, Row, api
from kbroker.protocol import apis, codec
from kbroker.protocol.messages import ApiVersionsResponse
from kbroker.tests.unit.api.desk import Desk

SERVED = {
    0,
    1,
    2,
    3,
    8,
    9,
    10,
    11,
    12,
    13,
    14,
    15,
    16,
    17,
    18,
    19,
    20,
    21,
    22,
    23,
    24,
    25,
    26,
    27,
    28,
    32,
    33,
    34,
    35,
    36,
    37,
    42,
    44,
    46,
    47,
    60,
    61,
    65,
    66,
    68,
    69,
    75,
}


def test_these_keys_are_served_in_every_stable_version_that_kafka_has() -> None:
    assert {row.key for row in REGISTRY} == SERVED
    for row in REGISTRY:
        known = apis.by_key(row.key)
        assert (row.min_version, row.max_version) == (known.first_version, known.last_version), known.name


def test_only_produce_is_advertised_below_what_parses() -> None:
    assert {row.key: row.advertised_min for row in REGISTRY if row.advertised_min != row.min_version} == {0: 0}


def test_a_key_is_registered_once() -> None:
    table = Registry()
    row = Row(3, 0, 1, 0, None, None, native=True)
    table.add(row)
    with pytest.raises(ValueError, match="twice"):
        table.add(row)


def test_more_than_what_parses_cannot_be_advertised() -> None:
    with pytest.raises(ValueError, match="advertise"):
        api(3, versions="0-4", advertised="0-5")


def test_api_versions_lists_the_registry_and_finalized_features() -> None:
    image = Desk().controller.image
    image.features["transaction.version"] = 2
    answer = response(image, 42, 4)
    assert {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}[0] == (0, 13)
    assert [one.api_key for one in answer.api_keys] == sorted(SERVED)
    assert [(one.name, one.max_version_level) for one in answer.finalized_features] == [
        ("metadata.version", 30),
        ("transaction.version", 2),
    ]
    assert answer.finalized_features_epoch == 42


def test_api_versions_v3_leaves_out_features_whose_lowest_level_is_zero() -> None:
    image = Desk().controller.image
    assert {one.name for one in response(image, 0, 3).supported_features} == {"metadata.version"}
    assert {one.name for one in response(image, 0, 4).supported_features} == {
        "metadata.version",
        "kraft.version",
        "transaction.version",
    }


def test_api_versions_hides_finalized_levels_whose_behaviour_does_not_exist() -> None:
    image = Desk().controller.image
    image.features["share.version"] = 1
    assert {one.name for one in response(image, 0, 4).finalized_features} == {"metadata.version"}


def test_published_bodies_are_one_per_version_and_the_fallback() -> None:
    encoded = bodies(Desk().controller.image, 1)
    assert len(encoded) == 6
    for version, body in enumerate(encoded[:5]):
        decoded, end = codec.decode(ApiVersionsResponse, version, body)
        assert end == len(body)
        assert len(decoded.api_keys) == len(SERVED)
    fallback, _ = codec.decode(ApiVersionsResponse, 0, encoded[5])
    assert fallback.error_code == 35
    assert [(one.api_key, one.min_version, one.max_version) for one in fallback.api_keys] == [(18, 0, 4)]
