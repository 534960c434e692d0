"""Settings are Kafka's: names, defaults, validators, synonyms. Expectations were read from Apache Kafka 4.3.1."""

import pytest

from kbroker.config import Config, ConfigEntry, ConfigError, Dynamic, Source, read_properties, table


def entry(entries: list[ConfigEntry], name: str) -> ConfigEntry:
    return next(one for one in entries if one.name == name)


def synonyms(one: ConfigEntry) -> list[tuple[str, str | None, int]]:
    return [(synonym.name, synonym.value, int(synonym.source)) for synonym in one.synonyms]


def test_every_setting_of_kafka_is_known_and_its_default_is_valid() -> None:
    assert len(table().broker) == 360
    assert len(table().topic) == 34
    for setting in [*table().broker.values(), *table().topic.values()]:
        if setting.default is not None and setting.valid != "nonempty":
            assert setting.parse(setting.default) == setting.default_value()


def test_a_broker_nobody_configured_listens_on_loopback_as_its_own_controller() -> None:
    config = Config()
    assert [str(one) for one in config.listeners] == ["PLAINTEXT://127.0.0.1:9092"]
    assert config.advertised_listeners == config.listeners
    assert config.node_id == 1
    assert config.voters == [1]
    assert config.unsupported == []
    assert config.log_dirs[0].is_absolute()


def test_an_unknown_setting_is_refused_with_the_closest_name() -> None:
    with pytest.raises(ConfigError, match=r"There is no setting 'num.partitons'; did you mean 'num.partitions'\?"):
        Config({"num.partitons": "3"})


def test_a_known_setting_without_effect_is_reported() -> None:
    config = Config({"background.threads": "4", "num.partitions": "4", "log.cleaner.enable": "true"})
    assert [(one.name, one.value) for one in config.unsupported] == [("background.threads", "4")]


def test_a_secret_without_effect_is_reported_without_its_value() -> None:
    assert Config({"ssl.key.password": "hunter2"}).unsupported[0].value == "(hidden)"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("segment.bytes", "1000", "Invalid value 1000 for configuration segment.bytes: Value must be at least 1048576"),
        ("retention.ms", "abc", "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
        ("retention.ms", "-2", "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        ("retention.ms", "", "Invalid value  for configuration retention.ms: Not a number of type LONG"),
        ("segment.bytes", "99999999999", "Invalid value 99999999999 for configuration segment.bytes: "
         "Not a number of type INT"),
        ("cleanup.policy", "foo", "Invalid value foo for configuration cleanup.policy: "
         "String must be one of: compact, delete"),
        ("min.cleanable.dirty.ratio", "2", "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: "
         "Value must be no more than 1"),
        ("preallocate", "maybe", "Invalid value maybe for configuration preallocate: "
         "Expected value to be either true or false"),
        ("compression.gzip.level", "0", "Invalid value 0 for configuration compression.gzip.level: "
         "Value must be between 1 and 9 or equal to -1"),
        ("compression.lz4.level", "20", "Invalid value 20 for configuration compression.lz4.level: "
         "Value must be no more than 17"),
        ("nope", "1", "Unknown topic config name: nope"),
        ("leader.replication.throttled.replicas", "x", "Invalid value [x] for configuration "
         "leader.replication.throttled.replicas: leader.replication.throttled.replicas must be the literal '*' or a "
         "list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."),
        ("remote.storage.enable", "true", "Tiered Storage functionality is disabled in the broker. Topic cannot be "
         "configured with remote log storage."),
    ],
)  # fmt: skip
def test_a_bad_topic_setting_is_refused_in_kafkas_words(name: str, value: str, message: str) -> None:
    assert Config().check_topic_overrides({name: value}) == message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", ""),
        ("cleanup.policy", "delete,delete"),
        ("retention.bytes", "-5"),
        ("retention.ms", " 1000 "),
        ("internal.segment.bytes", "100"),
        ("leader.replication.throttled.replicas", "*"),
        ("leader.replication.throttled.replicas", "0:1,1:1"),
        ("compression.gzip.level", "-1"),
    ],
)
def test_what_kafka_accepts_is_accepted(name: str, value: str) -> None:
    assert Config().check_topic_overrides({name: value}) is None


def test_compaction_lags_must_not_contradict_each_other() -> None:
    problem = Config().check_topic_overrides({"min.compaction.lag.ms": "1000", "max.compaction.lag.ms": "10"})
    assert problem == "conflict topic config setting min.compaction.lag.ms (1000) > max.compaction.lag.ms (10)"


def test_a_topic_without_overrides_takes_the_brokers_values_converted() -> None:
    config = Config(
        {"log.retention.hours": "2", "log.segment.bytes": "2097152", "log.flush.scheduler.interval.ms": "7"}
    )
    values = config.topic_config({"max.message.bytes": "77"})
    assert values["retention.ms"] == 7_200_000
    assert values["segment.bytes"] == 2_097_152
    assert values["flush.ms"] == 7
    assert values["max.message.bytes"] == 77


