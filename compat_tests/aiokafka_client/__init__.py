"""aiokafka: the asyncio client."""

from compat_tests.aiokafka_client.adapter import AiokafkaClient

__all__ = ["AiokafkaClient"]
