"""Turns our errors into aiokafka's, where they leave the clients."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Final, ParamSpec, TypeVar

from ottla.client import errors as ours
from ottla.client.aiokafka import errors
from ottla.client.aiokafka.structs import TopicPartition
from ottla.protocol.errors import ErrorCode

P = ParamSpec("P")
R = TypeVar("R")

_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
# By the class of the error; the first that fits counts.
_LOCAL: Final[tuple[tuple[type[ours.KafkaError], type[Exception]], ...]] = (
    (ours.ConsumerStoppedError, errors.ConsumerStoppedError),
    (ours.ProducerClosed, errors.ProducerClosed),
    (ours.IllegalStateError, errors.IllegalStateError),
    (ours.CommitFailedError, errors.CommitFailedError),
    (ours.KafkaTimeoutError, errors.KafkaTimeoutError),
    (ours.KafkaConnectionError, errors.KafkaConnectionError),
    (ours.KafkaConfigurationError, errors.KafkaConfigurationError),
    (ours.TransactionAbortedError, errors.KafkaError),
    (ours.SaslAuthenticationFailedError, errors.AuthenticationFailedError),
)


def translated(error: BaseException) -> BaseException:
    """Return aiokafka's error for one of ours, with ours as its cause; other errors stay as they are."""
    if not isinstance(error, ours.KafkaError):
        return error
    made = _made(error)
    made.__cause__ = error
    return made


def _made(error: ours.KafkaError) -> Exception:
    if error.code in _FENCED:
        return errors.ProducerFenced()
    if isinstance(error, ours.OffsetOutOfRangeError) and error.offsets is not None:
        (partition, offset), *_ = error.offsets.items()
        if offset is None:
            return errors.NoOffsetForPartitionError(TopicPartition(*partition))
        return errors.OffsetOutOfRangeError({TopicPartition(*partition): offset})
    for known, theirs in _LOCAL:
        if isinstance(error, known):
            return theirs(error.detail) if error.detail else theirs()
    return errors.for_code(error.errno)(error.detail or error.description)


def translating(method: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return a coroutine method whose errors are aiokafka's."""

    @functools.wraps(method)
    async def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await method(*args, **kwargs)
        except ours.KafkaError as error:
            raise translated(error) from error

    return call
