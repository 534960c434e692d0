"""kafka-python: the pure Python client."""

from compat_tests.kafka_python.adapter import KafkaPythonClient

__all__ = ["KafkaPythonClient"]
