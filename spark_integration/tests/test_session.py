"""A session and a broker in one call, the helpers for tests, and the examples of the README, run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import spark_integration
from kbroker import Broker
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


def _run(*words: str, at: Path) -> str:
    found_here = {**os.environ, "PYTHONPATH": str(_FOLDER.parent)}
    ran = subprocess.run([sys.executable, *words], cwd=at, env=found_here, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_the_example_of_a_test_passes(tmp_path: Path) -> None:
    text = _example("def test_")
    assert len([line for line in text.splitlines() if line]) <= 10
    (tmp_path / "test_orders.py").write_text(text)
    told = _run("-m", "pytest", "-p", "no:cacheprovider", "test_orders.py", at=tmp_path)
    assert "1 passed" in told


def test_the_example_of_a_session_with_a_broker_runs(tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text(_example("spark_integration.local"))
    told = re.findall(r"\|\s*(\w+)\|\s*(\d+)\|", _run("orders.py", at=tmp_path))
    assert sorted(told) == [("ann", "2"), ("bob", "1")]


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
