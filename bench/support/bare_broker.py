"""A broker that does next to nothing: what a client reaches with it is what client and machine allow.

It speaks as much of the protocol as the loads need, and leaves out all that a broker is for. Each connection has a
thread that waits at its socket, and one buffer for all of its requests. Nobody looks at the records in it. A partition
has an end, and a few of its batches: copies of these, with other base offsets, stand for all the rest. A waiting Fetch
is answered by the thread that receives the next records, straight from its buffer.

Every topic that a client asks for exists. A Fetch may ask for one partition only.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ottla.protocol.api import Api
from ottla.protocol.frame import SIZE_BYTES, frame, frame_size, size_prefix
from ottla.protocol.message import Message
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from ottla.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.messages.find_coordinator import FindCoordinatorResponse
from ottla.protocol.messages.headers import RequestHeader
from ottla.protocol.messages.list_offsets import (
    LATEST,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from ottla.protocol.records import BATCH_HEADER
from ottla.protocol.requests import decode_request, encode_response

BROKER_ID: Final = 1
# Topics that nobody has created have so many partitions.
PARTITIONS_DEFAULT: Final = 1
# Clients send up to a megabyte.
_BUFFER_BYTES: Final = 2 * 1024 * 1024
# Small requests are received together; of a large one no more than this, and then the rest with one call.
_TOGETHER_BYTES: Final = 64 * 1024
# As our broker has it: docs/adr/0017 says why.
_SEND_BUFFER_BYTES: Final = 256 * 1024
# Less than clients ask for: it is still in the caches of the processor when they read it.
_FETCH_BYTES_MAX: Final = 1_000_000
# What consumers ask for by default.
_FETCH_WAIT_MS: Final = 500
_TIMEVAL: Final = struct.Struct("@ll")
_BASE_OFFSET: Final = struct.Struct(">q")
_CORRELATION_ID: Final = struct.Struct(">i")
# The system takes 1,024 parts in one call, and a copy of a batch is two of them.
_COPIES_MAX: Final = 500

Buffer = bytes | memoryview


class Batch(NamedTuple):
    """A batch without its base offset."""

    record_count: int
    rest: Buffer

    @classmethod
    def of(cls, records: memoryview) -> Batch:
        """Return the first batch of a Produce as a view; clients send no more than one."""
        return cls(BATCH_HEADER.unpack_from(records)[-1], records[_BASE_OFFSET.size :])


class Copies:
    """Records of a response: copies of batches, one after the other."""

    def __init__(self) -> None:
        self.parts: list[Buffer] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, batch: Batch, base_offset: int) -> None:
        """Add a copy with another base offset."""
        self.parts += (_BASE_OFFSET.pack(base_offset), batch.rest)
        self._size += _BASE_OFFSET.size + len(batch.rest)


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """A Fetch that found nothing; it is answered with the end offset and records."""

    respond: Callable[[int, Copies], None]


class Partition:
    """An end offset, some batches, and a Fetch that waits; its lock protects them."""

    def __init__(self) -> None:
        self.end_offset = 0
        # Each has more records than the one before it. The first one of a load is a single record, so that copies of
        # them, the largest first, end where the partition ends.
        self._batches: list[Batch] = []
        self._waiting: Waiting | None = None
        self._lock = threading.Lock()

    def append(self, batch: Batch) -> None:
        """Count the records, and send them to the Fetch that waits."""
        with self._lock:
            offset = self.end_offset
            self.end_offset = offset + batch.record_count
            if not self._batches or batch.record_count > self._batches[-1].record_count:
                self._batches.append(batch._replace(rest=bytes(batch.rest)))
            waiting, self._waiting = self._waiting, None
        if waiting is not None:
            copies = Copies()
            copies.add(batch, offset)
            # A consumer that has left is no reason to refuse records.
            with suppress(OSError):
                waiting.respond(offset + batch.record_count, copies)

    def fetch(self, offset: int, bytes_max: int, respond: Callable[[int, Copies], None]) -> Waiting | None:
        """Respond, or return what waits for the next batch."""
        with self._lock:
            if offset >= self.end_offset:
                self._waiting = Waiting(respond)
                return self._waiting
            end_offset, copies = self.end_offset, self._copies(offset, bytes_max)
        respond(end_offset, copies)
        return None

    def give_up(self, waiting: Waiting) -> None:
        """Respond with nothing to a Fetch, if it still waits."""
        with self._lock:
            if self._waiting is not waiting:
                return
            self._waiting = None
        waiting.respond(self.end_offset, Copies())

    def _copies(self, offset: int, bytes_max: int) -> Copies:
        copies = Copies()
        bytes_max = min(bytes_max, _FETCH_BYTES_MAX)
        for batch in reversed(self._batches):
            while offset + batch.record_count <= self.end_offset:
                if copies.parts and (
                    len(copies) + len(batch.rest) > bytes_max or len(copies.parts) > 2 * (_COPIES_MAX - 1)
                ):
                    return copies
                copies.add(batch, offset)
                offset += batch.record_count
        return copies


class Connection:
    """The socket of a client, and the buffer of its requests."""

    def __init__(self, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        # A timeout of the system's: Python's own would cost a call for each that receives.
        timeout = _TIMEVAL.pack(*divmod(_FETCH_WAIT_MS * 1000, 1_000_000))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
        self._socket = client
        # Called when nothing came for a while.
        self.when_idle: Callable[[], None] | None = None
        # By version, topic and partition: responses to Produce that are the same but for their correlation id.
        self.produced: dict[tuple[int, str, int], bytes] = {}

    def requests(self) -> Iterator[memoryview]:
        """Yield the requests until the client leaves; each is gone when the next one is asked for."""
        view = memoryview(bytearray(_BUFFER_BYTES))
        begin = end = 0
        while True:
            size = 0
            if end - begin >= SIZE_BYTES:
                size = SIZE_BYTES + frame_size(view[begin : begin + SIZE_BYTES], _BUFFER_BYTES - SIZE_BYTES)
                if end - begin >= size:
                    yield view[begin + SIZE_BYTES : begin + size]
                    begin += size
                    continue
            if begin:
                view[: end - begin] = view[begin:end]
                begin, end = 0, end - begin
            if size > _TOGETHER_BYTES:
                received = self._receive(view[end:size], socket.MSG_WAITALL)
            else:
                received = self._receive(view[end:_TOGETHER_BYTES], 0)
            if not received:
                return
            end += received

    def send(self, data: bytes) -> None:
        """Send a frame."""
        self._socket.sendall(data)

    def respond(self, header: RequestHeader, response: Message) -> None:
        """Send a response; records in it are not copied."""
        encoded = encode_response(
            Api(header.request_api_key), header.request_api_version, header.correlation_id, response
        )
        parts: list[Buffer] = [size_prefix(sum(map(len, encoded)))]
        for part in encoded:
            parts += part.parts if isinstance(part, Copies) else (part,)
        # A socket that blocks takes all of it.
        self._socket.sendmsg(parts)

    def _receive(self, into: memoryview, flags: int) -> int:
        while True:
            try:
                return self._socket.recv_into(into, 0, flags)
            except BlockingIOError:
                if self.when_idle is not None:
                    self.when_idle()
                    self.when_idle = None


Handler = Callable[["BareBroker", Connection, RequestHeader, Any], None]


class BareBroker:
    """Serves clients at one address, as the only broker of its cluster."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._host, self._port = listener.getsockname()[:2]
        # By topic: how many partitions it has.
        self._topics: dict[str, int] = {}
        self._partitions: dict[tuple[str, int], Partition] = {}

    def serve(self) -> None:
        """Accept connections until the listener is closed."""
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        # A client that leaves in the middle of something is no news.
        with client, suppress(ConnectionError):
            connection = Connection(client)
            for request in connection.requests():
                header, message = decode_request(request)
                handler, _ = HANDLERS[Api(header.request_api_key)]
                handler(self, connection, header, message)

    def _partition(self, topic: str, index: int) -> Partition:
        known = self._partitions.get((topic, index))
        return known if known is not None else self._partitions.setdefault((topic, index), Partition())

    def produce(self, connection: Connection, header: RequestHeader, request: Any) -> None:
        """Take the records of one partition."""
        (topic,) = request.topic_data
        (data,) = topic.partition_data
        name, index = topic.name, data.index
        self.take(name, index, data.records, lambda: self._produced(connection, header, name, index))

    def take(self, topic: str, index: int, records: memoryview, acknowledge: Callable[[], None]) -> None:
        """Count records, pass them on, and acknowledge them."""
        self._partition(topic, index).append(Batch.of(records))
        acknowledge()

    def _produced(self, connection: Connection, header: RequestHeader, topic: str, index: int) -> None:
        version = header.request_api_version
        known = connection.produced.get((version, topic, index))
        if known is None:
            done = PartitionProduceResponse(index=index, error_code=0, base_offset=0)
            response = ProduceResponse(responses=[TopicProduceResponse(name=topic, partition_responses=[done])])
            known = frame(encode_response(Api.PRODUCE, version, 0, response))
            connection.produced[version, topic, index] = known
        correlation_id = _CORRELATION_ID.pack(header.correlation_id)
        connection.send(b"".join((known[:SIZE_BYTES], correlation_id, known[SIZE_BYTES + len(correlation_id) :])))

    def fetch(self, connection: Connection, header: RequestHeader, request: Any) -> None:
        """Send copies of batches now, or the next batch when it comes."""
        (topic,) = request.topics
        (asked,) = topic.partitions
        partition = self._partition(topic.topic, asked.partition)

        def respond(end_offset: int, records: Copies) -> None:
            data = PartitionData(
                partition_index=asked.partition,
                error_code=0,
                high_watermark=end_offset,
                last_stable_offset=end_offset,
                log_start_offset=0,
                aborted_transactions=None,
                records=records,
            )
            response = FetchResponse(responses=[FetchableTopicResponse(topic=topic.topic, partitions=[data])])
            connection.respond(header, response)

        waiting = partition.fetch(asked.fetch_offset, asked.partition_max_bytes, respond)
        connection.when_idle = None if waiting is None else lambda: partition.give_up(waiting)

    def list_offsets(self, connection: Connection, header: RequestHeader, request: Any) -> None:
        """Tell the start, which is 0, or the end."""
        topics = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=asked.partition_index,
                        error_code=0,
                        offset=self._partition(topic.name, asked.partition_index).end_offset
                        if asked.timestamp == LATEST
                        else 0,
                        leader_epoch=0,
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        connection.respond(header, ListOffsetsResponse(topics=topics))

    def metadata(self, connection: Connection, header: RequestHeader, request: Any) -> None:
        """Name this broker as the leader of everything."""
        names = list(self._topics) if request.topics is None else [topic.name for topic in request.topics]
        topics = []
        for name in names:
            partitions = [
                MetadataResponsePartition(
                    error_code=0,
                    partition_index=index,
                    leader_id=BROKER_ID,
                    leader_epoch=0,
                    replica_nodes=[BROKER_ID],
                    isr_nodes=[BROKER_ID],
                )
                for index in range(self._topics.setdefault(name, PARTITIONS_DEFAULT))
            ]
            topics.append(MetadataResponseTopic(error_code=0, name=name, partitions=partitions))
        broker = MetadataResponseBroker(node_id=BROKER_ID, host=self._host, port=self._port)
        connection.respond(
            header, MetadataResponse(brokers=[broker], cluster_id="bare", controller_id=BROKER_ID, topics=topics)
        )

    def find_coordinator(self, connection: Connection, header: RequestHeader, request: Any) -> None:
        """Name this broker; consumers with a group ask, even if they never join it."""
        connection.respond(
            header, FindCoordinatorResponse(error_code=0, node_id=BROKER_ID, host=self._host, port=self._port)
        )

    def create_topics(self, connection: Connection, header: RequestHeader, request: Any) -> None:
        """Note how many partitions the topics have."""
        self._topics.update((topic.name, topic.num_partitions) for topic in request.topics)
        results = [CreatableTopicResult(name=topic.name, error_code=0, error_message=None) for topic in request.topics]
        connection.respond(header, CreateTopicsResponse(topics=results))

    def delete_topics(self, connection: Connection, header: RequestHeader, request: Any) -> None:
        """Forget topics."""
        for name in request.topic_names:
            for index in range(self._topics.pop(name, 0)):
                self._partitions.pop((name, index), None)
        results = [DeletableTopicResult(name=name, error_code=0) for name in request.topic_names]
        connection.respond(header, DeleteTopicsResponse(responses=results))

    def api_versions(self, connection: Connection, header: RequestHeader, request: Any) -> None:
        """Name what is served."""
        keys = [
            ApiVersion(api_key=api, min_version=api.versions.first, max_version=last)
            for api, (_, last) in HANDLERS.items()
        ]
        connection.respond(header, ApiVersionsResponse(error_code=0, api_keys=keys))


# With the last version that is served: that of our broker, or an earlier one that has names where later ones have ids,
# and one coordinator for each request.
HANDLERS: Final[dict[Api, tuple[Handler, int]]] = {
    Api.PRODUCE: (BareBroker.produce, Api.PRODUCE.versions.last),
    Api.FETCH: (BareBroker.fetch, 12),
    Api.LIST_OFFSETS: (BareBroker.list_offsets, Api.LIST_OFFSETS.versions.last),
    Api.METADATA: (BareBroker.metadata, 9),
    Api.FIND_COORDINATOR: (BareBroker.find_coordinator, 3),
    Api.CREATE_TOPICS: (BareBroker.create_topics, Api.CREATE_TOPICS.versions.last),
    Api.DELETE_TOPICS: (BareBroker.delete_topics, 5),
    Api.API_VERSIONS: (BareBroker.api_versions, Api.API_VERSIONS.versions.last),
}
