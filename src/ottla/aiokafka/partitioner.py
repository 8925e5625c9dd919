"""The module `aiokafka.partitioner`."""

from ottla.client.aiokafka.partitioner import DefaultPartitioner, murmur2

__all__ = ["DefaultPartitioner", "murmur2"]
