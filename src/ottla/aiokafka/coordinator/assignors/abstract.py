"""The module `aiokafka.coordinator.assignors.abstract`."""

from ottla.client.aiokafka.assignors import AbstractPartitionAssignor

__all__ = ["AbstractPartitionAssignor"]
