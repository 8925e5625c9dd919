"""The module `aiokafka.client`."""

from ottla.client.aiokafka.client import AIOKafkaClient

__all__ = ["AIOKafkaClient"]
