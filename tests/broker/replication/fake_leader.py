"""A leader as its followers see it: logs of batches in memory, and incremental fetch sessions kept by the book."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Message, Versions
from ottla.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.primitives import UUID_ZERO
from ottla.protocol.record_batch_builder import RecordBatchBuilder

VERSIONS = {Api.FETCH: Versions(4, 17), Api.LIST_OFFSETS: Versions(1, 9)}
TIMEOUT_S = 30
Key = tuple[str | bytes, int]


def topic_id(topic: str) -> bytes:
    """The id that a topic has in these tests."""
    return topic.encode().ljust(16, b"-")[:16]


def batch(base_offset: int, values: list[bytes], epoch: int) -> bytes:
    """Make a batch as it lies in the leader's log."""
    builder = RecordBatchBuilder()
    for value in values:
        builder.append(1000, None, value)
    return bytes(builder.build(base_offset=base_offset, partition_leader_epoch=epoch))


@dataclass(slots=True)
class LeaderLog:
    """One partition: batches with their first offsets, and what the leader tells."""

    epoch: int = 0
    start: int = 0
    end: int = 0
    high_watermark: int = 0
    batches: list[tuple[int, bytes]] = field(default_factory=list)
    error: ErrorCode = ErrorCode.NONE
    diverging: EpochEndOffset | None = None

    def append(self, values: list[bytes], *, commit: bool = True) -> None:
        """Append a batch."""
        self.batches.append((self.end, batch(self.end, values, self.epoch)))
        self.end += len(values)
        if commit:
            self.high_watermark = self.end

    def read(self, asked: FetchPartition) -> PartitionData:
        """Answer one partition of a fetch."""
        data: dict[str, Any] = {"partition_index": asked.partition, "aborted_transactions": None}
        code = self.error
        if code is ErrorCode.NONE and not self.start <= asked.fetch_offset <= self.end:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        if code is not ErrorCode.NONE:
            return PartitionData(**data, error_code=code, high_watermark=-1, records=b"")
        told: dict[str, Any] = {**data, "error_code": 0, "high_watermark": self.high_watermark}
        lost = self.diverging
        if lost is not None and asked.fetch_offset > lost.end_offset and asked.last_fetched_epoch != self.epoch:
            return PartitionData(**told, log_start_offset=self.start, diverging_epoch=lost, records=b"")
        records = b"".join(data for base, data in self.batches if base >= asked.fetch_offset)
        return PartitionData(**told, log_start_offset=self.start, records=records)


@dataclass(slots=True)
class _Session:
    by_id: bool
    epoch: int = 0
    asked: dict[Key, FetchPartition] = field(default_factory=dict)
    told: dict[Key, tuple[int, int]] = field(default_factory=dict)


class FakeLeader:
    """Answers as a leader. A test changes `logs` under `changed`, and notifies."""

    def __init__(self, *, slots: int = 1000) -> None:
        self.changed = threading.Condition()
        self.logs: dict[tuple[str, int], LeaderLog] = {}
        self.requests: list[tuple[Api, int, Any]] = []
        # The fetches are refused with this, until it is taken away.
        self.refusal = ErrorCode.NONE
        # Fetches that are waiting, by number; and how many had to be answered for time alone.
        self.waiting = 0
        self.counts: Counter[str] = Counter()
        self._slots = slots
        self._sessions: dict[int, _Session] = {}
        self._next_session = 1

    def answer(self, api: Api, version: int, request: Any) -> Message | None:
        """Answer a request."""
        with self.changed:
            self.requests.append((api, version, request))
            self.changed.notify_all()
            if api is Api.LIST_OFFSETS:
                return self._offsets(request)
            return self._fetch(version, request)

    def wait_for(self, condition: Any) -> None:
        """Wait until something holds; a test fails where it never does."""
        with self.changed:
            assert self.changed.wait_for(condition, TIMEOUT_S), "it never came to that"

    def append(self, topic: str, values: list[bytes], partition: int = 0, *, commit: bool = True) -> None:
        """Append to a log, which wakes the fetches."""
        with self.changed:
            self.logs[topic, partition].append(values, commit=commit)
            self.changed.notify_all()

    def lose_sessions(self) -> None:
        """Forget all sessions, as a leader that needs their room."""
        with self.changed:
            self._sessions.clear()

    def fetches(self) -> list[FetchRequest]:
        """The fetches that came so far."""
        return [request for api, _, request in self.requests if api is Api.FETCH]

    def _fetch(self, version: int, request: FetchRequest) -> FetchResponse:
        if self.refusal is not ErrorCode.NONE:
            return FetchResponse(error_code=self.refusal, responses=[])
        by_id = version >= 13
        session_id, session = request.session_id, self._sessions.get(request.session_id)
        if request.session_epoch <= 0:
            self._sessions.pop(session_id, None)
            session, session_id = _Session(by_id), 0
            if request.session_epoch == 0 and len(self._sessions) < self._slots:
                session_id, self._next_session = self._next_session, self._next_session + 1
                self._sessions[session_id] = session
        elif session is None:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
        elif session.by_id != by_id:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, responses=[])
        elif session.epoch != request.session_epoch:
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, responses=[])
        session.epoch += 1
        for topic in request.topics:
            for row in topic.partitions:
                session.asked[topic.topic_id if by_id else topic.topic, row.partition] = row
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                key = (forgotten.topic_id if by_id else forgotten.topic, index)
                session.asked.pop(key, None)
                session.told.pop(key, None)
        return FetchResponse(session_id=session_id, responses=self._wait(session, request.max_wait_ms))

    def _wait(self, session: _Session, wait_ms: int) -> list[FetchableTopicResponse]:
        deadline = time.monotonic() + wait_ms / 1000
        self.waiting += 1
        self.changed.notify_all()
        while not (answer := self._answers(session)) and (left := deadline - time.monotonic()) > 0:
            self.changed.wait(left)
        self.waiting -= 1
        for topic, data in answer:
            session.told[topic, data.partition_index] = (data.high_watermark, data.log_start_offset)
        return [
            FetchableTopicResponse(
                topic=topic if isinstance(topic, str) else "",
                topic_id=topic if isinstance(topic, bytes) else UUID_ZERO,
                partitions=[data],
            )
            for topic, data in answer
        ]

    def _answers(self, session: _Session) -> list[tuple[str | bytes, PartitionData]]:
        """What there is to tell."""
        found = []
        for (topic, index), row in session.asked.items():
            log = next(
                (log for name, log in self.logs.items() if name[1] == index and topic in (name[0], topic_id(name[0]))),
                None,
            )
            data = PartitionData(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_ID, high_watermark=-1)
            if log is not None:
                data = log.read(row)
            told = session.told.get((topic, index))
            if (
                data.records
                or data.error_code
                or data.diverging_epoch.epoch >= 0
                or told != (data.high_watermark, data.log_start_offset)
            ):
                found.append((topic, data))
        return found

    def _offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            rows = []
            for row in topic.partitions:
                log = self.logs[topic.name, row.partition_index]
                offset = log.end if row.timestamp == -1 else log.start
                rows.append(
                    ListOffsetsPartitionResponse(partition_index=row.partition_index, error_code=0, offset=offset)
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))
        return ListOffsetsResponse(topics=topics)
