"""Sends the markers of decided transactions to the leaders of their partitions, until every partition has its marker.

Partitions that this broker leads get theirs at once; the others in requests to their leaders. After an error that may
pass, the leader is looked up again. A coordinator that is replaced stops sending: its successor finds the decision in
the log and sends all markers again, with a higher coordinator epoch, so that a partition may get two of them.

A request whose answer is lost is sent again, and the first one may come in late, when the producer has begun its next
transaction. So each decision has a number, which our brokers compare (`Producers.check`). Kafka's ignore it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Final

import structlog
from msgspec import Struct
from msgspec.structs import replace

from ottla.broker.coordination.broker_channels import BrokerChannels, Link
from ottla.broker.coordination.work import Work
from ottla.broker.storage.producers.producers import TransactionNumber
from ottla.broker.transactions.coordinator import CoordinatedTransaction, TransactionCoordinator
from ottla.broker.transactions.transaction import StoredTransaction, TransactionState
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
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

Codes = Mapping[TopicPartition, ErrorCode]
# Writes a marker to partitions of this broker, and calls back with their codes.
WriteHere = Callable[[WritableTxnMarker, Callable[[Codes], None]], None]


class MarkerDelivery(Struct, frozen=True):
    """The marker of one transaction, for some of its partitions."""

    entry: CoordinatedTransaction
    coordinator_epoch: int
    # The state in which the outcome was decided.
    decided: StoredTransaction
    number: TransactionNumber
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
            transaction_number=self.number.number,
            coordinator_broker_epoch=self.number.broker_epoch,
        )


class MarkerSender:
    """Where the markers of this coordinator are on their way. Thread-safe."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        broker_id: int,
        broker_epoch: Callable[[], int],
        leader_of: Callable[[TopicPartition], int | None],
        write_here: WriteHere,
        link_to: Callable[[int], Link],
    ) -> None:
        """`broker_epoch` returns the present one, -1 while this broker is not registered.

        `leader_of` returns the leader, NO_LEADER while there is none, and None for a partition that is gone.
        """
        self._coordinator = coordinator
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        # The highest so far.
        self._known_broker_epoch = -1
        self._leader_of = leader_of
        self._write_here = write_here
        self._numbers = count()
        self.channels: BrokerChannels[MarkerDelivery] = BrokerChannels(
            "transaction-markers-to", link_to, self._send, self._not_sent
        )
        # Looks for leaders again.
        self.work = Work("transaction-markers")

    def start(self) -> None:
        """Start to send what is handed in."""
        self.work.start()
        self.channels.start()

    def stop(self) -> None:
        """Drop what waits, and end requests under way. The decisions are in the log."""
        self.channels.stop()
        self.work.stop()

    def send(self, entry: CoordinatedTransaction) -> None:
        """Send the markers that a decided transaction still lacks."""
        with entry.lock:
            transaction = entry.transaction
            if not transaction.state.is_prepared:
                return
            partitions = frozenset(transaction.unmarked)
            delivery = MarkerDelivery(entry, entry.shard.epoch, transaction.stored, self._next_number(), partitions)
        self.route(delivery)

    def route(self, delivery: MarkerDelivery) -> None:
        """Send a delivery to the present leaders of its partitions."""
        if not self._coordinator.coordinates(delivery.entry, delivery.coordinator_epoch):
            return
        by_leader: dict[int | None, set[TopicPartition]] = {}
        for partition in delivery.partitions:
            by_leader.setdefault(self._leader_of(partition), set()).add(partition)
        for partition in by_leader.pop(None, ()):
            self._marked(delivery, partition)
        here = by_leader.pop(self._broker_id, None)
        for leader, partitions in by_leader.items():
            assert leader is not None
            part = replace(delivery, partitions=frozenset(partitions))
            if leader == NO_LEADER:
                self._route_later(part)
            else:
                self.channels.to(leader).add(part)
        if here:
            part = replace(delivery, partitions=frozenset(here))
            self._write_here(part.marker(), lambda codes: self._answered(part, codes))

    def _next_number(self) -> TransactionNumber:
        self._known_broker_epoch = max(self._known_broker_epoch, self._broker_epoch())
        return TransactionNumber(self._known_broker_epoch, next(self._numbers))

    @property
    def waiting(self) -> int:
        """How many deliveries wait to be sent again."""
        return len(self.work)

    def _route_later(self, delivery: MarkerDelivery) -> None:
        self.work.submit(lambda: self.route(delivery), _RETRY_SECONDS)

    def _send(self, link: Link, deliveries: Sequence[MarkerDelivery]) -> None:
        request = WriteTxnMarkersRequest(markers=[delivery.marker() for delivery in deliveries])
        response = link.request(Api.WRITE_TXN_MARKERS, lambda version: request)
        codes = _codes(response)
        for delivery in deliveries:
            self._answered(delivery, codes.get(delivery.decided.producer_id, {}))

    def _not_sent(self, broker: int, deliveries: Sequence[MarkerDelivery], error: Exception) -> None:
        log.info("transaction_markers_not_sent", broker=broker, count=len(deliveries), reason=str(error))
        for delivery in deliveries:
            self._route_later(delivery)

    def _answered(self, delivery: MarkerDelivery, codes: Codes) -> None:
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
            self._route_later(replace(delivery, partitions=frozenset(again)))

    def _marked(self, delivery: MarkerDelivery, partition: TopicPartition) -> None:
        self._coordinator.marked(delivery.entry, delivery.coordinator_epoch, delivery.decided, partition)


def _codes(response: WriteTxnMarkersResponse) -> dict[int, dict[TopicPartition, ErrorCode]]:
    """Return the codes by producer id and partition."""
    codes: dict[int, dict[TopicPartition, ErrorCode]] = {}
    for marker in response.markers:
        of_producer = codes.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for result in topic.partitions:
                of_producer[TopicPartition(topic.name, result.partition_index)] = ErrorCode.of(result.error_code)
    return codes
