"""Every error that the clients raise.

    from ottla.errors import KafkaError, TopicAuthorizationFailedError

All errors are KafkaErrors. There are two kinds:

    KafkaError
    ├── one class for each error code of a broker, under the name that other Python clients use:
    │   UnknownTopicOrPartitionError, NotLeaderForPartitionError, TopicAuthorizationFailedError, ...
    │   OffsetOutOfRangeError
    │   └── LogTruncationError
    └── LocalError: errors of the client itself, without a code from a broker
        ├── KafkaConnectionError
        │   └── NoBrokersAvailable
        ├── KafkaTimeoutError
        ├── KafkaConfigurationError
        ├── IllegalStateError
        │   ├── ProducerClosed
        │   └── ConsumerStoppedError
        ├── CommitFailedError
        ├── SerializationError
        └── TransactionAbortedError

What to do depends on three attributes:

    retriable   The same call may succeed later. The clients have retried already, until their timeout.
    abortable   In a transaction: abort it, and begin another one.
    fatal       In a transaction: this producer cannot go on. Close it and create another one.

`errno`, `message` and `description` are the number, the name and the meaning of the error in Kafka's protocol. `detail`
says what went wrong in this case, and the text of the error also says what to do about it.
"""

from __future__ import annotations

from ottla.client import errors as _errors
from ottla.client.errors import *  # noqa: F403 - the errors of the client itself
from ottla.client.errors.error_classes import *  # noqa: F403 - one class for each code

__all__ = sorted(name for name in _errors.__all__ if isinstance(getattr(_errors, name), type))  # noqa: PLE0605
