"""The module `aiokafka.coordinator.assignors.roundrobin`."""

from ottla.client.aiokafka.assignors import RoundRobinPartitionAssignor

__all__ = ["RoundRobinPartitionAssignor"]
