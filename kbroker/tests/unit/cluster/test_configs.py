"""Settings that change while the broker runs. Codes and messages are those of Apache Kafka 4.3.1."""

import pytest

from kbroker.cluster.configs import Alteration, Change, ConfigResult, Operation, alter_configs
from kbroker.cluster.image import BROKER_RESOURCE, TOPIC_RESOURCE, ClusterImage
from kbroker.cluster.topics import NewTopic
from kbroker.config import Config
from kbroker.errors import PolicyViolationError
from kbroker.protocol.records import ConfigRecord
from kbroker.tests.unit.cluster.given import cluster, with_topics

SET, DELETE, APPEND, SUBTRACT = Operation
REFUSED, INVALID, UNKNOWN_TOPIC, BAD_TOPIC = 42, 40, 3, 17


def given(**configs: str) -> ClusterImage:
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    return with_topics(cluster(1), NewTopic("t", 1, 1, configs=settings), NewTopic("u", 1, 1))


def topic(*changes: Change, name: str = "t", replace: bool = False) -> Alteration:
    return Alteration(TOPIC_RESOURCE, name, changes, replace)


def broker(*changes: Change, name: str = "1", replace: bool = False) -> Alteration:
    return Alteration(BROKER_RESOURCE, name, changes, replace)


def change(image: ClusterImage, *wanted: Alteration, **static: object) -> list[tuple[int, str | None]]:
    """Decides and applies; the codes and messages."""
    decision = alter_configs(image, wanted, Config.load(settings=static))
    for record in decision.records:
        image.apply(record)
    return [(one.error_code, one.error_message) for one in decision.results]


def refusal(wanted: Alteration, image: ClusterImage | None = None) -> tuple[int, str | None]:
    decision = alter_configs(image or given(), [wanted], Config())
    assert decision.records == []
    return decision.results[0].error_code, decision.results[0].error_message


def test_a_setting_becomes_one_record_and_is_taken_back_by_another() -> None:
    image = given()
    decision = alter_configs(image, [topic(Change("retention.ms", "5"), Change("segment.ms", "7"))], Config())
    assert decision.results == [ConfigResult(TOPIC_RESOURCE, "t")]
    assert decision.records == [
        ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5"),
        ConfigRecord(resource_type=2, resource_name="t", name="segment.ms", value="7"),
    ]
    for record in decision.records:
        image.apply(record)
    decision = alter_configs(image, [topic(Change("retention.ms", None, DELETE))], Config())
    assert decision.records == [ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value=None)]


def test_what_changes_nothing_leaves_no_record() -> None:
    image = given(retention_ms="5")
    wanted = [topic(Change("retention.ms", "5"), Change("segment.ms", None, DELETE)), broker(), topic(name="u")]
    decision = alter_configs(image, wanted, Config())
    assert [one.error_code for one in decision.results] == [0, 0, 0]
    assert decision.records == []


def test_replacing_takes_away_what_is_not_named() -> None:
    image = given(retention_ms="5", segment_ms="6")
    assert change(image, topic(Change("retention.ms", "7"), replace=True)) == [(0, None)]
    assert image.topic_configs("t") == {"retention.ms": "7"}
    assert change(image, topic(replace=True)) == [(0, None)]
    assert image.topic_configs("t") == {}


def test_appending_starts_from_the_default_and_adds_what_is_missing() -> None:
    image = given()
    change(image, topic(Change("cleanup.policy", "compact,delete", APPEND)))
    assert image.topic_configs("t") == {"cleanup.policy": "delete,compact"}
    change(image, topic(Change("leader.replication.throttled.replicas", "0:1,0:1,1:1", APPEND)))
    assert image.topic_configs("t")["leader.replication.throttled.replicas"] == "0:1,1:1"


def test_subtracting_takes_away_what_is_there() -> None:
    image = given(cleanup_policy="compact,delete")
    change(image, topic(Change("cleanup.policy", "delete,burn", SUBTRACT)))
    assert image.topic_configs("t") == {"cleanup.policy": "compact"}
    change(image, topic(Change("cleanup.policy", "compact", SUBTRACT)))
    assert image.topic_configs("t") == {"cleanup.policy": ""}


