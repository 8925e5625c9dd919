"""The module `aiokafka.abc`."""

from ottla.client.aiokafka.abc import AbstractTokenProvider, ConsumerRebalanceListener

__all__ = ["AbstractTokenProvider", "ConsumerRebalanceListener"]
