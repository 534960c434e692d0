"""Spark with its Kafka connector in place: `session(...)` gives a SparkSession that speaks format("kafka"), and
`local(...)` one with a broker to talk to."""

from spark_integration.connector import ConnectorError, connector_coordinates, connector_jars
from spark_integration.session import local, session

__all__ = ["ConnectorError", "connector_coordinates", "connector_jars", "local", "session"]