def test_a_resource_named_twice_is_refused_and_the_others_are_not() -> None:
    image = given()
    wanted = [topic(Change("retention.ms", "1")), topic(Change("segment.ms", "2"), name="u"), topic()]
    twice = (REFUSED, "Each resource must appear at most once.")
    assert change(image, *wanted) == [twice, (0, None), twice]
    assert (image.topic_configs("t"), image.topic_configs("u")) == ({}, {"segment.ms": "2"})


def test_one_bad_setting_refuses_its_whole_resource() -> None:
    image = given()
    results = change(image, topic(Change("retention.ms", "1"), Change("segment.bytes", "1")), topic(name="u"))
    assert [code for code, _ in results] == [INVALID, 0]
    assert image.topic_configs("t") == {}


@pytest.mark.parametrize(
    ("wanted", "code", "message"),
    [
        (topic(Change("nope", "1")), INVALID, "Unknown topic config name: nope"),
        (topic(Change("retention.ms", "x")), INVALID,
         "Invalid value x for configuration retention.ms: Not a number of type LONG"),
        (topic(Change("retention.ms", None), Change("segment.ms", None)), REFUSED,
         "Null value not supported for : retention.ms, segment.ms"),
        (topic(Change("cleanup.policy", None, APPEND)), REFUSED, "Null value not supported for : cleanup.policy"),
        (topic(Change("retention.ms", "1"), Change("retention.ms", None, DELETE)), REFUSED,
         "Error due to duplicate config keys"),
        (topic(Change("retention.ms", "1", 4)), REFUSED, "Unknown operations type 4"),
        (topic(Change("retention.ms", "1", APPEND)), INVALID,
         "Can't APPEND to key retention.ms because its type is not LIST."),
        (topic(Change("nope", "1", SUBTRACT)), INVALID, "Can't SUBTRACT to key nope because its type is not LIST."),
        (topic(Change("cleanup.policy", "burn", APPEND)), INVALID,
         "Invalid value burn for configuration cleanup.policy: String must be one of: compact, delete"),
        (topic(name=""), REFUSED, "Default topic resources are not allowed."),
        (topic(name="no"), UNKNOWN_TOPIC, "The topic 'no' does not exist."),
        (topic(Change("nope", "1"), name="no"), INVALID, "Unknown topic config name: nope"),
        (topic(name="."), BAD_TOPIC, "Topic name is invalid: '.' is not allowed"),
        (Alteration(8, "1", ()), REFUSED, "Unknown resource type 8"),
        (Alteration(16, "m", ()), REFUSED, "Unknown resource type 16"),
        (Alteration(64, "g", ()), REFUSED, "Unknown resource type 64"),
        (Alteration(77, "", ()), REFUSED, "Unknown resource type 77"),
        (broker(name="2"), REFUSED, "Unexpected broker id, expected 1, but received 2"),
        (broker(name="one"), REFUSED, "Node id must be an integer, but it is: one"),
        (broker(Change("num.partitions", "2")), REFUSED, "Cannot update these configs dynamically: [num.partitions]"),
        (broker(Change("log.retention.hours", "2"), name=""), REFUSED,
         "Cannot update these configs dynamically: [log.retention.hours]"),
        (broker(Change("log.segment.bytes", "1")), REFUSED,
         "Invalid value 1 for configuration log.segment.bytes: Value must be at least 1048576"),
        (broker(Change("ssl.keystore.password", "secret")), REFUSED, "These security configs can be dynamically "
         "updated only per-listener using the listener prefix: [ssl.keystore.password]"),
        (broker(Change("cordoned.log.dirs", "/x"), name=""), REFUSED, "Cannot update these configs at default cluster "
         "level, broker id must be specified: [cordoned.log.dirs]"),
        (broker(Change("log.retention.mss", "1")), INVALID,
         "There is no setting 'log.retention.mss'; did you mean 'log.retention.ms'?"),
        (broker(Change("log.retention.ms", "1", APPEND)), INVALID,
         "Config value append is not allowed for config key: log.retention.ms"),
        (broker(Change("nope", "1", SUBTRACT)), INVALID, "Unknown config name: nope"),
        (broker(Change("num.io.threads", "17")), REFUSED, "Dynamic thread count update validation failed for "
         "num.io.threads=17, value should not be greater than double the current value 8"),
        (broker(Change("num.io.threads", "3")), REFUSED, "Dynamic thread count update validation failed for "
         "num.io.threads=3, value should be at least half the current value 8"),
        (broker(Change("max.connections", "0")), REFUSED, "Invalid max.connections 0"),
        (broker(Change("listeners", "PLAINTEXT://127.0.0.1:1")), REFUSED,
         "listeners cannot be changed while the broker runs."),
        (broker(Change("max.connections.per.ip", "0")), REFUSED, "max.connections.per.ip can be zero only if "
         "max.connections.per.ip.overrides lets someone in."),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(wanted: Alteration, code: int, message: str) -> None:
    assert refusal(wanted) == (code, message)


def test_settings_of_one_broker_and_of_all_are_kept_apart() -> None:
    image = given()
    one, every = Change("log.retention.ms", "5"), Change("log.retention.ms", "6")
    assert change(image, broker(one), broker(every, name="")) == [(0, None)] * 2
    assert image.broker_configs(1) == {"log.retention.ms": "5"}
    assert image.broker_configs(None) == {"log.retention.ms": "6"}


def test_rates_of_replication_can_be_set_although_no_file_has_them() -> None:
    image = given()
    assert change(image, broker(Change("leader.replication.throttled.rate", "1000"))) == [(0, None)]
    assert change(image, broker(Change("follower.replication.throttled.rate", "1000"), name="")) == [(0, None)]
    assert change(image, broker(Change("leader.replication.throttled.rate", "x")))[0][0] == REFUSED


def test_a_stored_setting_nobody_knows_can_be_taken_away_and_stops_no_change() -> None:
    image = given()
    image.apply(ConfigRecord(resource_type=4, resource_name="1", name="some.plugin", value="x"))
    assert change(image, broker(Change("log.retention.ms", "5"))) == [(0, None)]
    assert change(image, broker(Change("some.plugin", None, DELETE))) == [(0, None)]
    assert image.broker_configs(1) == {"log.retention.ms": "5"}


def test_a_step_is_measured_from_what_holds_now() -> None:
    image = given()
    threads = [broker(Change("num.io.threads", str(count))) for count in (16, 32, 8)]
    assert [change(image, one)[0][0] for one in threads] == [0, 0, REFUSED]
    assert change(image, broker(Change("num.io.threads", "16"), name="")) == [(0, None)]  # the broker's own still holds
    assert change(image, broker(Change("num.io.threads", "", DELETE))) == [(0, None)]  # 32 to everybody's 16
    assert change(image, broker(Change("num.io.threads", "32"))) == [(0, None)]
    assert change(image, broker(Change("num.io.threads", "", DELETE), name="")) == [(0, None)]
    assert change(image, broker(Change("num.io.threads", "", DELETE)))[0][0] == REFUSED  # 32 to the file's 8


def test_what_is_taken_away_must_not_uncover_what_would_be_refused() -> None:
    image = given()
    assert change(image, broker(Change("log.retention.ms", "1"))) == [(0, None)]
    assert change(image, broker(Change("log.retention.ms", "0"), name="")) == [(0, None)]
    assert change(image, broker(Change("log.retention.ms", None, DELETE)))[0][0] == REFUSED
    assert image.broker_configs(1) == {"log.retention.ms": "1"}
    image.apply(ConfigRecord(resource_type=4, resource_name="1", name="log.retention.ms", value=None))
    assert change(image, broker(Change("log.cleaner.threads", None, DELETE))) == [(0, None)]  # it is odd already
    assert change(image, broker(Change("log.retention.ms", None, DELETE), name="")) == [(0, None)]


def test_compaction_lags_are_compared_with_those_of_the_broker_at_run_time() -> None:
    image = given()
    assert change(image, broker(Change("log.cleaner.max.compaction.lag.ms", "10"), name="")) == [(0, None)]
    assert change(image, topic(Change("min.compaction.lag.ms", "11")))[0][0] == INVALID


def test_a_request_of_too_many_changes_is_refused_whole() -> None:
    names = [f"t{number}" for number in range(10_001)]
    image = with_topics(cluster(1), *(NewTopic(name, 1, 1) for name in names[:10_000]))
    image = with_topics(image, NewTopic(names[-1], 1, 1))
    wanted = [topic(Change("retention.ms", "1"), name=name) for name in names]
    with pytest.raises(PolicyViolationError):
        alter_configs(image, wanted, Config())
    assert len(alter_configs(image, wanted[1:], Config()).records) == 10_000
