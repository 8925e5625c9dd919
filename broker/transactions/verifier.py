"""Asks coordinators whether a partition is part of a transaction, before its first batch is appended.

Without this, a batch that comes in late, after its transaction was aborted, would begin a transaction that nobody ends.
Questions to another broker go in AddPartitionsToTxn, which lists each transactional id once; those of one producer are
asked together, those of another one in the next request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct

from ottla.broker.coordination.broker_channels import BrokerChannels, Link
from ottla.broker.transactions.coordinator import TransactionCoordinator
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.identifiers import NO_LEADER, TopicPartition
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

# From this version on, brokers may ask without adding anything.
_VERIFY_ONLY_VERSION: Final = 4

Verified = Mapping[TopicPartition, ErrorCode]


class Question(Struct, frozen=True):
    """Which partitions are to be part of the transaction of a producer, and who wants to know."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Collection[TopicPartition]
    done: Callable[[Verified], None]

    @property
    def producer(self) -> tuple[int, int]:
        """The producer's id and epoch."""
        return self.producer_id, self.producer_epoch


class Verifier:
    """Asks the coordinators of all transactional ids. Thread-safe."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        broker_id: int,
        coordinator_of: Callable[[str], int],
        link_to: Callable[[int], Link],
    ) -> None:
        """`coordinator_of` returns the broker that coordinates a transactional id, NO_LEADER while there is none."""
        self._coordinator = coordinator
        self._broker_id = broker_id
        self._coordinator_of = coordinator_of
        # How many partitions could not be confirmed; for metrics, so lost updates do not matter.
        self.failures = 0
        self.channels: BrokerChannels[Question] = BrokerChannels(
            "transaction-verification-by", link_to, self._ask, self._not_asked
        )

    def start(self) -> None:
        """Start to ask."""
        self.channels.start()

    def stop(self) -> None:
        """Answer all questions with an error that passes."""
        self.channels.stop()

    def verify_here(self, question: Question) -> Verified | None:
        """Return the answer if no other broker must be asked; else None."""
        broker = self._coordinator_of(question.transactional_id)
        return None if self._is_elsewhere(broker) else self._answer(broker, question)

    def verify(self, question: Question) -> None:
        """Have a question answered, now or later.

        NONE: the partition is part of the transaction. NETWORK_EXCEPTION: the coordinator cannot be reached.
        """
        broker = self._coordinator_of(question.transactional_id)
        if self._is_elsewhere(broker):
            self.channels.to(broker).add(question)
        else:
            question.done(self._answer(broker, question))

    def _is_elsewhere(self, broker: int) -> bool:
        return broker not in (self._broker_id, NO_LEADER)

    def _answer(self, broker: int, question: Question) -> Verified:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if broker == self._broker_id:
            try:
                return self._counted(
                    self._coordinator.verify(question.transactional_id, *question.producer, question.partitions)
                )
            except KafkaError as error:
                code = error.code
        return self._counted(dict.fromkeys(question.partitions, code))

    def _counted(self, codes: Verified) -> Verified:
        self.failures += sum(code is not ErrorCode.NONE for code in codes.values())
        return codes

    def _ask(self, link: Link, questions: Sequence[Question]) -> None:
        left = questions
        while left:
            asked, left = _compatible(left)
            code, answers = _answers(link, asked)
            for question in asked:
                known = answers.get(question.transactional_id, {})
                question.done(
                    self._counted({partition: known.get(partition, code) for partition in question.partitions})
                )

    def _not_asked(self, broker: int, questions: Sequence[Question], error: Exception) -> None:
        for question in questions:
            question.done(self._counted(dict.fromkeys(question.partitions, ErrorCode.NETWORK_EXCEPTION)))


def _compatible(questions: Sequence[Question]) -> tuple[list[Question], list[Question]]:
    """Return the questions for one request, which has one producer for each transactional id, and the others."""
    producers: dict[str, tuple[int, int]] = {}
    first: list[Question] = []
    later: list[Question] = []
    for question in questions:
        is_first = producers.setdefault(question.transactional_id, question.producer) == question.producer
        (first if is_first else later).append(question)
    return first, later


def _answers(link: Link, asked: Sequence[Question]) -> tuple[ErrorCode, dict[str, dict[TopicPartition, ErrorCode]]]:
    """Ask a broker; return the answers by transactional id, and the code for partitions without an answer."""
    try:
        response: AddPartitionsToTxnResponse = link.request(
            Api.ADD_PARTITIONS_TO_TXN, lambda version: _request(version, asked)
        )
    except (KafkaError, ProtocolError) as error:
        # An old broker of Kafka cannot be asked.
        is_too_old = isinstance(error, KafkaError) and error.code is ErrorCode.UNSUPPORTED_VERSION
        return ErrorCode.NONE if is_too_old else ErrorCode.NETWORK_EXCEPTION, {}
    if response.error_code:
        return ErrorCode.of(response.error_code), {}
    answers = {
        result.transactional_id: {
            TopicPartition(topic.name, each.partition_index): ErrorCode.of(each.partition_error_code)
            for topic in result.topic_results
            for each in topic.results_by_partition
        }
        for result in response.results_by_transaction
    }
    return ErrorCode.UNKNOWN_SERVER_ERROR, answers


def _request(version: int, asked: Sequence[Question]) -> AddPartitionsToTxnRequest:
    if version < _VERIFY_ONLY_VERSION:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    producers = {question.transactional_id: question.producer for question in asked}
    partitions: dict[str, dict[str, set[int]]] = {}
    for question in asked:
        by_topic = partitions.setdefault(question.transactional_id, {})
        for topic, index in question.partitions:
            by_topic.setdefault(topic, set()).add(index)
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                verify_only=True,
                topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=sorted(indexes))
                    for topic, indexes in partitions[transactional_id].items()
                ],
            )
            for transactional_id, (producer_id, producer_epoch) in producers.items()
        ]
    )
