"""A consumer of our own that sees what libraries hide: markers, the watermarks of each answer, and who gave it.

It asks each broker in turn who leads. So it also reads from one that is cut off from the others and still believes
itself the leader, in the epoch in which that broker believes it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator

from tests.faults.checker.history import Assign, Poll, PolledMarker, PolledRecord, Watermark
from tests.faults.workload.connections import Connections
from tests.faults.workload.settings import Settings

from ottla.protocol.api import Api
from ottla.protocol.control_records import ControlType, read_marker
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.fetch import (
    READ_COMMITTED,
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.records import RecordBatch, batches

METADATA_VERSION, FETCH_VERSION = 9, 12
READ_UNCOMMITTED = 0
INTERVAL_S = 0.05
MAX_WAIT_MS = 20
PARTITION_BYTES_MAX = 1024 * 1024
# A new view of the cluster after so many fetches, even when all goes well.
ROUNDS_PER_VIEW = 20


class Observer:
    """Reads all partitions from their beginning; answers that are errors are not part of a history."""

    def __init__(self, settings: Settings, name: str, *, is_committed: bool = False) -> None:
        self._settings = settings
        self._name = name
        self._is_committed = is_committed
        self._connections = Connections(settings, name)
        self._view: MetadataResponse | None = None
        self._rounds = 0
        self.positions = dict.fromkeys(range(settings.partitions), 0)
        # The last seen of each partition.
        self.high_watermarks = dict.fromkeys(range(settings.partitions), -1)
        settings.history.write(
            Assign(worker=name, partitions=tuple(settings.partition(number) for number in self.positions))
        )

    def run(self) -> None:
        """Read until told to stop."""
        try:
            while not self._settings.stopping.wait(INTERVAL_S):
                self.poll()
        finally:
            self.close()

    def poll(self) -> None:
        """Ask each leader once, as somebody sees them."""
        self._rounds += 1
        if self._view is None or self._rounds % ROUNDS_PER_VIEW == 0:
            self._view = self._ask_who_leads()
        if self._view is None:
            return
        addresses = {broker.node_id: (broker.host, broker.port) for broker in self._view.brokers}
        led: dict[int, dict[int, int]] = defaultdict(dict)
        for partition in self._view.topics[0].partitions:
            if partition.leader_id in addresses:
                led[partition.leader_id][partition.partition_index] = partition.leader_epoch
        is_good = sum(map(len, led.values())) == self._settings.partitions
        for broker, epochs in led.items():
            is_good &= self._fetch(broker, addresses[broker], epochs)
        if not is_good:
            self._view = None

    def close(self) -> None:
        """Close all connections."""
        self._connections.close()

    def _fetch(self, broker: int, address: tuple[str, int], epochs: dict[int, int]) -> bool:
        wanted = [
            FetchPartition(
                partition=partition,
                current_leader_epoch=epoch,
                fetch_offset=self.positions[partition],
                partition_max_bytes=PARTITION_BYTES_MAX,
            )
            for partition, epoch in epochs.items()
            if partition in self.positions
        ]
        request = FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=10 * PARTITION_BYTES_MAX,
            isolation_level=READ_COMMITTED if self._is_committed else READ_UNCOMMITTED,
            topics=[FetchTopic(topic=self._settings.topic, partitions=wanted)],
        )
        invoked_ns = time.monotonic_ns()
        try:
            answer: FetchResponse = self._connections.to(address).request(Api.FETCH, FETCH_VERSION, request)
        except KafkaError:
            return False
        answers = [partition for topic in answer.responses for partition in topic.partitions]
        served = [one for one in answers if one.error_code == ErrorCode.NONE]
        found = [item for one in served for item in self._read(one)]
        watermarks = tuple(
            Watermark(
                self._settings.partition(one.partition_index),
                broker,
                epochs[one.partition_index],
                one.high_watermark,
                one.last_stable_offset,
            )
            for one in served
        )
        for one in served:
            self.high_watermarks[one.partition_index] = one.high_watermark
        if served:
            self._settings.history.write(
                Poll(
                    worker=self._name,
                    records=tuple(item for item in found if isinstance(item, PolledRecord)),
                    watermarks=watermarks,
                    markers=tuple(item for item in found if isinstance(item, PolledMarker)),
                    is_committed=self._is_committed,
                    invoked_ns=invoked_ns,
                )
            )
        return len(served) == len(wanted)

    def _read(self, answer: PartitionData) -> Iterator[PolledRecord | PolledMarker]:
        """Read the batches; the first may begin before the offset that was asked for."""
        name = self._settings.partition(answer.partition_index)
        start = self.positions[answer.partition_index]
        aborted = _Aborted(answer.aborted_transactions or [])
        for batch in batches(bytes(answer.records or b"")):
            batch.check()
            is_hidden = aborted.hides(batch)
            if batch.is_control:
                marker = read_marker(batch)
                if marker is not None and batch.base_offset >= start:
                    is_commit = marker.control_type is ControlType.COMMIT
                    yield PolledMarker(name, batch.base_offset, batch.producer_id, batch.producer_epoch, is_commit)
            elif not is_hidden:
                for record in batch.records():
                    if record.offset >= start:
                        value = bytes(record.value or b"").decode(errors="replace")
                        yield PolledRecord(
                            name,
                            record.offset,
                            value,
                            batch.partition_leader_epoch,
                            batch.producer_id,
                            batch.producer_epoch,
                        )
            self.positions[answer.partition_index] = max(start, batch.next_offset)

    def _ask_who_leads(self) -> MetadataResponse | None:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=self._settings.topic)], allow_auto_topic_creation=False
        )
        try:
            answer: MetadataResponse = self._connections.to_next_bootstrap().request(
                Api.METADATA, METADATA_VERSION, request
            )
        except KafkaError:
            return None
        return answer if answer.topics[0].partitions else None


class _Aborted:
    """The aborted transactions in one answer, which are found by the offsets at which they begin."""

    def __init__(self, transactions: list[AbortedTransaction]) -> None:
        self._waiting = sorted(transactions, key=lambda one: one.first_offset, reverse=True)
        self._open: set[int] = set()

    def hides(self, batch: RecordBatch) -> bool:
        """Take the next batch; return whether it is part of an aborted transaction."""
        while self._waiting and self._waiting[-1].first_offset <= batch.last_offset:
            self._open.add(self._waiting.pop().producer_id)
        if batch.is_control:
            self._open.discard(batch.producer_id)
            return False
        return batch.is_transactional and batch.producer_id in self._open
