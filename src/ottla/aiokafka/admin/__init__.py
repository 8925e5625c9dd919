"""The module `aiokafka.admin`."""

from ottla.client.aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete

__all__ = ["AIOKafkaAdminClient", "NewPartitions", "NewTopic", "RecordsToDelete"]
