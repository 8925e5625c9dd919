"""The audit stream as records of an internal topic: one JSON object each.

Events wait in a queue of limited size for a thread that writes them, as an ordinary producer, to the leader of the
topic's only partition. No request ever waits for it. Events that do not fit, or cannot be written in time, are dropped,
counted, and mentioned in the log.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec
import structlog

from ottla.broker.cluster.broker_link import BrokerLink
from ottla.broker.cluster.topics import TopicSpec
from ottla.broker.common.clocks import wall_clock_ms
from ottla.broker.security.audit.audit import Fields
from ottla.broker.security.rarely import Rarely
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import AUDIT_TOPIC
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.record_batch_builder import RecordBatchBuilder

log = structlog.get_logger(__name__)

_QUEUE_BYTES_MAX: Final = 8 * 1024 * 1024
_BATCH_BYTES_MAX: Final = 256 * 1024
# A batch that could not be written for so long is dropped.
_WRITE_SECONDS_MAX: Final = 120.0
_QUIET_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.5
_CLOSE_SECONDS_MAX: Final = 5.0
_TIMEOUT_MS: Final = 10_000
_REPLICAS: Final = 3
_RETENTION_MS: Final = 30 * 24 * 3600 * 1000
_RETENTION_BYTES: Final = 1024 * 1024 * 1024
# Only such clients may write to internal topics.
CLIENT_ID: Final = "__admin_client"


def audit_topic(brokers: int) -> TopicSpec:
    """Return the topic of the audit stream, for a cluster of so many brokers."""
    options = {
        "cleanup.policy": "delete",
        "retention.ms": str(_RETENTION_MS),
        "retention.bytes": str(_RETENTION_BYTES),
    }
    return TopicSpec(AUDIT_TOPIC, 1, max(1, min(_REPLICAS, brokers)), configs=options)


class AuditTopic:
    """Writes events to the topic. `add` may be called from any thread, and never blocks."""

    def __init__(
        self,
        leader: Callable[[], int | None],
        link_to: Callable[[int], BrokerLink],
        create: Callable[[], None],
        *,
        clock: Callable[[], int] = wall_clock_ms,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`leader` returns the broker that leads the partition, None if there is no topic; `create` creates it."""
        self._leader = leader
        self._link_to = link_to
        self._create = create
        self._clock = clock
        self._monotonic = monotonic
        self._rarely = Rarely()
        # Guards all that follows.
        self._changed = threading.Condition()
        self._queue: deque[tuple[int, bytes]] = deque()
        self._queued_bytes = 0
        self._is_closed = False
        self.written = 0
        self.dropped = 0
        # Of the thread alone.
        self._link: tuple[int, BrokerLink] | None = None
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)

    def start(self) -> None:
        """Start to write."""
        self._thread.start()

    def close(self) -> None:
        """Write what is queued, if that is possible soon, and stop."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_SECONDS_MAX)
        link = self._link
        if link is not None:
            link[1].close()

    def add(self, fields: Fields) -> None:
        """Queue an event, or drop it if the queue is full."""
        line = msgspec.json.encode(fields)
        with self._changed:
            if self._is_closed or self._queued_bytes + len(line) > _QUEUE_BYTES_MAX:
                self.dropped += 1
                is_dropped = True
            else:
                self._queue.append((self._clock(), line))
                self._queued_bytes += len(line)
                self._changed.notify()
                is_dropped = False
        if is_dropped and self._rarely.allows("full"):
            log.warning("audit_events_dropped", reason="they come faster than they are written", dropped=self.dropped)

    # On the thread

    def _run(self) -> None:
        while batch := self._next_batch():
            begun = self._monotonic()
            while True:
                try:
                    self._write(batch)
                except Exception as error:
                    tried_seconds = self._monotonic() - begun
                    if self._is_closed or tried_seconds > _WRITE_SECONDS_MAX:
                        self._drop(batch, error)
                        break
                    # A new topic takes a moment.
                    if tried_seconds > _QUIET_SECONDS and self._rarely.allows("retried"):
                        log.warning("audit_topic_not_written", reason=str(error), hint="it is tried again")
                    with self._changed:
                        self._changed.wait_for(lambda: self._is_closed, _PAUSE_SECONDS)
                else:
                    self.written += len(batch)
                    break

    def _next_batch(self) -> list[tuple[int, bytes]]:
        """Wait for events; return some, or none to stop."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._is_closed)
            batch: list[tuple[int, bytes]] = []
            size = 0
            while self._queue and size < _BATCH_BYTES_MAX:
                batch.append(self._queue.popleft())
                size += len(batch[-1][1])
            self._queued_bytes -= size
            return batch

    def _write(self, batch: list[tuple[int, bytes]]) -> None:
        builder = RecordBatchBuilder()
        for timestamp, line in batch:
            builder.append(timestamp=timestamp, key=None, value=line)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=_TIMEOUT_MS,
            topic_data=[
                TopicProduceData(
                    name=AUDIT_TOPIC, partition_data=[PartitionProduceData(index=0, records=builder.build())]
                )
            ],
        )
        response: Any = self._leader_link().request(Api.PRODUCE, lambda _version: request)
        code = response.responses[0].partition_responses[0].error_code
        if code:
            raise KafkaError(code)

    def _leader_link(self) -> BrokerLink:
        leader = self._leader()
        if leader is None:
            self._create()
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "the topic is being created")
        if self._link is None or self._link[0] != leader:
            if self._link is not None:
                self._link[1].close()
            self._link = leader, self._link_to(leader)
        return self._link[1]

    def _drop(self, batch: list[tuple[int, bytes]], error: Exception) -> None:
        self.dropped += len(batch)
        log.error("audit_events_dropped", reason=str(error), dropped=self.dropped)
