"""The module `aiokafka.admin.config_resource`."""

from ottla.client.aiokafka.admin import ConfigResource, ConfigResourceType

__all__ = ["ConfigResource", "ConfigResourceType"]
