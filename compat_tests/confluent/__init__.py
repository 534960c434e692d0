"""confluent-kafka: librdkafka, the client beneath most of the languages that are not Java."""

from compat_tests.confluent.adapter import ConfluentClient

__all__ = ["ConfluentClient"]
