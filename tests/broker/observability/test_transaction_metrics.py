"""Transactions as monitoring sees them: how many, how old, and what holds them up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.registry import CollectorRegistry
from tests.broker.handlers.data_path import NOW_MS, batch
from tests.broker.transactions.coordinating import A, Coordinating, coordinating

from ottla.broker.coordination.broker_channels import Link
from ottla.broker.observability.transaction_metrics import TransactionCollector
from ottla.broker.transactions.markers import MarkerSender
from ottla.broker.transactions.verifier import Question, Verifier
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import NO_LEADER, TopicPartition

TIMEOUT_MAX_MS = 60_000
MARKERS = "kafka_coordinator_transaction_transactionmarkerchannelmanager"
LATE = "kafka_server_replicamanager_partitionswithlatetransactionscount"


class Measured:
    """A coordinator whose partitions have no leader, and its metrics."""

    def __init__(self, led: Coordinating) -> None:
        self.led = led

        def nobody(broker: int) -> Link:
            raise AssertionError(broker)

        self.markers = MarkerSender(
            led.coordinator, 1, lambda: -1, lambda _: NO_LEADER, lambda _marker, _done: None, nobody
        )
        led.coordinator.send_markers = self.markers.send
        self.verifier = Verifier(led.coordinator, 1, lambda _id: NO_LEADER, nobody)
        self._registry = CollectorRegistry()
        self._registry.register(
            TransactionCollector(
                led.coordinator,
                self.markers,
                self.verifier,
                led.broker.services.partitions,
                lambda: NOW_MS + led.broker.now_ms,
                lambda: TIMEOUT_MAX_MS,
            )
        )

    def value(self, name: str, **labels: str) -> float | None:
        """Return what a scrape shows."""
        return self._registry.get_sample_value(name, labels)


@pytest.fixture
def measured(tmp_path: Path) -> Iterator[Measured]:
    """A coordinator that leads."""
    with coordinating(tmp_path) as led:
        led.lead()
        yield Measured(led)


def test_ids_are_counted_by_state_and_the_oldest_transaction_has_an_age(measured: Measured) -> None:
    """Ids without a transaction have none."""
    producer = measured.led.producer()
    assert measured.value("ottla_transactional_ids", state="Empty") == 1
    measured.led.broker.now_ms += 5_000
    assert measured.value("ottla_transaction_oldest_seconds") == 0

    assert measured.led.add(producer, A) is ErrorCode.NONE
    measured.led.broker.now_ms += 7_000
    assert measured.value("ottla_transactional_ids", state="Empty") == 0
    assert measured.value("ottla_transactional_ids", state="Ongoing") == 1
    assert measured.value("ottla_transaction_oldest_seconds") == 7


def test_markers_that_nobody_takes_are_counted(measured: Measured) -> None:
    """The producer cannot go on."""
    producer = measured.led.producer()
    assert measured.led.add(producer, A) is ErrorCode.NONE
    assert measured.value(f"{MARKERS}_unknowndestinationqueuesize") == 0
    assert measured.led.end(producer) is ErrorCode.NONE
    assert measured.value(f"{MARKERS}_unknowndestinationqueuesize") == 1
    assert measured.value(f"{MARKERS}_logappendretryqueuesize") == 0


def test_what_no_coordinator_confirmed_is_counted(measured: Measured) -> None:
    """By partition."""
    measured.verifier.verify(Question("unknown", 1, 0, [A, TopicPartition("a", 1)], lambda codes: None))
    assert measured.value("kafka_server_addpartitionstotxnmanager_verificationfailure_total") == 2


def test_a_transaction_is_late_five_minutes_after_the_longest_timeout(measured: Measured) -> None:
    """By then its coordinator should have aborted it."""
    measured.led.broker.lead("t")
    partition = measured.led.broker.services.partitions.find(TopicPartition("t", 0))
    assert partition is not None
    data = batch(b"v", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    begun = partition.validated(data, 1)
    partition.append_validated(begun, 1, partition.begin_verification(begun))

    measured.led.broker.now_ms += TIMEOUT_MAX_MS + 5 * 60_000
    assert measured.value(LATE) == 0
    measured.led.broker.now_ms += 1
    assert measured.value(LATE) == 1
