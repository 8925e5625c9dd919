"""A transactional producer that costs next to nothing: requests that were encoded once, on blocking sockets.

It does what every client must for a transaction, one step after the other: AddPartitionsToTxn, Produce to each leader,
EndTxn. When markers are on their way, it asks again 20 ms later, as Java's producer and librdkafka do.
"""

from __future__ import annotations

import socket
import struct
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, Self

from bench.support.rows import Target
from confluent_kafka.admin import AdminClient
from crc32c import crc32c

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.frame import frame
from ottla.protocol.message import Message
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.records import ATTRIBUTES_POSITION
from ottla.protocol.requests import decode_response, encode_request

# Versions without tagged fields: what Java's producer sends says the same.
_FIND_COORDINATOR, _INIT, _ADD, _PRODUCE, _END = 1, 1, 2, 8, 2
_TRANSACTION: Final = 1
_BUSY_SECONDS: Final = 0.02
_SECONDS_MAX: Final = 60.0
_TIMEOUT_MS: Final = 60_000
_SIZE: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_CRC_POSITION, _SEQUENCE_POSITION = 17, 53
_RETRIED: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


class _Connection:
    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), _SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def receive(self) -> bytes:
        """Return a response without its size."""
        (size,) = _SIZE.unpack(self._read(_SIZE.size))
        return self._read(size)

    def ask(self, request: bytes | bytearray) -> bytes:
        """Send a frame and return the response."""
        self.socket.sendall(request)
        return self.receive()

    def _read(self, size: int) -> bytes:
        data = self.socket.recv(size, socket.MSG_WAITALL)
        if len(data) < size:
            raise ConnectionError("the broker has closed the connection")
        return data


class _Batch:
    """A record batch inside the frame of a request, which gets its next sequence each time."""

    def __init__(self, request: bytearray, batch: bytes, records: int) -> None:
        self._records = records
        self._sequence = 0
        self._batch = memoryview(request)[request.index(batch) :][: len(batch)]

    def advance(self) -> None:
        """Let the batch have the sequences that come next."""
        _SIZE.pack_into(self._batch, _SEQUENCE_POSITION, self._sequence)
        _CRC.pack_into(self._batch, _CRC_POSITION, crc32c(self._batch[ATTRIBUTES_POSITION:]))
        self._sequence += self._records


