from kbroker.protocol import apis, messages


def test_an_api_knows_its_classes_versions_and_listeners() -> None:
    metadata = apis.by_key(3)
    assert (metadata.name, metadata.first_version, metadata.last_version) == ("Metadata", 0, 13)
    assert metadata.flexible_from == 9
    assert not metadata.is_flexible(8)
    assert metadata.listeners == ("broker",)
    assert metadata.request is messages.MetadataRequest
    assert metadata.response is messages.MetadataResponse


def test_an_unstable_last_version_is_known_but_not_served() -> None:
    init_producer_id = apis.by_key(22)
    assert (init_producer_id.last_version, init_producer_id.last_known_version) == (5, 6)
    assert not init_producer_id.has_version(6)


def test_removed_and_unknown_keys_are_not_found() -> None:
    assert [apis.find(key) for key in (4, 5, 6, 7, 999, -1)] == [None] * 6


def test_every_api_agrees_with_its_classes() -> None:
    for api in apis.every():
        for cls in (api.request, api.response):
            assert api.key == cls.KEY
            assert (api.first_version, api.last_known_version) == cls.VERSIONS
            assert api.flexible_from == cls.FLEXIBLE_FROM


def test_both_listeners_have_the_apis_that_kafka_has() -> None:
    # Kafka advertises two fewer on the broker: telemetry (71, 72) only with a receiver.
    assert sum("broker" in api.listeners for api in apis.every()) == 77
    assert sum("controller" in api.listeners for api in apis.every()) == 41
