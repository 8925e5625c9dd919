"""A connection on which a test sees every request and response, and may have many requests under way."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from tests.interop.clients.record import DEADLINE_S
from tests.kit.waiting import until

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.frame import SIZE_BYTES, frame, frame_size
from ottla.protocol.message import Message
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.records import RecordBatch, batches
from ottla.protocol.requests import decode_response, encode_request

RESPONSE_BYTES_MAX = 100_000_000
PRODUCE_VERSION, FETCH_VERSION, LIST_OFFSETS_VERSION, CREATE_TOPICS_VERSION = 9, 12, 7, 7
LATEST = -1
_NOT_YET = (
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    # Of a broker of Kafka that does not know of itself yet.
    ErrorCode.INVALID_REPLICATION_FACTOR,
)

T = TypeVar("T")


class RawConnection:
    """A socket to a broker; used by one thread at a time, or by one that sends and one that receives."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), DEADLINE_S)
        self._file = self._socket.makefile("rb")
        self._next_correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        with closing(self._socket):
            self._file.close()

    def shut_down(self) -> None:
        """End the connection under the hands of whoever reads from it."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def send(self, api: Api, version: int, message: Message) -> int:
        """Send a request and do not wait for the response; return its correlation id."""
        self.send_together(api, version, [message])
        return self._next_correlation_id - 1

    def send_together(self, api: Api, version: int, messages: Sequence[Message]) -> None:
        """Send several requests in one piece."""
        first = self._next_correlation_id
        self._next_correlation_id += len(messages)
        self._socket.sendall(
            b"".join(
                frame(encode_request(api, version, correlation_id, "raw", message))
                for correlation_id, message in enumerate(messages, first)
            )
        )

    def receive(self, api: Api, version: int) -> tuple[int, Any]:
        """Return the next response, with its correlation id."""
        size = frame_size(self._file.read(SIZE_BYTES), RESPONSE_BYTES_MAX)
        body = self._file.read(size)
        assert len(body) == size, "the broker closed the connection"
        header, response = decode_response(api, version, body)
        return header.correlation_id, response

    def request(self, api: Api, version: int, message: Message) -> Any:
        """Send a request and return the response."""
        sent = self.send(api, version, message)
        received, response = self.receive(api, version)
        assert sent == received
        return response

    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> bytes:
        """Create a topic and return its id; KafkaError if it is refused."""
        wanted = CreatableTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=1,
            assignments=[],
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in (configs or {}).items()],
        )
        body = CreateTopicsRequest(topics=[wanted], timeout_ms=int(DEADLINE_S * 1000), validate_only=False)
        result = self.request(Api.CREATE_TOPICS, CREATE_TOPICS_VERSION, body).topics[0]
        if result.error_code:
            raise KafkaError(ErrorCode.of(result.error_code), result.error_message or "")
        topic_id: bytes = result.topic_id
        return topic_id

    def produce(self, topic: str, batch: bytes | bytearray, acks: int = -1) -> int:
        """Produce a batch and return its base offset; KafkaError if it is refused."""
        response = self.request(Api.PRODUCE, PRODUCE_VERSION, produce_request(topic, batch, acks))
        result = response.responses[0].partition_responses[0]
        if result.error_code:
            raise KafkaError(ErrorCode.of(result.error_code), result.error_message or "")
        base_offset: int = result.base_offset
        return base_offset

    def end_offset(self, topic: str) -> int:
        """Return the offset after the last record."""
        response = self.request(Api.LIST_OFFSETS, LIST_OFFSETS_VERSION, end_offset_request(topic))
        result = response.topics[0].partitions[0]
        if result.error_code:
            raise KafkaError(ErrorCode.of(result.error_code))
        offset: int = result.offset
        return offset


def retrying(action: Callable[[], T]) -> T:
    """Do what a client does with a broker that has just started: ask again until the controller has told it all."""
    refusals: list[KafkaError] = []

    def answer() -> tuple[T] | None:
        try:
            return (action(),)
        except KafkaError as error:
            if error.code not in _NOT_YET:
                raise
            refusals.append(error)
            return None

    return until(answer, lambda: f"another answer than {refusals[-1]}")[0]


def produce_request(topic: str, batch: bytes | bytearray, acks: int = -1) -> ProduceRequest:
    """Make a request that appends one batch to partition 0."""
    data = PartitionProduceData(index=0, records=memoryview(batch))
    return ProduceRequest(
        acks=acks,
        timeout_ms=int(DEADLINE_S * 1000),
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


def end_offset_request(topic: str) -> ListOffsetsRequest:
    """Make a request for the end of partition 0."""
    partition = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])])


def fetch_request(topic: str, offset: int, *, min_bytes: int, max_wait_ms: int) -> FetchRequest:
    """Make a request that reads partition 0, without a session."""
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )


def one_record(value: bytes, **how: Any) -> bytearray:
    """Make a batch of one record; `how` are options of the builder, such as a producer id."""
    builder = RecordBatchBuilder()
    builder.append(1_700_000_000_000, None, value)
    return builder.build(**how)


def stored_batches(bootstrap: str, topic: str) -> list[RecordBatch]:
    """Return the batches of partition 0 as they lie in the log."""
    found: list[RecordBatch] = []
    offset = 0
    with RawConnection(bootstrap) as connection:
        end = connection.end_offset(topic)
        while offset < end:
            response = connection.request(
                Api.FETCH, FETCH_VERSION, fetch_request(topic, offset, min_bytes=1, max_wait_ms=0)
            )
            answer = response.responses[0].partitions[0]
            assert answer.error_code == 0
            found += batches(bytes(answer.records))
            offset = found[-1].next_offset
    return found