def test_the_internal_segment_size_wins_over_the_public_one() -> None:
    assert Config().topic_config({"internal.segment.bytes": "512"})["segment.bytes"] == 512


def test_topic_synonyms_are_kafkas() -> None:
    config = Config({"log.retention.hours": "24", "log.roll.ms": "100000000"})
    entries = config.describe_topic({"cleanup.policy": "compact,delete"}, Dynamic(default={"min.insync.replicas": "1"}))
    assert len(entries) == 33
    assert synonyms(entry(entries, "segment.ms")) == [("log.roll.ms", "100000000", 4), ("log.roll.hours", "168", 5)]
    assert synonyms(entry(entries, "retention.ms")) == []
    assert entry(entries, "retention.ms").value == "86400000"
    assert entry(entries, "retention.ms").source == Source.DEFAULT
    assert synonyms(entry(entries, "cleanup.policy")) == [
        ("cleanup.policy", "compact,delete", 1),
        ("log.cleanup.policy", "delete", 5),
    ]
    assert synonyms(entry(entries, "min.insync.replicas")) == [
        ("min.insync.replicas", "1", 3),
        ("min.insync.replicas", "1", 5),
    ]


def test_broker_settings_are_described_as_kafka_does() -> None:
    config = Config({"node.id": "1", "log.roll.ms": "100000000", "ssl.key.password": "x"})
    entries = config.describe_broker()
    assert len(entries) == 340
    assert synonyms(entry(entries, "broker.id")) == [("broker.id", "1", 4), ("broker.id", "-1", 5)]
    assert synonyms(entry(entries, "log.roll.hours")) == [("log.roll.hours", "168", 5)]
    assert entry(entries, "ssl.key.password").value is None
    assert entry(entries, "ssl.key.password").is_sensitive
    assert entry(entries, "log.cleaner.io.max.bytes.per.second").value == "1.7976931348623157E308"
    assert entry(entries, "node.id").read_only
    assert not entry(entries, "log.roll.ms").read_only


def test_the_cluster_default_resource_holds_only_what_was_set_at_run_time() -> None:
    described = Config().describe_cluster_default(Dynamic(default={"min.insync.replicas": "1"}))
    assert [(one.name, one.value, one.source) for one in described] == [("min.insync.replicas", "1", 3)]


def test_a_run_time_setting_nobody_knows_is_shown_without_its_value() -> None:
    dynamic = Dynamic(default={"listener.name.x.ssl.key.password": "secret"})
    shown = Config().describe_cluster_default(dynamic)
    assert [(one.name, one.value, one.is_sensitive, one.read_only) for one in shown] == [
        ("listener.name.x.ssl.key.password", None, True, True)
    ]
    of_broker = entry(Config().describe_broker(dynamic), "listener.name.x.ssl.key.password")
    assert (of_broker, synonyms(of_broker)) == (shown[0], [("listener.name.x.ssl.key.password", None, 3)])


def test_a_setting_that_exists_at_run_time_only_is_described_once_it_is_set() -> None:
    name = "leader.replication.throttled.rate"
    assert name not in {one.name for one in Config().describe_broker()}
    shown = entry(Config().describe_broker(Dynamic({name: "5"}, {name: "6"})), name)
    assert (shown.value, shown.source, shown.read_only, shown.type) == ("5", 2, False, 5)
    assert synonyms(shown) == [(name, "5", 2), (name, "6", 3)]


def test_run_time_settings_of_a_broker_that_change_nothing_are_named() -> None:
    changed = {
        "background.threads": "11",
        "num.replica.fetchers": "1",
        "message.max.bytes": "5",
        "num.network.threads": "7",
        "leader.replication.throttled.rate": "8",
        "sasl.jaas.config": "secret",
        "some.plugin": "secret",
    }
    assert [
        (one.name, one.value, one.sentence.partition("but ")[2]) for one in Config().unsupported_dynamic(changed)
    ] == [
        ("background.threads", "11", "it has no effect yet."),
        ("num.network.threads", "7", "it has an effect only as given at start."),
        ("leader.replication.throttled.rate", "8", "it has no effect yet."),
        ("sasl.jaas.config", "(hidden)", "it has no effect yet."),
        ("some.plugin", "(hidden)", "there is no such setting here."),
    ]


def test_a_stored_setting_that_cannot_be_read_is_passed_over() -> None:
    name = "log.cleaner.min.cleanable.ratio"
    assert Config().broker_value(name, Dynamic({name: "NaN"}, {name: "0.25"})) == 0.25
    assert Config().broker_value(name, Dynamic({name: "NaN"})) == 0.5


def test_an_internal_setting_is_described_once_it_is_given() -> None:
    name = "log.initial.task.delay.ms"
    assert name not in {entry.name for entry in Config().describe_broker()}
    (entry,) = (entry for entry in Config({name: "5"}).describe_broker() if entry.name == name)
    assert (entry.value, entry.source) == ("5", 4)


def test_topic_settings_without_effect_are_named() -> None:
    given = {"unclean.leader.election.enable": "true", "retention.ms": "5", "gone.setting": "x"}
    assert [one.name for one in Config().unsupported_topic_settings(given)] == ["unclean.leader.election.enable"]


