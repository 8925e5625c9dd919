"""The module `aiokafka.coordinator.protocol`."""

from ottla.client.aiokafka.assignors import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

__all__ = ["ConsumerProtocolMemberAssignment", "ConsumerProtocolMemberMetadata"]
