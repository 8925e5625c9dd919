"""aiokafka's API on Ottla's clients: change the import, and nothing else.

    from ottla.aiokafka import AIOKafkaConsumer, AIOKafkaProducer

Names, arguments, defaults, results and errors are those of aiokafka 0.14; its modules are here under the same names.
"""

from ottla.client.aiokafka.abc import ConsumerRebalanceListener
from ottla.client.aiokafka.client import AIOKafkaClient
from ottla.client.aiokafka.consumer import AIOKafkaConsumer
from ottla.client.aiokafka.errors import ConsumerStoppedError, IllegalOperation
from ottla.client.aiokafka.options import VERSION
from ottla.client.aiokafka.producer import AIOKafkaProducer
from ottla.client.aiokafka.structs import ConsumerRecord, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

__version__ = VERSION

__all__ = [
    "AIOKafkaClient",
    "AIOKafkaConsumer",
    "AIOKafkaProducer",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerStoppedError",
    "IllegalOperation",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "TopicPartition",
    "__version__",
]
