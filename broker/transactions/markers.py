"""Sends the markers of decided transactions to the leaders of their partitions, until every partition has its marker.

One thread and one connection for each broker; what waits for a broker goes in one request. After an error that may
pass, the leader is looked up again. A coordinator that is replaced stops sending: its successor finds the decision in
the log and sends all markers again, with a higher coordinator epoch, so that a partition may get two of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Protocol

import structlog

from ottla.broker.coordination.work import Work
from ottla.broker.transactions.coordinator import CoordinatedTransaction, TransactionCoordinator
from ottla.broker.transactions.transaction import StoredTransaction, TransactionState
from ottla.protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.identifiers import NO_LEADER, TopicPartition
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

log = structlog.get_logger(__name__)

_RETRY_SECONDS: Final = 0.1
# The partition has its marker, or can never have one.
_DONE: Final = frozenset({ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT})
# A newer coordinator or producer has taken over.
_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})


class MarkerLink(Protocol):
    """A connection to a broker."""

    def write(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        """Send a request, and wait for the response. Raises KafkaError or ProtocolError."""
        ...

    def close(self) -> None:
        """Close it; a request under way fails."""
        ...


@dataclass(frozen=True, slots=True)
class Delivery:
    """The marker of one transaction, for some of its partitions."""

    entry: CoordinatedTransaction
    coordinator_epoch: int
    # The state in which the outcome was decided.
    decided: StoredTransaction
    partitions: frozenset[TopicPartition]

    def marker(self) -> WritableTxnMarker:
        """Return what the broker gets."""
        by_topic: dict[str, list[int]] = {}
        for topic, partition in sorted(self.partitions):
            by_topic.setdefault(topic, []).append(partition)
        return WritableTxnMarker(
            producer_id=self.decided.producer_id,
            producer_epoch=self.decided.producer_epoch,
            transaction_result=self.decided.state is TransactionState.PREPARE_COMMIT,
            topics=[
                WritableTxnMarkerTopic(name=topic, partition_indexes=partitions)
                for topic, partitions in by_topic.items()
            ],
            coordinator_epoch=self.coordinator_epoch,
        )


class MarkerSender:
    """The channels to all brokers. Thread-safe."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        leader_of: Callable[[TopicPartition], int | None],
        link_to: Callable[[int], MarkerLink | None],
    ) -> None:
        """`leader_of` returns the leader, NO_LEADER while there is none, and None for a partition that is gone.

        `link_to` returns a link to a broker, None while it has no address.
        """
        self._coordinator = coordinator
        self._leader_of = leader_of
        self._link_to = link_to
        self._lock = threading.Lock()
        self._channels: dict[int, MarkerChannel] = {}
        self._is_started = False
        # Looks for leaders again.
        self.work = Work("transaction-markers")

    def start(self) -> None:
        """Start to send what is handed in."""
        self.work.start()
        with self._lock:
            self._is_started = True
            channels = list(self._channels.values())
        for channel in channels:
            channel.start()

    def stop(self) -> None:
        """Drop what waits, and end requests under way. The decisions are in the log."""
        with self._lock:
            self._is_started = False
            channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            channel.stop()
        self.work.stop()

    def send(self, entry: CoordinatedTransaction) -> None:
        """Send the markers that a decided transaction still lacks."""
        with entry.lock:
            transaction = entry.transaction
            if not transaction.state.is_prepared:
                return
            delivery = Delivery(entry, entry.shard.epoch, transaction.stored, frozenset(transaction.unmarked))
        self.route(delivery)

    def route(self, delivery: Delivery) -> None:
        """Queue a delivery for the present leaders of its partitions."""
        if not self._coordinator.coordinates(delivery.entry, delivery.coordinator_epoch):
            return
        by_leader: dict[int | None, set[TopicPartition]] = {}
        for partition in delivery.partitions:
            by_leader.setdefault(self._leader_of(partition), set()).add(partition)
        for partition in by_leader.pop(None, ()):
            self._marked(delivery, partition)
        for leader, partitions in by_leader.items():
            assert leader is not None
            part = replace(delivery, partitions=frozenset(partitions))
            if leader == NO_LEADER:
                self.route_later(part)
            else:
                self.channel(leader).add(part)

    def route_later(self, delivery: Delivery) -> None:
        """Look for the leaders again after a while."""
        self.work.submit(lambda: self.route(delivery), _RETRY_SECONDS)

    def channel(self, broker: int) -> MarkerChannel:
        """Return the channel to a broker."""
        with self._lock:
            channel = self._channels.get(broker)
            if channel is None:
                channel = self._channels[broker] = MarkerChannel(broker, self, lambda: self._link_to(broker))
                if self._is_started:
                    channel.start()
        return channel

    def answered(self, delivery: Delivery, codes: dict[TopicPartition, ErrorCode]) -> None:
        """Take the answer of a broker: partitions that have their marker, and those to try again or to give up."""
        again: set[TopicPartition] = set()
        for partition in delivery.partitions:
            code = codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code in _DONE:
                self._marked(delivery, partition)
            elif code in _FENCED:
                log.warning(
                    "transaction_marker_fenced",
                    transactional_id=delivery.entry.transaction.transactional_id,
                    partition=str(partition),
                    producer_epoch=delivery.decided.producer_epoch,
                    coordinator_epoch=delivery.coordinator_epoch,
                    error=code.name,
                )
            else:
                again.add(partition)
        if again:
            self.route_later(replace(delivery, partitions=frozenset(again)))

    def _marked(self, delivery: Delivery, partition: TopicPartition) -> None:
        self._coordinator.marked(delivery.entry, delivery.coordinator_epoch, delivery.decided, partition)


