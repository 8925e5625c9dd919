"""The module `aiokafka.coordinator.assignors.sticky.sticky_assignor`."""

from ottla.client.aiokafka.assignors import StickyPartitionAssignor

__all__ = ["StickyPartitionAssignor"]
