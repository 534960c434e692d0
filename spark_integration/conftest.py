"""The brokers and the comparison are those of the compatibility tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

pytest_plugins = ["compat_tests.plugin"]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(java_tools: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from spark_integration import session

    warehouse = tmp_path_factory.mktemp("warehouse")
    running = session("kbroker-tests", settings={"spark.sql.warehouse.dir": str(warehouse)})
    yield running
    running.stop()
