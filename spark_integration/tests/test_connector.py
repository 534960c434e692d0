"""The resolver, with a Maven made here, whose repositories are folders, and once with the real one."""

from __future__ import annotations

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import pytest

from spark_integration import ConnectorError, connector_jars

# As far as the resolver can tell, Maven: looks into the local repository, then into the remote one, and copies.
_MVN = """\
#!{python}
import json, re, shutil, sys
from pathlib import Path

home = Path({home!r})
words = sys.argv[1:]
given = dict(word[2:].split("=", 1) for word in words if word.startswith("-D"))
items = re.findall("<artifactItem>(.*?)</artifactItem>", Path(words[words.index("-f") + 1]).read_text())
with open(home / "calls", "a") as calls:
    calls.write(json.dumps(words) + chr(10))
out = Path(given["outputDirectory"])
out.mkdir(exist_ok=True)
for item in items:
    group, name, version, kind = re.findall(">([^<]+)</", item)
    file = f"{{name}}-{{version}}.{{kind}}"
    places = [home / "remote" / file]
    if "maven.repo.local" not in given:
        places.insert(0, home / "local" / file)
    for place in places:
        if place.exists():
            shutil.copy(place, out)
            break
    else:
        print(f"[ERROR] Could not find artifact {{group}}:{{name}}:{{kind}}:{{version}} in somewhere")
        print("[ERROR] Try something else.")
        sys.exit(1)
"""
_VERSIONS = "<kafka.version>{kafka}</kafka.version><commons-pool2.version>2.12.0</commons-pool2.version>"