class WireProducer:
    """Commits one transaction after the other, each with the same records; `with` opens and closes its connections."""

    def __init__(self, target: Target, topic: str, counts: Sequence[int], value: bytes) -> None:
        """`counts` says how many records each partition gets; one that gets none is not part of a transaction."""
        self._target = target
        self._topic = topic
        self._counts = {partition: count for partition, count in enumerate(counts) if count}
        self._value = value
        self._transactional_id = f"bench-{uuid.uuid4().hex}"
        self._stack = ExitStack()
        self._connections: dict[str, _Connection] = {}
        self._batches: list[_Batch] = []

    def __enter__(self) -> Self:
        leaders = self._leaders()
        self._coordinator = self._connect(self._find_coordinator())
        producer = self._init()
        names = (self._transactional_id, producer.producer_id, producer.producer_epoch)
        partitions = AddPartitionsToTxnTopic(name=self._topic, partitions=list(self._counts))
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=names[0],
            v3_and_below_producer_id=names[1],
            v3_and_below_producer_epoch=names[2],
            v3_and_below_topics=[partitions],
        )
        end = EndTxnRequest(transactional_id=names[0], producer_id=names[1], producer_epoch=names[2], committed=True)
        self._add = _frame(Api.ADD_PARTITIONS_TO_TXN, _ADD, add)
        self._end = _frame(Api.END_TXN, _END, end)
        self._produce = [
            (self._connect(address), self._produce_request(mine, producer)) for address, mine in leaders.items()
        ]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def commit(self) -> None:
        """Commit a transaction."""
        deadline = time.monotonic() + _SECONDS_MAX
        while (code := _error_at_end(self._coordinator.ask(self._add))) is not ErrorCode.NONE:
            _wait(code, deadline)
        for batch in self._batches:
            batch.advance()
        for connection, request in self._produce:
            connection.socket.sendall(request)
        for connection, request in self._produce:
            response = connection.receive()
            # The first one may come in before the leader knows the topic; batches that it has are not stored again.
            while (code := _produced(response)) is not ErrorCode.NONE:
                _wait(code, deadline)
                response = connection.ask(request)
        if (code := _error_at_end(self._coordinator.ask(self._end))) is not ErrorCode.NONE:
            raise KafkaError(code)

    def _connect(self, address: str) -> _Connection:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = _Connection(address)
            self._stack.enter_context(connection.socket)
        return connection

    def _leaders(self) -> Mapping[str, list[int]]:
        """Return the partitions that each leader has, by its address, when all have one."""
        admin = AdminClient({"bootstrap.servers": self._target.bootstrap, "log_level": 0})
        deadline = time.monotonic() + _SECONDS_MAX
        while True:
            found = admin.list_topics(self._topic, _SECONDS_MAX)
            known = found.topics[self._topic].partitions
            if all(partition in known and known[partition].leader in found.brokers for partition in self._counts):
                break
            _wait(ErrorCode.LEADER_NOT_AVAILABLE, deadline)
        leaders: dict[str, list[int]] = {}
        for partition in self._counts:
            broker = found.brokers[known[partition].leader]
            leaders.setdefault(f"{broker.host}:{broker.port}", []).append(partition)
        return leaders

    def _find_coordinator(self) -> str:
        connection = self._connect(self._target.bootstrap.partition(",")[0])
        request = FindCoordinatorRequest(key=self._transactional_id, key_type=_TRANSACTION)
        found = _asked(connection, Api.FIND_COORDINATOR, _FIND_COORDINATOR, request)
        return f"{found.host}:{found.port}"

    def _init(self) -> InitProducerIdResponse:
        request = InitProducerIdRequest(transactional_id=self._transactional_id, transaction_timeout_ms=_TIMEOUT_MS)
        made: InitProducerIdResponse = _asked(self._coordinator, Api.INIT_PRODUCER_ID, _INIT, request)
        return made

    def _produce_request(self, partitions: Sequence[int], producer: InitProducerIdResponse) -> bytearray:
        """Return the frame of the request to one leader, with a batch for each of its partitions."""
        batches: dict[int, bytes] = {}
        for partition in partitions:
            builder = RecordBatchBuilder()
            for _ in range(self._counts[partition]):
                # Batches must differ, so that each is found in the frame.
                builder.append(int(time.time() * 1000), b"%d" % partition, self._value)
            batch = builder.build(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=0,
                transactional=True,
            )
            batches[partition] = bytes(batch)
        data = [PartitionProduceData(index=partition, records=batch) for partition, batch in batches.items()]
        topics = [TopicProduceData(name=self._topic, partition_data=data)]
        request = ProduceRequest(
            transactional_id=self._transactional_id, acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=topics
        )
        encoded = bytearray(_frame(Api.PRODUCE, _PRODUCE, request))
        self._batches += [_Batch(encoded, batch, self._counts[partition]) for partition, batch in batches.items()]
        return encoded


def _frame(api: Api, version: int, request: Message) -> bytes:
    return bytes(frame(encode_request(api, version, 1, "bench", request)))


def _asked(connection: _Connection, api: Api, version: int, request: Message) -> Any:
    """Return the response, when it is not an error any more that the first moments of a cluster bring."""
    deadline = time.monotonic() + _SECONDS_MAX
    while True:
        _, response = decode_response(api, version, connection.ask(_frame(api, version, request)))
        if not response.error_code:
            return response
        _wait(ErrorCode.of(response.error_code), deadline)


def _wait(code: ErrorCode, deadline: float) -> None:
    if code not in _RETRIED or time.monotonic() > deadline:
        raise KafkaError(code)
    time.sleep(_BUSY_SECONDS)


def _error_at_end(response: bytes) -> ErrorCode:
    """Return the error that ends a response: that of EndTxn, or of the last partition, which is that of them all."""
    return ErrorCode.of(int.from_bytes(response[-2:], "big", signed=True))


def _produced(response: bytes) -> ErrorCode:
    """Return the first error in a response to Produce."""
    _, answer = decode_response(Api.PRODUCE, _PRODUCE, response)
    codes = [partition.error_code for topic in answer.responses for partition in topic.partition_responses]
    return ErrorCode.of(next(filter(None, codes), 0))
