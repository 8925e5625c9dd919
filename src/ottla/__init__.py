"""Ottla: a message broker that speaks the Kafka protocol.

    from ottla import Admin, Consumer, Producer

Names come in when they are first used: `import ottla` alone costs nothing. All errors are in `ottla.errors`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ottla.version import __version__

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin
    from ottla.client.consumer.consumer import Consumer
    from ottla.client.consumer.interceptors import ConsumerInterceptor
    from ottla.client.consumer.rebalance_listener import ConsumerRebalanceListener
    from ottla.client.errors import KafkaError
    from ottla.client.producer.interceptors import ProducerInterceptor, ProducerRecord
    from ottla.client.producer.producer import Producer
    from ottla.client.types import (
        ConsumerGroupMetadata,
        ConsumerRecord,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        RecordMetadata,
        TopicPartition,
    )

__all__ = [
    "Admin",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerInterceptor",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "KafkaError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "Producer",
    "ProducerInterceptor",
    "ProducerRecord",
    "RecordMetadata",
    "TopicPartition",
    "__version__",
]

_MODULES = {
    "Admin": "ottla.client.admin.admin",
    "Consumer": "ottla.client.consumer.consumer",
    "ConsumerGroupMetadata": "ottla.client.types",
    "ConsumerInterceptor": "ottla.client.consumer.interceptors",
    "ConsumerRebalanceListener": "ottla.client.consumer.rebalance_listener",
    "ConsumerRecord": "ottla.client.types",
    "KafkaError": "ottla.client.errors",
    "OffsetAndMetadata": "ottla.client.types",
    "OffsetAndTimestamp": "ottla.client.types",
    "Producer": "ottla.client.producer.producer",
    "ProducerInterceptor": "ottla.client.producer.interceptors",
    "ProducerRecord": "ottla.client.producer.interceptors",
    "RecordMetadata": "ottla.client.types",
    "TopicPartition": "ottla.client.types",
}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(module), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
