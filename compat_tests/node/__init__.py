"""kafkajs: the client that most Node services have."""

from compat_tests.node.adapter import KafkaJsClient

__all__ = ["KafkaJsClient"]
