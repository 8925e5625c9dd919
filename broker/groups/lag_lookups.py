"""What the lag of groups is computed from: where partitions end, and when records were written.

A group's coordinator knows the committed offsets, but other brokers may lead the partitions. So it asks their leaders,
with one request to each. Only metrics and status pages need the answers, every few seconds at most: a thread asks
after a lookup, and the answers are cached. A lookup of something new waits a moment for the answer.

The time of a record costs a read, from the log of this broker if it has a replica. A record keeps its time, so a group
that does not read costs one read a minute and partition. A group that reads is at another offset each time, so the
number of times that one round looks up is limited, as is the time for it.
"""

from __future__ import annotations

import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

import structlog

from ottla.broker.cluster.metadata import MetadataCache
from ottla.broker.replication.partitions import Partitions
from ottla.broker.storage.offset_lookup import time_of_record
from ottla.client.net.api_versions import common_version, supported_versions
from ottla.client.net.blocking_connection import BlockingConnection
from ottla.client.net.connector import IN_THE_CLEAR, Connector
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.identifiers import CONSUMER_REPLICA_ID, TopicPartition
from ottla.protocol.messages.list_offsets import LATEST, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

log = structlog.get_logger(__name__)

_FRESH_SECONDS: Final = 5.0
_WAIT_SECONDS: Final = 1.0
_REQUEST_TIMEOUT_MS: Final = 2_000
# A record keeps its time. But after an unclean election or in a new topic of the same name, another record is there.
_TIME_KEPT_SECONDS: Final = 60.0
_TIMES_KEPT: Final = 20_000
_TIMES_IN_ROUND: Final = 5_000
_LOCAL_SECONDS: Final = 1.0


class RecordAt(NamedTuple):
    """A record: the first one of a partition at or after an offset."""

    partition: TopicPartition
    offset: int


class FromLeader(NamedTuple):
    """What a leader says of a partition: where it ends, and the times of records by their offsets, if it knows them."""

    end_offset: int
    timestamps: Mapping[int, int]


# Asks a broker about partitions that it leads, each with the offsets of records whose times are wanted. Partitions that
# it does not know are left out.
AskLeader = Callable[[int, Mapping[TopicPartition, list[int]]], Mapping[TopicPartition, FromLeader]]


class LagLookups:
    """End offsets and times of records, of all partitions in the cluster. Thread-safe."""

    def __init__(self, partitions: Partitions, metadata: MetadataCache, ask: AskLeader) -> None:
        self._partitions = partitions
        self._metadata = metadata
        self._ask = ask
        self._changed = threading.Condition()
        # The partitions that were looked up since the last round, and those of the last round.
        self._wanted: set[TopicPartition] = set()
        self._answered: set[TopicPartition] = set()
        self._ends: dict[TopicPartition, int] = {}
        # The records whose times were looked up since the last round.
        self._wanted_times: set[RecordAt] = set()
        # The time of each record, None if it could not be found, and until when that is taken for true.
        self._times: OrderedDict[RecordAt, tuple[int | None, float]] = OrderedDict()
        self._asked_at = float("-inf")
        # Rounds that were asked for, and that have ended.
        self._rounds_asked = self._rounds_done = 0
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="lag-lookups", daemon=True)

    def start(self) -> None:
        """Start the thread that asks other leaders."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def ends(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the known end offsets. May wait up to a second for partitions that were never looked up."""
        ends: dict[TopicPartition, int] = {}
        elsewhere: set[TopicPartition] = set()
        for partition in wanted:
            hosted = self._partitions.find(partition)
            if hosted is not None and hosted.is_leader:
                ends[partition] = hosted.log.high_watermark
            else:
                elsewhere.add(partition)
        return ends | self._ends_elsewhere(elsewhere) if elsewhere else ends

    def _ends_elsewhere(self, wanted: set[TopicPartition]) -> dict[TopicPartition, int]:
        with self._changed:
            is_news = not wanted <= self._answered
            self._wanted |= wanted
            if is_news or time.monotonic() - self._asked_at > _FRESH_SECONDS:
                self._ask_for_round(is_awaited=is_news)
            return {partition: self._ends[partition] for partition in wanted if partition in self._ends}

    def times(self, wanted: Collection[RecordAt]) -> dict[RecordAt, int]:
        """Return the known times of records, in milliseconds since 1970. May wait up to a second for new ones."""
        with self._changed:
            now = time.monotonic()
            new = [record for record in wanted if now >= self._times.get(record, (None, 0.0))[1]]
            if new:
                self._wanted_times.update(new)
                self._ask_for_round(is_awaited=True)
            found = ((record, self._times[record][0]) for record in wanted if record in self._times)
            return {record: timestamp for record, timestamp in found if timestamp is not None}

    def _ask_for_round(self, *, is_awaited: bool) -> None:
        """Have the thread look up what is wanted. The caller holds the condition."""
        # A round that is under way may have begun without what is wanted now.
        self._rounds_asked = wanted_round = self._rounds_done + 1 + (self._rounds_asked > self._rounds_done)
        self._changed.notify_all()
        if is_awaited and self._thread.is_alive():
            self._changed.wait_for(lambda: self._rounds_done >= wanted_round or self._is_stopped, _WAIT_SECONDS)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._rounds_asked > self._rounds_done or self._is_stopped)
                if self._is_stopped:
                    return
                wanted, self._wanted = self._wanted, set()
                records, self._wanted_times = list(self._wanted_times), set()
            self._look_up(wanted, records)

    def _look_up(self, wanted: set[TopicPartition], records: list[RecordAt]) -> None:
        if len(records) > _TIMES_IN_ROUND:
            # Chosen by chance, so each has its turn.
            records = random.sample(records, _TIMES_IN_ROUND)
        times, elsewhere = self._local_times(records)
        ends: dict[TopicPartition, int] = {}
        for leader, questions in self._by_leader(wanted, elsewhere).items():
            try:
                answers = self._ask(leader, questions)
            except (KafkaError, ProtocolError, OSError) as error:
                log.info("lag_unknown", leader=leader, error=str(error))
                continue
            for partition, answer in answers.items():
                ends[partition] = answer.end_offset
                times |= {RecordAt(partition, offset): found for offset, found in answer.timestamps.items()}
        with self._changed:
            if wanted:
                self._ends = {partition: ends[partition] for partition in wanted if partition in ends}
                self._answered = wanted
                self._asked_at = time.monotonic()
            self._keep(records, times)
            self._rounds_done += 1
            self._changed.notify_all()

    def _local_times(self, records: Iterable[RecordAt]) -> tuple[dict[RecordAt, int | None], list[RecordAt]]:
        """Return the times of records that this broker has; and the records that others must be asked about.

        Records that there was no time for are in neither.
        """
        times: dict[RecordAt, int | None] = {}
        elsewhere: list[RecordAt] = []
        deadline = time.monotonic() + _LOCAL_SECONDS
        for record in records:
            hosted = self._partitions.find(record.partition)
            if hosted is None or record.offset >= hosted.log.high_watermark:
                elsewhere.append(record)
            elif time.monotonic() < deadline:
                try:
                    times[record] = time_of_record(hosted.log, record.offset)
                except KafkaError as error:
                    log.info("record_time_unknown", partition=str(record.partition), error=str(error))
        return times, elsewhere

    def _by_leader(
        self, wanted: Iterable[TopicPartition], records: Iterable[RecordAt]
    ) -> dict[int, dict[TopicPartition, list[int]]]:
        snapshot = self._metadata.snapshot
        questions: dict[TopicPartition, list[int]] = {partition: [] for partition in wanted}
        for record in records:
            questions.setdefault(record.partition, []).append(record.offset)
        by_leader: dict[int, dict[TopicPartition, list[int]]] = {}
        for partition, offsets in questions.items():
            known = snapshot.partition(*partition)
            if known is not None and known.leader in snapshot.brokers and known.leader != self._partitions.node_id:
                by_leader.setdefault(known.leader, {})[partition] = offsets
        return by_leader

    def _keep(self, records: Iterable[RecordAt], times: Mapping[RecordAt, int | None]) -> None:
        now = time.monotonic()
        for record in records:
            found = times.get(record)
            # What could not be found is not waited for at every lookup.
            self._times[record] = (found, now + (_FRESH_SECONDS if found is None else _TIME_KEPT_SECONDS))
            self._times.move_to_end(record)
        while len(self._times) > _TIMES_KEPT:
            self._times.popitem(last=False)


