"""Every scenario, on both brokers or on those that the run was told."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compat_tests.plugin import Compare
from compat_tests.spark import (  # noqa: F401 - they register themselves
    batch_reads,
    batch_writes,
    losses,
    queries,
    stream_reads,
    stream_writes,
    transactions,
)
from compat_tests.spark.stage import SCENARIOS, Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Not counted are the fixtures: a JVM has to start and, for the first time, Maven to bring the connector.
pytestmark = pytest.mark.timeout(600, func_only=True)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_spark_sees_no_difference(
    *,
    request: pytest.FixtureRequest,
    scenario: str,
    topic: str,
    comparing: Compare,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    request.node.compat_row = ("spark", scenario)
    run = SCENARIOS[scenario]
    comparing("spark", scenario, lambda broker: run(Stage(spark, broker, topic, tmp_path / broker.name)))
