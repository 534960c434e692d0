"""A session and a broker in one call, the helpers for tests, and the examples of the README, run as they stand."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark import SparkConf
from pyspark.errors import PySparkRuntimeError

import spark_integration
from compat_tests.until import until
from kbroker import Broker
from spark_integration import jvm
from spark_integration.testing import from_topic, to_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.usefixtures("spark_tools"), pytest.mark.timeout(600, func_only=True)]
_FOLDER = Path(spark_integration.__file__).parent


def _example(words: str) -> str:
    """The example in the README that contains these words."""
    (found,) = (
        text
        for text in re.findall(r"```python\n(.*?)```", (_FOLDER / "README.md").read_text(), re.DOTALL)
        if words in text
    )
    return str(found)


def _run(*words: str, at: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    found_here = {**os.environ, "PYTHONPATH": str(_FOLDER.parent), **variables}
    ran = subprocess.run([sys.executable, *words], cwd=at, env=found_here, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran


def test_the_example_of_a_test_passes(tmp_path: Path) -> None:
    text = _example("def test_")
    assert len([line for line in text.splitlines() if line]) <= 10
    (tmp_path / "test_orders.py").write_text(text)
    told = _run("-m", "pytest", "-p", "no:cacheprovider", "test_orders.py", at=tmp_path).stdout
    assert "1 passed" in told


def test_the_example_of_a_session_with_a_broker_prints_its_table_and_no_banner(tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text(_example("spark_integration.local"))
    ran = _run("orders.py", at=tmp_path)
    told = re.findall(r"\|\s*(\w+)\|\s*(\d+)\|", ran.stdout)
    assert sorted(told) == [("ann", "2"), ("bob", "1")]
    assert ran.stderr == ""


def test_an_error_in_the_jvm_is_on_stderr_and_a_warning_is_not(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    assert spark._jvm is not None
    log4j = spark._jvm.org.apache.logging.log4j.LogManager
    before = log4j.getRootLogger().getLevel().toString()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        log4j.getLogger("some.room").warn("the disk is nearly full")
        log4j.getLogger("some.room").error("the disk is full")
    finally:
        spark.sparkContext.setLogLevel(before)
    seen = [""]

    def arrived() -> bool:
        seen[0] += capfd.readouterr().err
        return "\n" in seen[0]

    until(arrived, 30)
    assert seen[0].endswith("ERROR room: the disk is full\n")
    assert "nearly" not in seen[0]


def test_stderr_of_the_jvm_is_copied_without_javas_banner() -> None:
    read, write = os.pipe()
    said = b"WARNING: Using incubator modules: jdk.incubator.vector\nERROR Executor: disk full\n\tat some.Class"
    try:
        jvm.copy_errors(io.BytesIO(said), write)
        assert os.read(read, 1000) == b"ERROR Executor: disk full\n\tat some.Class"
    finally:
        os.close(read)
        os.close(write)


def test_a_jvm_that_does_not_start_leaves_its_reason_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    monkeypatch.setenv("JAVA_HOME", "/no/java/here")
    with pytest.raises(PySparkRuntimeError, match="JAVA_GATEWAY_EXITED"):
        jvm.start(SparkConf(loadDefaults=False))
    assert "/no/java/here/bin/java: No such file" in capfd.readouterr().err


def test_a_log4j2_file_in_the_configuration_directory_is_left_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert "log4j2.properties" in jvm.quiet_settings()["spark.driver.defaultJavaOptions"]
    (tmp_path / "log4j2.properties").write_text("rootLogger.level = debug")
    assert jvm.quiet_settings() == {}


def test_settings_given_to_spark_submit_are_found(spark: SparkSession, tmp_path: Path) -> None:
    """The process below is connected to the JVM of the fixture, as spark-submit connects one to its own."""
    assert spark.sparkContext._gateway is not None
    gateway = spark.sparkContext._gateway.gateway_parameters
    code = "from spark_integration.jvm import submitted_settings as found; print(found()['spark.master'])"
    submitted = {"PYSPARK_GATEWAY_PORT": str(gateway.port), "PYSPARK_GATEWAY_SECRET": gateway.auth_token}
    assert _run("-c", code, at=tmp_path, **submitted).stdout.strip() == spark.sparkContext.master


def test_a_session_that_runs_already_goes_on_running(spark: SparkSession) -> None:
    with spark_integration.local(config={"num.partitions": 3}) as (same, broker):
        to_topic(same.createDataFrame([("one",)], "value string"), broker, "words")
        assert from_topic(same, broker, "words").count() == 1
        assert broker.config["num.partitions"] == 3
    assert spark.range(3).count() == 3


def test_rows_become_json_and_come_back_by_their_schema(spark: SparkSession, kafka: Broker) -> None:
    people = spark.createDataFrame([("ann", 3, None), ("bob", None, [1.5])], "name string, n int, list array<double>")
    to_topic(people, kafka, "people", key="name")
    records = from_topic(spark, kafka, "people")
    texts = records.selectExpr("cast(key as string)", "cast(value as string)").collect()
    assert sorted(map(tuple, texts)) == [("ann", '{"name":"ann","n":3}'), ("bob", '{"name":"bob","list":[1.5]}')]
    back = from_topic(spark, kafka, "people", schema=people.schema)
    assert sorted(map(tuple, back.collect())) == sorted(map(tuple, people.collect()))


def test_a_frame_of_records_goes_as_it_is(spark: SparkSession, kafka: Broker) -> None:
    schema = "key string, value string, partition int, headers array<struct<key: string, value: binary>>"
    to_topic(spark.createDataFrame([("k", "v", 0, [("h", b"x")])], schema), kafka.bootstrap_servers, "records")
    (row,) = from_topic(spark, kafka.bootstrap_servers, "records", startingOffsets="earliest").collect()
    assert (row.key, row.value, row.partition, row.headers[0].key) == (b"k", b"v", 0, "h")


def test_a_connector_that_is_given_is_not_fetched(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    assert spark_integration.session(settings={"spark.jars": "some.jar"}) is not None
    assert not list(tmp_path.iterdir())
