"""One session for all scenarios. The brokers are those of the other compatibility tests."""

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
def spark(spark_tools: None, spark: SparkSession) -> SparkSession:
    return spark
