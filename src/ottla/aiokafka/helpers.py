"""The module `aiokafka.helpers`."""

from ottla.client.aiokafka.helpers import create_ssl_context

__all__ = ["create_ssl_context"]
