"""A batch that the caller fills, with aiokafka's methods."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ottla.client.producer.producer_batch import BatchBuilder as OurBatchBuilder


class BatchRecordMetadata(NamedTuple):
    """A record of a batch that is not sent yet."""

    offset: int
    size: int
    timestamp: int
    crc: int | None = None


class BatchBuilder:
    """Takes records until it is full or closed, for `send_batch`."""

    def __init__(
        self,
        batch: OurBatchBuilder,
        key_serializer: Callable[[Any], Any] | None = None,
        value_serializer: Callable[[Any], Any] | None = None,
    ) -> None:
        self.ours = batch
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._closed = False

    def append(
        self, *, timestamp: int | None, key: Any, value: Any, headers: Sequence[Any] = ()
    ) -> BatchRecordMetadata | None:
        """Add a record, with its timestamp in milliseconds; return None if the batch is full or closed."""
        if self._closed:
            return None
        if self._key_serializer is not None:
            key = self._key_serializer(key)
        if self._value_serializer is not None:
            value = self._value_serializer(value)
        before = self.ours.size()
        timestamp = int(time.time() * 1000) if timestamp is None else timestamp
        index = self.ours.append(value=value, key=key, timestamp=timestamp, headers=headers or ())
        if index is None:
            self.close()
            return None
        return BatchRecordMetadata(index, self.ours.size() - before, timestamp)

    def close(self) -> None:
        """Take no more records."""
        self._closed = True

    def closed(self) -> bool:
        """Return whether it takes no more records."""
        return self._closed

    def size(self) -> int:
        """Return its size in bytes, before compression."""
        return self.ours.size()

    def record_count(self) -> int:
        """Return the number of records."""
        return self.ours.record_count()
