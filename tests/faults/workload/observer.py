"""A consumer of our own that sees what libraries hide: the high watermark of each answer, and who gave it.

It asks each broker in turn who leads. So it also reads from one that is cut off from the others and still believes
itself the leader, in the epoch in which that broker believes it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import cycle

from tests.faults.checker.history import Assign, Poll, PolledRecord, Watermark
from tests.faults.workload.settings import CONNECT_TIMEOUT_MS, REQUEST_TIMEOUT_MS, Settings

from ottla.client.net.blocking_connection import BlockingConnection
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.records import batches

METADATA_VERSION, FETCH_VERSION = 9, 12
INTERVAL_S = 0.05
MAX_WAIT_MS = 20
PARTITION_BYTES_MAX = 1024 * 1024
# A new view of the cluster after so many fetches, even when all goes well.
ROUNDS_PER_VIEW = 20


class Observer:
    """Reads all partitions from their beginning; answers that are errors are not part of a history."""

    def __init__(self, settings: Settings, name: str) -> None:
        self._settings = settings
        self._name = name
        self._connections: dict[tuple[str, int], BlockingConnection] = {}
        self._bootstraps: Iterator[str] = cycle(settings.bootstrap.split(","))
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
        for connection in self._connections.values():
            connection.close()

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
            topics=[FetchTopic(topic=self._settings.topic, partitions=wanted)],
        )
        try:
            answer: FetchResponse = self._connection(address).request(Api.FETCH, FETCH_VERSION, request)
        except KafkaError:
            return False
        answers = [partition for topic in answer.responses for partition in topic.partitions]
        served = [one for one in answers if one.error_code == ErrorCode.NONE]
        records = tuple(record for one in served for record in self._records(one))
        watermarks = tuple(
            Watermark(
                self._settings.partition(one.partition_index), broker, epochs[one.partition_index], one.high_watermark
            )
            for one in served
        )
        for one in served:
            self.high_watermarks[one.partition_index] = one.high_watermark
        if served:
            self._settings.history.write(Poll(worker=self._name, records=records, watermarks=watermarks))
        return len(served) == len(wanted)

    def _records(self, answer: PartitionData) -> Iterator[PolledRecord]:
        """Read the batches; the first may begin before the offset that was asked for."""
        start = self.positions[answer.partition_index]
        for batch in batches(bytes(answer.records or b"")):
            batch.check()
            for record in batch.records():
                if record.offset >= start and not batch.is_control:
                    value = bytes(record.value or b"").decode(errors="replace")
                    name = self._settings.partition(answer.partition_index)
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
        host, _, port = next(self._bootstraps).rpartition(":")
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=self._settings.topic)], allow_auto_topic_creation=False
        )
        try:
            answer: MetadataResponse = self._connection((host, int(port))).request(
                Api.METADATA, METADATA_VERSION, request
            )
        except KafkaError:
            return None
        return answer if answer.topics[0].partitions else None

    def _connection(self, address: tuple[str, int]) -> BlockingConnection:
        if address not in self._connections:
            self._connections[address] = BlockingConnection(
                *address,
                client_id=self._name,
                connect_timeout_ms=CONNECT_TIMEOUT_MS,
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                **self._settings.access.connection,
            )
        return self._connections[address]
