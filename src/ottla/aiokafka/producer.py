"""The module `aiokafka.producer`."""

from ottla.client.aiokafka.producer import AIOKafkaProducer

__all__ = ["AIOKafkaProducer"]
