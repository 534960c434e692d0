"""Where the settings of `kbroker start` come from, which source wins, and what is only a warning."""

from pathlib import Path

import pytest

from kbroker.config import ConfigError
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