class LeaderLookups:
    """Asks leaders with ListOffsets, over one connection to each. Not thread-safe.

    Leaders that do not know our tagged fields, such as those of Apache Kafka, answer without times.
    """

    def __init__(
        self,
        address_of: Callable[[int], tuple[str, int] | None],
        client_id: str,
        connector: Connector = IN_THE_CLEAR,
    ) -> None:
        self._address_of = address_of
        self._connector = connector
        self._client_id = client_id
        self._connections: dict[int, tuple[BlockingConnection, int]] = {}

    def __call__(
        self, leader: int, questions: Mapping[TopicPartition, list[int]]
    ) -> Mapping[TopicPartition, FromLeader]:
        """Return what the leader says; KafkaError or ProtocolError if it does not answer."""
        address = self._address_of(leader)
        if address is None:
            return {}
        connection, version = self._connected(leader, address)
        try:
            response = connection.request(Api.LIST_OFFSETS, version, _request(questions))
        except (KafkaError, ProtocolError):
            del self._connections[leader]
            connection.close()
            raise
        answers: dict[TopicPartition, FromLeader] = {}
        for topic in response.topics:
            for row in topic.partitions:
                if row.error_code == ErrorCode.NONE and row.offset >= 0:
                    partition = TopicPartition(topic.name, row.partition_index)
                    asked = zip(questions.get(partition, ()), row.record_timestamps, strict=False)
                    times = {offset: found for offset, found in asked if found >= 0}
                    answers[partition] = FromLeader(row.offset, times)
        return answers

    def close(self) -> None:
        """Close the connections."""
        for connection, _ in self._connections.values():
            connection.close()
        self._connections.clear()

    def _connected(self, leader: int, address: tuple[str, int]) -> tuple[BlockingConnection, int]:
        known = self._connections.get(leader)
        if known is not None and (known[0].host, known[0].port) == address:
            return known
        if known is not None:
            known[0].close()
        connection = self._connector.connection(
            *address,
            client_id=self._client_id,
            connect_timeout_ms=_REQUEST_TIMEOUT_MS,
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
        )
        try:
            version = common_version(Api.LIST_OFFSETS, supported_versions(connection))
        except (KafkaError, ProtocolError):
            connection.close()
            raise
        self._connections[leader] = (connection, version)
        return connection, version


def _request(questions: Mapping[TopicPartition, list[int]]) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for partition, offsets in questions.items():
        row = ListOffsetsPartition(partition_index=partition.partition, timestamp=LATEST, record_offsets=offsets)
        topics.setdefault(partition.topic, []).append(row)
    return ListOffsetsRequest(
        replica_id=CONSUMER_REPLICA_ID,
        topics=[ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()],
    )