@dataclass(frozen=True)
class Maven:
    """Its two repositories, as folders of files."""

    home: Path

    def publish(self, version: str, *, scala: str = "2.13", kafka: str = "3.9.0", where: str = "remote") -> list[str]:
        names = ["commons-pool2-2.12.0.jar", f"kafka-clients-{kafka}.jar"]
        names += [f"spark-{name}-kafka-0-10_{scala}-{version}.jar" for name in ("sql", "token-provider")]
        folder = self.home / where
        (folder / f"spark-parent_{scala}-{version}.pom").write_text(_VERSIONS.format(kafka=kafka))
        for name in names:
            with ZipFile(folder / name, "w") as jar:
                jar.writestr("content", f"of {name}, {where}")
        return names

    @property
    def calls(self) -> int:
        told = self.home / "calls"
        return len(told.read_text().splitlines()) if told.exists() else 0


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kbroker"


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> Maven:
    home = tmp_path / "maven"
    for folder in ("bin", "local", "remote"):
        (home / folder).mkdir(parents=True)
    program = home / "bin" / "mvn"
    program.write_text(_MVN.format(python=sys.executable, home=str(home)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(home / "bin"))
    return Maven(home)


def _names(jars: list[Path]) -> list[str]:
    return [jar.name for jar in jars]


def test_without_maven_one_sentence_says_so(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConnectorError, match=r"^Spark's Kafka connector for pyspark 4\.0\.0 is not in .*mvn.*$"):
        connector_jars("4.0.0")


def test_the_four_jars_are_brought_and_nothing_else(maven: Maven, cache: Path) -> None:
    published = maven.publish("4.0.0")
    jars = connector_jars("4.0.0")
    assert _names(jars) == sorted(published)
    assert all(jar.is_relative_to(cache) for jar in jars)
    assert not list(cache.glob("fetching-*"))


def test_a_second_call_needs_neither_maven_nor_a_network(maven: Maven) -> None:
    maven.publish("4.0.0")
    first = connector_jars("4.0.0")
    shutil.rmtree(maven.home / "bin")
    assert connector_jars("4.0.0") == first


def test_the_release_says_which_clients_it_uses(maven: Maven) -> None:
    maven.publish("3.5.6", scala="2.12", kafka="3.4.1")
    names = _names(connector_jars("3.5.6", scala="2.12"))
    assert "kafka-clients-3.4.1.jar" in names
    assert "spark-sql-kafka-0-10_2.12-3.5.6.jar" in names


def test_the_local_repository_is_enough(maven: Maven) -> None:
    published = maven.publish("4.0.0", where="local")
    assert _names(connector_jars("4.0.0")) == sorted(published)


def test_a_local_repository_that_holds_half_is_filled_up(maven: Maven) -> None:
    published = maven.publish("4.0.0")
    maven.publish("4.0.0", where="local")
    for name in published[:2]:
        (maven.home / "local" / name).unlink()
    assert _names(connector_jars("4.0.0")) == sorted(published)


def test_a_jar_that_was_cut_off_in_the_local_repository_is_brought_past_it(maven: Maven) -> None:
    published = maven.publish("4.0.0")
    maven.publish("4.0.0", where="local")
    damaged = maven.home / "local" / published[1]
    damaged.write_bytes(damaged.read_bytes()[:40])
    jars = {jar.name: jar for jar in connector_jars("4.0.0")}
    with ZipFile(jars[published[1]]) as jar:
        assert jar.read("content").endswith(b"remote")


def test_a_cache_that_lost_a_jar_is_filled_again(maven: Maven) -> None:
    maven.publish("4.0.0")
    first = connector_jars("4.0.0")
    first[0].unlink()
    assert connector_jars("4.0.0") == first
    assert all(jar.exists() for jar in first)


def test_a_fetch_that_was_killed_leaves_nothing_that_counts(maven: Maven, cache: Path) -> None:
    published = maven.publish("4.0.0")
    torn = cache / "spark-kafka-4.0.0_2.13"
    torn.mkdir(parents=True)
    (torn / published[0]).write_bytes(b"half a j")
    assert _names(connector_jars("4.0.0")) == sorted(published)


def test_where_a_patch_release_is_missing_the_first_of_its_line_serves(maven: Maven) -> None:
    published = maven.publish("4.0.0")
    assert _names(connector_jars("4.0.7")) == sorted(published)


def test_what_is_missing_is_named_in_one_sentence(maven: Maven) -> None:
    for name in maven.publish("4.1.0"):
        if "token-provider" in name:
            (maven.home / "remote" / name).unlink()
    with pytest.raises(ConnectorError) as told:
        connector_jars("4.1.0")
    assert str(told.value) == (
        "Spark's Kafka connector for pyspark 4.1.0 cannot be had: "
        "mvn finds no org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0"
    )


def test_a_maven_that_fails_is_quoted(maven: Maven) -> None:
    (maven.home / "bin" / "mvn").write_text("#!/bin/sh\necho '[ERROR] No route to anywhere'\nexit 1\n")
    with pytest.raises(ConnectorError, match=r"pyspark 4\.0\.0 cannot be had: mvn fails with No route to anywhere$"):
        connector_jars("4.0.0")


def test_of_two_at_once_one_asks_maven(maven: Maven) -> None:
    maven.publish("4.0.0")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(connector_jars, ["4.0.0"] * 4))
    assert found == [found[0]] * 4
    assert maven.calls == 2  # the parent pom, then the jars


def test_the_real_maven_brings_a_connector_that_spark_can_load(cache: Path) -> None:
    if shutil.which("mvn") is None:
        pytest.skip("mvn is not installed")
    jars = {jar.name: jar for jar in connector_jars("4.0.0", scala="2.13")}
    assert sorted(jars) == [
        "commons-pool2-2.12.0.jar",
        "kafka-clients-3.9.0.jar",
        "spark-sql-kafka-0-10_2.13-4.0.0.jar",
        "spark-token-provider-kafka-0-10_2.13-4.0.0.jar",
    ]
    with ZipFile(jars["spark-sql-kafka-0-10_2.13-4.0.0.jar"]) as jar:
        assert "org/apache/spark/sql/kafka010/KafkaSourceProvider.class" in jar.namelist()