class MarkerChannel:
    """What waits for one broker, and the thread that sends it."""

    def __init__(self, broker: int, sender: MarkerSender, connect: Callable[[], MarkerLink | None]) -> None:
        self._broker = broker
        self._sender = sender
        self._connect = connect
        self._work = Work(f"transaction-markers-to-{broker}")
        # The fields below change under `_lock`.
        self._lock = threading.Lock()
        self._link: MarkerLink | None = None
        # By the decision, and the epoch in which it is sent: one that waits already gets further partitions.
        self._waiting: dict[tuple[int, int], Delivery] = {}
        self._is_stopped = False

    def start(self) -> None:
        """Start the thread."""
        self._work.start()

    def stop(self) -> None:
        """Drop what waits, cut a request under way short, and wait for the thread."""
        with self._lock:
            self._is_stopped = True
            self._waiting.clear()
        self._drop_link()
        self._work.stop()

    def add(self, delivery: Delivery) -> None:
        """Queue a delivery."""
        key = (id(delivery.decided), delivery.coordinator_epoch)
        with self._lock:
            if self._is_stopped:
                return
            is_first = not self._waiting
            waiting = self._waiting.get(key)
            if waiting is not None:
                delivery = replace(delivery, partitions=delivery.partitions | waiting.partitions)
            self._waiting[key] = delivery
        if is_first:
            self._work.submit(self.send_waiting)

    def send_waiting(self) -> None:
        """Send all that waits in one request, on the calling thread."""
        with self._lock:
            deliveries, self._waiting = list(self._waiting.values()), {}
        if not deliveries:
            return
        request = WriteTxnMarkersRequest(markers=[delivery.marker() for delivery in deliveries])
        try:
            response = self._linked().write(request)
        except (KafkaError, ProtocolError) as error:
            self._drop_link()
            log.info("transaction_markers_not_sent", broker=self._broker, count=len(deliveries), reason=str(error))
            for delivery in deliveries:
                self._sender.route_later(delivery)
            return
        codes = _codes(response)
        for delivery in deliveries:
            self._sender.answered(delivery, codes.get(delivery.decided.producer_id, {}))

    def _linked(self) -> MarkerLink:
        """Return the link; nobody makes one but the thread that sends."""
        link = self._link or self._connect()
        if link is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {self._broker} has no address")
        with self._lock:
            if not self._is_stopped:
                self._link = link
                return link
        link.close()
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "this broker stops")

    def _drop_link(self) -> None:
        """Connect anew next time: the broker may have another address by then."""
        with self._lock:
            link, self._link = self._link, None
        if link is not None:
            with suppress(OSError):
                link.close()


def _codes(response: WriteTxnMarkersResponse) -> dict[int, dict[TopicPartition, ErrorCode]]:
    """Return the codes by producer id and partition."""
    codes: dict[int, dict[TopicPartition, ErrorCode]] = {}
    for marker in response.markers:
        of_producer = codes.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for result in topic.partitions:
                of_producer[TopicPartition(topic.name, result.partition_index)] = ErrorCode.of(result.error_code)
    return codes
