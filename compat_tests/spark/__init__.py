"""Spark's format("kafka") over kbroker and over Apache Kafka: same connector, same options, same rows."""
