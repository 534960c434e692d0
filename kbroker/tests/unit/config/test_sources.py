"""Where the settings of `kbroker start` come from, which source wins, and what is only a warning."""

from pathlib import Path

import pytest

from kbroker.config import ConfigError
from kbroker.environment import setting_of
from kbroker.sources import gather


def properties(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(text)
    return path


def test_unknown_settings_of_a_file_are_named_in_one_warning_with_the_closest_names(tmp_path: Path) -> None:
    file = properties(
        tmp_path, "num.partitons=3\nconfluent.license=secret\nzookeeper.connect=z:2181\nxyz=1\nnum.io.threads=8\n"
    )
    config, warnings = gather(file=file)
    ((event, fields),) = warnings
    assert event == "unknown settings ignored"
    assert fields["settings"] == [
        "num.partitons (did you mean num.partitions?)",
        "confluent.license (a setting of Confluent Platform; remove it)",
        "zookeeper.connect (a setting of ZooKeeper, which is not used; remove it)",
        "xyz",
    ]
    assert "secret" not in str(warnings)
    assert config.integer("num.io.threads") == 8


def test_an_unknown_setting_of_the_command_line_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'num\.partitions'"):
        gather(file=properties(tmp_path, "xyz=1\n"), pairs=["num.partitons=3"])


def test_an_unusable_value_in_a_file_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        gather(file=properties(tmp_path, "num.partitions=many\n"))


def test_a_later_source_wins_and_different_values_are_named(tmp_path: Path) -> None:
    file = properties(tmp_path, "num.partitions=3\nnode.id=5\n")
    config, warnings = gather(file=file, pairs=["num.partitions=4", "node.id=5"], options={"num.partitions": "6"})
    assert config.integer("num.partitions") == 6
    assert [tuple(one) for one in warnings] == [
        (
            "settings overridden",
            {
                "settings": [
                    "num.partitions (--config over server.properties)",
                    "num.partitions (options over --config)",
                ]
            },
        )
    ]


def test_a_setting_that_one_of_an_earlier_source_outranks_is_named(tmp_path: Path) -> None:
    file = properties(tmp_path, "log.dirs=/a\nlog.retention.ms=1000\nlog.retention.hours=7\n")
    config, warnings = gather(file=file, variables={"KAFKA_LOG_DIR": "/b"}, pairs=["log.retention.minutes=9"])
    assert config.log_dirs == [Path("/a")]
    assert [tuple(one) for one in warnings] == [
        (
            "settings overridden",
            {
                "settings": [
                    "log.retention.minutes of --config (log.retention.ms of server.properties counts)",
                    "log.dir of environment (log.dirs of server.properties counts)",
                ]
            },
        )
    ]


def test_variables_name_settings_by_the_rule_of_the_image() -> None:
    assert setting_of("KAFKA_NUM_PARTITIONS") == "num.partitions"
    assert setting_of("KAFKA_A__B_C___D") == "a_b.c-d"


def test_the_environment_stands_between_the_file_and_the_command_line(tmp_path: Path) -> None:
    file = properties(tmp_path, "num.partitions=3\nnode.id=5\n")
    variables = {"KAFKA_NUM_PARTITIONS": "4", "KAFKA_NODE_ID": "6", "HOME": "/x"}
    config, warnings = gather(file=file, variables=variables, pairs=["node.id=7"])
    assert (config.integer("num.partitions"), config.node_id) == (4, 7)
    assert [one.fields["settings"] for one in warnings] == [
        [
            "node.id (environment over server.properties)",
            "num.partitions (environment over server.properties)",
            "node.id (--config over environment)",
        ]
    ]


def test_variables_of_the_jvm_and_of_kubernetes_are_skipped_with_a_line_each() -> None:
    variables = {
        "KAFKA_PORT": "tcp://10.0.0.1:9092",
        "KAFKA_SERVICE_HOST": "10.0.0.1",
        "KAFKA_SERVICE_PORT": "9092",
        "KAFKA_PORT_9092_TCP": "tcp://10.0.0.1:9092",
        "KAFKA_PORT_9092_TCP_ADDR": "10.0.0.1",
        "KAFKA_OPTS": "-Dx=y",
        "KAFKA_HEAP_OPTS": "-Xmx1G",
        "KAFKA_JMX_OPTS": "",
        "KAFKA_LOG4J_ROOT_LOGLEVEL": "INFO",
        "KAFKA_ADVERTISED_LISTENERS": "",
    }
    config, warnings = gather(variables=variables)
    assert config.given == {}
    found = {one.event: one.fields["variables"] for one in warnings}
    assert found == {
        "environment variables without effect": [
            "KAFKA_HEAP_OPTS",
            "KAFKA_JMX_OPTS",
            "KAFKA_LOG4J_ROOT_LOGLEVEL",
            "KAFKA_OPTS",
        ],
        "environment variables of Kubernetes skipped": [
            "KAFKA_PORT",
            "KAFKA_PORT_9092_TCP",
            "KAFKA_PORT_9092_TCP_ADDR",
            "KAFKA_SERVICE_HOST",
            "KAFKA_SERVICE_PORT",
        ],
        "empty environment variables skipped": ["KAFKA_ADVERTISED_LISTENERS"],
    }


def test_unknown_variables_and_unknown_names_of_a_file_share_one_warning(tmp_path: Path) -> None:
    file = properties(tmp_path, "num.partitons=3\n")
    _, warnings = gather(file=file, variables={"KAFKA_NUM_IO_THREAD": "1"})
    assert [one.fields["settings"] for one in warnings] == [
        ["num.partitons (did you mean num.partitions?)", "KAFKA_NUM_IO_THREAD (did you mean num.io.threads?)"]
    ]
