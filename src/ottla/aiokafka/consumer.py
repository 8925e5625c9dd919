"""The module `aiokafka.consumer`."""

from ottla.client.aiokafka.consumer import AIOKafkaConsumer

__all__ = ["AIOKafkaConsumer"]