@pytest.mark.parametrize(
    ("given", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-5"}, -1),
        ({"log.retention.ms": "-7"}, -1),
        ({"log.retention.hours": "0", "log.retention.ms": "9"}, 9),
    ],
)
def test_a_negative_retention_time_of_any_unit_is_none_at_all(given: dict[str, str], retention_ms: int) -> None:
    assert Config(given).topic_config({})["retention.ms"] == retention_ms


@pytest.mark.parametrize("name", ["log.retention.hours", "log.retention.minutes", "log.retention.ms"])
def test_a_broker_that_keeps_records_for_no_time_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"log\.retention\.ms must be unlimited"):
        Config({name: "0"})


def test_a_properties_file_is_read_as_java_does(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "server.properties"
    file.write_text(
        "# note\n\n node.id = 3\nlog.dirs=/a,\\\n   /b\nnum.partitions: 2\n! other\ncompression.type zstd\n"
    )
    assert read_properties(file) == {
        "node.id": "3",
        "log.dirs": "/a,/b",
        "num.partitions": "2",
        "compression.type": "zstd",
    }


def test_later_sources_win() -> None:
    config = Config.load(pairs=["num.partitions=2", "node.id=5"], settings={"num_partitions": 4, "log_dirs": ["/x"]})
    assert config.integer("num.partitions") == 4
    assert config.node_id == 5
    assert [str(path) for path in config.log_dirs] == ["/x"]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"listeners": "SSL://127.0.0.1:9093"}, "SSL listeners are not available yet"),
        ({"listeners": "PLAINTEXT:9092"}, "write it as NAME://host:port"),
        ({"listeners": "PLAINTEXT://:9092,PLAINTEXT://:9093"}, "names PLAINTEXT twice"),
        ({"listeners": "CONTROLLER://:9093"}, "names no listener for clients"),
        ({"listeners": "FOO://:9093"}, "has no protocol for FOO"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "cannot connect to that address"),
        ({"inter.broker.listener.name": "INSIDE"}, "which is not one of the listeners"),
        ({"log.dirs": "/a,/b", "metadata.log.dir": "/c"}, "must be one of log.dirs"),
        ({"log.dirs": "/a,/a"}, "must name different directories"),
        ({"process.roles": "broker"}, "broker and controller in one"),
        ({"controller.quorum.voters": "1@a:1,2@b:2"}, "only a quorum of this node alone"),
        ({"controller.quorum.voters": "x"}, "write it as id@host:port"),
        ({"node.id": "1", "broker.id": "2"}, "they must be the same"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_sentence(settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Config(settings)


def test_a_controller_listener_is_set_aside_and_reported() -> None:
    config = Config({"listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:9093"})
    assert [one.name for one in config.listeners] == ["PLAINTEXT"]
    assert "CONTROLLER://127.0.0.1:9093" in config.unsupported[0].sentence


def test_kafkas_own_server_properties_start_a_node() -> None:
    stock = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": "localhost:9093",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "inter.broker.listener.name": "PLAINTEXT",
        "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
        "log.dirs": "/tmp/kraft-combined-logs",
        "log.retention.hours": "168",
    }
    config = Config(stock)
    assert [str(one) for one in config.listeners] == ["PLAINTEXT://:9092"]
    assert [str(one) for one in config.advertised_listeners] == ["PLAINTEXT://localhost:9092"]


def test_memory_for_requests_holds_at_least_one_of_the_largest() -> None:
    assert Config({"queued.max.request.bytes": "104857600"}).unsupported == []
    assert Config({"queued.max.request.bytes": "0"}).unsupported == []
    with pytest.raises(ConfigError, match=r"at least socket\.request\.max\.bytes \(104857600\)"):
        Config({"queued.max.request.bytes": "1000"})
    Config({"queued.max.request.bytes": "1000", "socket.request.max.bytes": "1000"})


def test_limits_of_single_addresses_are_read() -> None:
    name = "max.connections.per.ip.overrides"
    config = Config({name: "127.0.0.1:200, some.host:3,[::1]:0", "max.connections.per.ip": "0"})
    assert config.per_ip_overrides() == [("127.0.0.1", 200), ("some.host", 3), ("::1", 0)]
    assert config.unsupported == []
    for wrong in ("127.0.0.1", ":5", "host:many"):
        with pytest.raises(ConfigError, match="write it as host:count"):
            Config({name: wrong})
    with pytest.raises(ConfigError, match="can be zero only if"):
        Config({"max.connections.per.ip": "0"})


def test_a_cleaner_thread_has_more_than_a_megabyte_to_dedupe_with() -> None:
    name = "log.cleaner.dedupe.buffer.size"
    Config({name: "2097154", "log.cleaner.threads": "2"})
    for refused in ("2097153", "1000"):
        with pytest.raises(ConfigError, match=r"^log\.cleaner\.dedupe\.buffer\.size must be at least 1MB per"):
            Config({name: refused, "log.cleaner.threads": "2"})
