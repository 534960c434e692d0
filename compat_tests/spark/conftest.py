"""One session for all scenarios. The brokers are those of the other compatibility tests, but look for what is old."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark_settings() -> Mapping[str, str]:
    return {
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "OFF",  # some scenarios are about failures
        "spark.sql.adaptive.enabled": "false",  # its re-planning costs more than queries of this size
    }


@pytest.fixture(scope="session")
def broker_settings(broker_settings: dict[str, str]) -> dict[str, str]:
    """Retention is looked at often enough to be waited for. It holds for topics that name one: records are of 2023."""
    return {
        **broker_settings,
        "log.initial.task.delay.ms": "0",
        "log.retention.check.interval.ms": "200",
        "log.retention.ms": "-1",
    }


@pytest.fixture(scope="session")
def spark(spark_tools: None, spark: SparkSession) -> SparkSession:
    return spark
