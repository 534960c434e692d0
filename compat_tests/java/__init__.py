"""The Java client: Kafka's own, the one that Spark, Flink and Connect use."""

from compat_tests.java.adapter import JavaClient

__all__ = ["JavaClient"]
