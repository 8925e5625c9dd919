"""What Admin returns about transactions and about the producers of partitions."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.client.admin.result import Result
from ottla.client.errors.kafka_error import KafkaError
from ottla.protocol.identifiers import TopicPartition


@dataclass(frozen=True, slots=True)
class TransactionListing(Result):
    """A transactional id in a list; `state` is Kafka's name: Empty, Ongoing, PrepareCommit, ..."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDescription(Result):
    """A transactional id and its transaction; `start_time_ms` is None if it has never begun one."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int | None
    coordinator: int
    partitions: tuple[TopicPartition, ...] = ()
    """Where the transaction still has to be ended."""
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class ActiveProducer(Result):
    """A producer that a partition remembers; fields that the partition does not know are None."""

    producer_id: int
    producer_epoch: int
    last_sequence: int | None
    last_timestamp: int | None
    coordinator_epoch: int | None
    """The epoch in the last marker of this producer; None if the partition has no marker of it."""
    transaction_start_offset: int | None
    """The first record of its open transaction; None if no transaction is open."""


@dataclass(frozen=True, slots=True)
class PartitionProducers(Result):
    """The producers of a partition."""

    topic: str
    partition: int
    producers: tuple[ActiveProducer, ...] = ()
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class FencedProducer(Result):
    """A transactional id, with the producer id and epoch that shut out its earlier producers."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class OpenTransaction(Result):
    """A transaction that is open in a partition, and what its coordinator knows of it: None if it knows nothing.

    It hangs if no coordinator will ever end it in this partition: no transactional id has this producer id, or its
    transaction does not have this partition.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None
    start_offset: int
    last_timestamp: int | None
    is_hanging: bool
    transactional_id: str | None = None
    state: str | None = None
    start_time_ms: int | None = None
    timeout_ms: int | None = None
    error: KafkaError | None = None
