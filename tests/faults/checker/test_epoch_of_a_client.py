"""Why a value that was stored twice in two epochs of its producer is not the broker's fault.

librdkafka begins a new epoch when a broker answers OUT_OF_ORDER_SEQUENCE_NUMBER for a batch that is not the first under
way, which happens when the leader changes between the two. The epoch is one for all partitions. What another partition
has under way, and has perhaps stored already, is sent again in the new epoch, from sequence 0 on. No broker can know
that it is the same.

When librdkafka no longer does that, the test fails, and `is_sent_again` can go.
"""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from confluent_kafka import Producer

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.frame import FrameSplitter, frame
from ottla.protocol.message import Message
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdResponse
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.protocol.records import RecordBatch, batches
from ottla.protocol.requests import decode_request, encode_response

TOPIC = "orders"
TIMEOUT_S = 60.0
VERSIONS = {
    Api.PRODUCE: 8,
    Api.FETCH: 11,
    Api.METADATA: 9,
    Api.API_VERSIONS: 2,
    Api.INIT_PRODUCER_ID: 1,
}

Stored = tuple[int, int, list[bytes]]


class OneLeader:
    """A broker that leads the partition of its own number, and takes batches as a test says."""

    def __init__(self, number: int, take: Callable[[RecordBatch], ErrorCode | None]) -> None:
        self.number = number
        self.others: list[OneLeader] = [self]
        # (epoch, sequence, values) of each batch, in the order of their arrival.
        self.batches: list[Stored] = []
        # Released for each batch that arrives, also while one before it is not answered yet.
        self.arrived = threading.Semaphore(0)
        # Connections are answered while it is set.
        self.answers = threading.Event()
        self.answers.set()
        self._take = take
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self._listener.getsockname()[1]
        return port

    def close(self) -> None:
        """Take no more connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        splitter = FrameSplitter(1_000_000)
        requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._answer_all, args=(connection, requests), daemon=True).start()
        with suppress(OSError):
            while received := connection.recv(65536):
                for body in splitter.feed(received):
                    if decode_request(body)[0].request_api_key == Api.PRODUCE:
                        self.arrived.release()
                    requests.put(body)

    def _answer_all(self, connection: socket.socket, requests: queue.SimpleQueue[bytes]) -> None:
        with connection, suppress(OSError):
            while True:
                header, request = decode_request(requests.get())
                api = Api(header.request_api_key)
                assert self.answers.wait(TIMEOUT_S)
                answer = self._answer(api, request)
                if answer is None:
                    connection.shutdown(socket.SHUT_RDWR)
                    return
                parts = encode_response(api, header.request_api_version, header.correlation_id, answer)
                connection.sendall(frame(parts))

    def _answer(self, api: Api, request: Message) -> Message | None:
        match api:
            case Api.API_VERSIONS:
                known = [ApiVersion(api_key=each, min_version=0, max_version=most) for each, most in VERSIONS.items()]
                return ApiVersionsResponse(error_code=0, api_keys=known, throttle_time_ms=0)
            case Api.METADATA:
                return self._metadata()
            case Api.INIT_PRODUCER_ID:
                return InitProducerIdResponse(error_code=0, producer_id=7, producer_epoch=0, throttle_time_ms=0)
            case _:
                assert isinstance(request, ProduceRequest)
                return self._produce(request)

    def _metadata(self) -> MetadataResponse:
        partitions = [
            MetadataResponsePartition(
                error_code=0,
                partition_index=each.number,
                leader_id=each.number,
                leader_epoch=0,
                replica_nodes=[each.number],
                isr_nodes=[each.number],
                offline_replicas=[],
            )
            for each in self.others
        ]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=each.number, host="127.0.0.1", port=each.port, rack=None)
                for each in self.others
            ],
            cluster_id="cluster",
            controller_id=0,
            topics=[MetadataResponseTopic(error_code=0, name=TOPIC, is_internal=False, partitions=partitions)],
        )

    def _produce(self, request: ProduceRequest) -> ProduceResponse | None:
        data = request.topic_data[0].partition_data[0]
        batch = next(iter(batches(bytes(data.records or b""))))
        values = [bytes(record.value or b"") for record in batch.records()]
        self.batches.append((batch.producer_epoch, batch.base_sequence, values))
        code = self._take(batch)
        if code is None:
            return None
        answer = PartitionProduceResponse(
            index=data.index, error_code=int(code), base_offset=-1 if code else 0, record_errors=[]
        )
        return ProduceResponse(responses=[TopicProduceResponse(name=TOPIC, partition_responses=[answer])])


def test_librdkafka_sends_what_one_partition_may_have_stored_again_if_another_one_is_out_of_order() -> None:
    """One leader stores a value, and its answer is lost; another refuses one batch, and the next for the gap."""
    has_new_epoch = threading.Event()

    def refuse(batch: RecordBatch) -> ErrorCode:
        if batch.producer_epoch > 0:
            has_new_epoch.set()
            lost.answers.set()
            return ErrorCode.NONE
        if batch.base_sequence == 0:
            return ErrorCode.NONE
        if batch.base_sequence > 1:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        # The next one is under way, too, when this one is answered.
        assert changed.arrived.acquire(timeout=TIMEOUT_S)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def store(batch: RecordBatch) -> ErrorCode | None:
        if batch.producer_epoch > 0 or batch.base_sequence == 0:
            return ErrorCode.NONE
        lost.answers.clear()
        return None

    changed, lost = OneLeader(0, refuse), OneLeader(1, store)
    changed.others = lost.others = [changed, lost]
    producer = Producer(
        {"bootstrap.servers": f"127.0.0.1:{changed.port}", "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
    )
    try:
        for partition in (0, 1):
            producer.produce(TOPIC, b"first", partition=partition)
        assert producer.flush(TIMEOUT_S) == 0
        assert lost.arrived.acquire(timeout=TIMEOUT_S)
        producer.produce(TOPIC, b"stored", partition=1)
        assert lost.arrived.acquire(timeout=TIMEOUT_S)
        assert changed.arrived.acquire(timeout=TIMEOUT_S)
        producer.produce(TOPIC, b"refused", partition=0)
        assert changed.arrived.acquire(timeout=TIMEOUT_S)
        producer.produce(TOPIC, b"out of order", partition=0)

        assert producer.flush(TIMEOUT_S) == 0
    finally:
        changed.close()
        lost.close()
    assert has_new_epoch.is_set()
    assert lost.batches == [(0, 0, [b"first"]), (0, 1, [b"stored"]), (1, 0, [b"stored"])]
