"""Code of the program that sees records before the caller gets them, and offsets when they are committed."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.client.types import ConsumerRecord, OffsetAndMetadata
from ottla.protocol.identifiers import TopicPartition

log = logging.getLogger(__name__)

RecordsByPartition = dict[TopicPartition, list[ConsumerRecord[Any, Any]]]


class ConsumerInterceptor:
    """Subclass it and override one method or both. Both run on the event loop, so they must not block.

    An error in a method is logged, and changes nothing for the records.
    """

    def on_consume(self, records: RecordsByPartition) -> RecordsByPartition:
        """Return the records for the caller: these, or others. Those left out count as read.

        `getbatches` and `getcolumns` return batches, which do not pass here.
        """
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Offsets were committed."""


class ConsumerInterceptors:
    """All interceptors of a consumer, in order."""

    def __init__(self, interceptors: Sequence[ConsumerInterceptor]) -> None:
        self._interceptors = interceptors

    def on_consume(self, records: RecordsByPartition) -> RecordsByPartition:
        """Return the records that the last of them returned, without empty lists."""
        for interceptor in self._interceptors:
            try:
                records = {partition: list(some) for partition, some in interceptor.on_consume(records).items()}
            except Exception:
                log.exception("on_consume of %s failed", type(interceptor).__name__)
        return {partition: some for partition, some in records.items() if some}

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Tell them of a commit."""
        for interceptor in self._interceptors:
            try:
                interceptor.on_commit(offsets)
            except Exception:
                log.exception("on_commit of %s failed", type(interceptor).__name__)
