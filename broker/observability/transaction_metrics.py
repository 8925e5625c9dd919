"""Metrics of transactions, under the names of Kafka's JMX exporter, and a few that Kafka lacks.

Every transactional id has one coordinator, and only the leader counts a partition, so sums over the brokers are right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ottla.broker.observability.growth_rate import GrowthRate
from ottla.broker.replication.partitions import Partitions
from ottla.broker.transactions.coordinator import TransactionCoordinator
from ottla.broker.transactions.markers import MarkerSender
from ottla.broker.transactions.transaction import TransactionState
from ottla.broker.transactions.verifier import Verifier

# A transaction is late when its coordinator should have aborted it by this time.
_LATE_AFTER_MAX_MS: Final = 5 * 60_000


class TransactionCollector(Collector):
    """Reads the transactions of one broker: those that it coordinates, and those in its partitions."""

    def __init__(
        self,
        transactions: TransactionCoordinator,
        markers: MarkerSender,
        verifier: Verifier,
        partitions: Partitions,
        clock: Callable[[], int],
        timeout_max_ms: Callable[[], int],
    ) -> None:
        """`clock` returns milliseconds since 1970."""
        self._transactions = transactions
        self._markers = markers
        self._verifier = verifier
        self._partitions = partitions
        self._clock = clock
        self._timeout_max_ms = timeout_max_ms
        self._failure_rate = GrowthRate(lambda: verifier.failures)

    def describe(self) -> Iterator[Metric]:
        """Return nothing: naming the metrics in advance would mean collecting them."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        yield from self._coordinated()
        manager = "kafka_coordinator_transaction_transactionmarkerchannelmanager"
        yield GaugeMetricFamily(
            f"{manager}_unknowndestinationqueuesize", "Markers that are to be sent again", self._markers.waiting
        )
        yield GaugeMetricFamily(
            f"{manager}_logappendretryqueuesize",
            "Transactions whose end is to be written again",
            self._transactions.unwritten_ends,
        )
        verification = "kafka_server_addpartitionstotxnmanager_verificationfailure"
        yield CounterMetricFamily(verification, "Partitions that no coordinator confirmed", self._verifier.failures)
        yield GaugeMetricFamily(f"{verification}_rate", "The same as a rate per second", self._failure_rate())
        limit_ms = self._timeout_max_ms() + _LATE_AFTER_MAX_MS
        now_ms = self._clock()
        late = sum(
            partition.is_leader and partition.log.producers.has_transaction_before(now_ms - limit_ms)
            for partition in self._partitions
        )
        yield GaugeMetricFamily(
            "kafka_server_replicamanager_partitionswithlatetransactionscount",
            "Partitions led here with a transaction that should have ended",
            late,
        )

    def _coordinated(self) -> Iterator[Metric]:
        states: Counter[TransactionState] = Counter()
        oldest_ms = now_ms = self._clock()
        for entry in self._transactions:
            stored = entry.transaction.stored
            states[stored.state] += 1
            if not stored.state.is_at_rest and stored.state is not TransactionState.DEAD:
                oldest_ms = min(oldest_ms, stored.start_ms)
        count = GaugeMetricFamily("ottla_transactional_ids", "Transactional ids coordinated here", labels=["state"])
        for state in TransactionState:
            if state is not TransactionState.DEAD:
                count.add_metric([state.title], states[state])
        yield count
        yield GaugeMetricFamily(
            "ottla_transaction_oldest_seconds",
            "Age of the oldest transaction here that has not ended; 0 if there is none",
            (now_ms - oldest_ms) / 1000,
        )
