"""How the controller's requests reach the brokers: one thread, one connection and one queue for each broker.

A broker gets its requests in order. The first one is sent again, less and less often, until the broker answers or
leaves the cluster. Batches that wait behind it are merged, so the queue grows only if merging would break the order.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog

from ottla.broker.controller.messages.batch import BrokerBatch, ControllerRequest
from ottla.client.net.backoff import Backoff
from ottla.client.net.blocking_connection import BlockingConnection
from ottla.protocol.errors import ErrorCode, KafkaError, ProtocolError

log = structlog.get_logger(__name__)

BATCHES_MAX: Final = 1000

_RETRY_MS: Final = 100
# The longest pause: a broker that is reachable again is sent what it missed after this time at most.
_RETRY_MS_MAX: Final = 2_000

# Called with the broker, the request and the response, on the thread of the channel.
OnResponse = Callable[[int, ControllerRequest, Any], None]


class BrokerChannel:
    """The connection to one broker, in one of its registrations."""

    def __init__(
        self,
        broker_id: int,
        connection: BlockingConnection,
        on_response: OnResponse,
        on_overflow: Callable[[int], None],
    ) -> None:
        """`on_overflow` is called when a broker is so far behind that its queue is dropped."""
        self._broker_id = broker_id
        self._connection = connection
        self._on_response = on_response
        self._on_overflow = on_overflow
        # The three fields below change under `_changed`.
        self._changed = threading.Condition()
        self._waiting: deque[BrokerBatch] = deque()
        self._is_sending = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"controller-to-{broker_id}", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<BrokerChannel to {self._broker_id} waiting={len(self._waiting)}>"

    @property
    def queue_size(self) -> int:
        """The number of batches that the broker has not answered yet."""
        with self._changed:
            return len(self._waiting) + self._is_sending

    def send(self, batch: BrokerBatch) -> None:
        """Queue a batch without blocking."""
        with self._changed:
            if self._closed or (self._waiting and self._waiting[-1].absorb(batch)):
                return
            is_full = len(self._waiting) >= BATCHES_MAX
            if is_full:
                self._waiting.clear()
            else:
                self._waiting.append(batch)
            self._changed.notify_all()
        if is_full:
            log.error("controller_channel_overflow", broker=self._broker_id)
            self._on_overflow(self._broker_id)

    def close(self) -> None:
        """Drop the queue and abort the current request; does not wait for the thread, which may be connecting."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
        self._connection.close()

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            for request in batch.requests():
                response = self._deliver(request)
                if response is None:
                    return
                self._on_response(self._broker_id, request, response)

    def _next(self) -> BrokerBatch | None:
        with self._changed:
            self._is_sending = False
            while not self._waiting and not self._closed:
                self._changed.wait()
            if self._closed:
                return None
            self._is_sending = True
            return self._waiting.popleft()

    def _deliver(self, request: ControllerRequest) -> Any | None:
        """Send a request until it is answered; None if the channel is closed first."""
        backoff = Backoff(_RETRY_MS, _RETRY_MS_MAX)
        while not self._closed:
            try:
                response = self._request(request)
            except (KafkaError, ProtocolError) as error:
                if not backoff.failures and not self._closed:
                    log.warning(
                        "controller_request_failed", broker=self._broker_id, api=request.api.label, reason=str(error)
                    )
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, timeout=backoff.next())
                continue
            if response.error_code != ErrorCode.NONE:
                code = ErrorCode.of(response.error_code)
                log.warning(
                    "controller_request_refused", broker=self._broker_id, api=request.api.label, error=code.name
                )
            return response
        return None

    def _request(self, request: ControllerRequest) -> Any:
        api, version, message, body = request
        if body is None:
            return self._connection.request(api, version, message)
        return self._connection.request_encoded(api, version, body)


class Channels:
    """The channels to all live brokers. Used by the controller's thread, except where a method says otherwise."""

    def __init__(
        self,
        connect: Callable[[int], BlockingConnection | None],
        on_response: OnResponse,
        on_overflow: Callable[[int], None],
    ) -> None:
        """`connect` returns a connection to a broker, opened later; None if the broker has no address."""
        self._connect = connect
        self._on_response = on_response
        self._on_overflow = on_overflow
        self._channels: dict[int, BrokerChannel] = {}

    @property
    def queue_size(self) -> int:
        """The number of batches that brokers have not answered yet. Any thread may ask."""
        return sum(channel.queue_size for channel in list(self._channels.values()))

    def open(self, broker_id: int) -> None:
        """Open the channel to a broker that became live."""
        connection = self._connect(broker_id)
        if connection is not None:
            self._channels[broker_id] = BrokerChannel(broker_id, connection, self._on_response, self._on_overflow)

    def close(self, broker_id: int) -> None:
        """Close the channel to a broker that is gone."""
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            channel.close()

    def close_all(self) -> None:
        """Close all channels."""
        for broker_id in list(self._channels):
            self.close(broker_id)

    def send(self, batches: Mapping[int, BrokerBatch]) -> None:
        """Queue the batches of an event."""
        for broker_id, batch in batches.items():
            channel = self._channels.get(broker_id)
            if channel is not None:
                channel.send(batch)
