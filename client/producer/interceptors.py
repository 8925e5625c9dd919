"""Code of the program that sees each record on its way: before it is sent, and when it is written or has failed."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from ottla.client.producer.producer_batch import Delivery
from ottla.client.types import RecordMetadata
from ottla.protocol.record_batch_builder import HeadersToWrite

log = logging.getLogger(__name__)


class ProducerRecord(NamedTuple):
    """The arguments of `send`, before key and value are serialized."""

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: HeadersToWrite | None = None


class ProducerInterceptor:
    """Subclass it and override one method or both. Both run on the event loop, so they must not block.

    An error in a method is logged, and changes nothing for the record.
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send: this one, or another, such as `record._replace(headers=...)`."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: BaseException | None) -> None:
        """A record was written, or has failed with an error."""


class ProducerInterceptors:
    """All interceptors of a producer, in order."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor]) -> None:
        self._interceptors = interceptors

    def around(self, send: Callable[..., Awaitable[Delivery]]) -> Callable[..., Coroutine[Any, Any, Delivery]]:
        """Return `Producer.send` with the interceptors around it."""

        async def intercepted(
            topic: str,
            value: Any = None,
            key: Any = None,
            partition: int | None = None,
            timestamp_ms: int | None = None,
            headers: HeadersToWrite | None = None,
        ) -> Delivery:
            record = self._on_send(ProducerRecord(topic, value, key, partition, timestamp_ms, headers))
            try:
                delivery = await send(*record)
            except Exception as error:
                self._acknowledged(None, error)
                raise
            delivery.add_done_callback(self._delivered)
            return delivery

        return intercepted

    def _on_send(self, record: ProducerRecord) -> ProducerRecord:
        for interceptor in self._interceptors:
            try:
                record = ProducerRecord(*interceptor.on_send(record))
            except Exception:
                log.exception("on_send of %s failed", type(interceptor).__name__)
        return record

    def _delivered(self, delivery: Delivery) -> None:
        error = delivery.exception()
        self._acknowledged(None if error is not None else delivery.result(), error)

    def _acknowledged(self, metadata: RecordMetadata | None, error: BaseException | None) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.on_acknowledgement(metadata, error)
            except Exception:
                log.exception("on_acknowledgement of %s failed", type(interceptor).__name__)
