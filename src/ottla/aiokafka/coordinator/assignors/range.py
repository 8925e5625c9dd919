"""The module `aiokafka.coordinator.assignors.range`."""

from ottla.client.aiokafka.assignors import RangePartitionAssignor

__all__ = ["RangePartitionAssignor"]
