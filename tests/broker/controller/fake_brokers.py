"""A broker that only listens to the controller: it answers, remembers what it was told, and keeps the metadata."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Collection
from typing import Any

from tests.broker.sessions import TIMEOUT_S

from ottla.broker.cluster.metadata import MetadataCache
from ottla.broker.config import Listener, SecurityProtocol
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.frame import FrameSplitter, frame
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.message import Message
from ottla.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from ottla.protocol.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from ottla.protocol.requests import decode_request, encode_response


class FakeBroker:
    """Listens on a port of its own from the start."""

    def __init__(self, metadata: MetadataCache | None = None) -> None:
        self.metadata = metadata or MetadataCache()
        # In the order of their arrival.
        self.requests: list[Message] = []
        # What the broker was last told of each of its partitions, and which it was told to delete.
        self.partitions: dict[TopicPartition, LeaderAndIsrPartitionState] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.deleted: set[TopicPartition] = set()
        # Replicas that the broker has lost with a disk.
        self.lost: set[TopicPartition] = set()
        # Partitions, with this broker as their first replica, whose logs are damaged: it follows with empty ones.
        self.cannot_lead: set[TopicPartition] = set()
        # Partitions whose roles the broker cannot take, for no reason that a controller could know.
        self.failing: set[TopicPartition] = set()
        # The error to answer to each deletion of a replica.
        self.stop_error = ErrorCode.NONE
        # The sizes of replicas; those of its other partitions are 0.
        self.sizes: dict[TopicPartition, int] = {}
        # Called with the topics that metadata was told of.
        self.on_metadata: Callable[[Collection[str]], None] = lambda _topics: None
        self._changed = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def listener(self) -> Listener:
        """What the broker registers."""
        host, port = self._listener.getsockname()[:2]
        return Listener("PLAINTEXT", SecurityProtocol.PLAINTEXT, host, port)

    def wait_for(self, condition: Callable[[], Any]) -> None:
        """Wait until what the broker was told makes a condition true."""
        with self._changed:
            assert self._changed.wait_for(condition, timeout=TIMEOUT_S), self.requests

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """Return the leader that the metadata names."""
        found = self.metadata.snapshot.partition(topic, partition)
        return None if found is None else found.leader

    def close(self) -> None:
        """Stop listening, and drop the connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._changed:
            connections = list(self._connections)
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in list(self._threads):
            thread.join(TIMEOUT_S)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            with self._changed:
                self._connections.append(connection)
                self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        splitter = FrameSplitter(10_000_000)
        with connection:
            try:
                while received := connection.recv(65536):
                    for body in splitter.feed(received):
                        header, request = decode_request(body)
                        api = Api(header.request_api_key)
                        response = self._handle(request)
                        parts = encode_response(api, header.request_api_version, header.correlation_id, response)
                        connection.sendall(frame(parts))
            except OSError:
                return

    def _handle(self, request: Message) -> Message:
        with self._changed:
            response = self._take(request)
            self.requests.append(request)
            self._changed.notify_all()
        return response

    def _take(self, request: Message) -> Message:
        match request:
            case UpdateMetadataRequest():
                self.metadata.update(request)
                self.on_metadata({topic.topic_name for topic in request.topic_states})
                return UpdateMetadataResponse(error_code=0)
            case LeaderAndIsrRequest():
                for topic in request.topic_states:
                    self.topic_ids[topic.topic_name] = topic.topic_id
                    for state in topic.partition_states:
                        self.partitions[TopicPartition(topic.topic_name, state.partition_index)] = state
                return LeaderAndIsrResponse(error_code=0, topics=self._role_errors(request))
            case StopReplicaRequest():
                return self._stop(request)
            case DescribeLogDirsRequest():
                return self._log_dirs()
            case _:
                raise AssertionError(request)

    def _log_dirs(self) -> DescribeLogDirsResponse:
        topics = [
            DescribeLogDirsTopic(
                name=partition.topic,
                partitions=[
                    DescribeLogDirsPartition(
                        partition_index=partition.partition,
                        partition_size=self.sizes.get(partition, 0),
                        offset_lag=0,
                        is_future_key=False,
                    )
                ],
            )
            for partition in self.partitions
        ]
        result = DescribeLogDirsResult(error_code=0, log_dir="/logs", topics=topics)
        return DescribeLogDirsResponse(throttle_time_ms=0, results=[result])

    def _role_errors(self, request: LeaderAndIsrRequest) -> list[LeaderAndIsrTopicError]:
        return [
            LeaderAndIsrTopicError(
                topic_id=topic.topic_id,
                partition_errors=[
                    LeaderAndIsrPartitionError(
                        partition_index=state.partition_index,
                        error_code=self._role_error(TopicPartition(topic.topic_name, state.partition_index), state),
                    )
                    for state in topic.partition_states
                ],
            )
            for topic in request.topic_states
        ]

    def _role_error(self, partition: TopicPartition, state: LeaderAndIsrPartitionState) -> ErrorCode:
        is_damaged = partition in self.cannot_lead and state.leader not in state.replicas[1:]
        if partition in self.lost or is_damaged:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.UNKNOWN_SERVER_ERROR if partition in self.failing else ErrorCode.NONE

    def _stop(self, request: StopReplicaRequest) -> StopReplicaResponse:
        errors = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                code = self.stop_error if state.delete_partition else ErrorCode.NONE
                if state.delete_partition and code is ErrorCode.NONE:
                    self.deleted.add(TopicPartition(topic.topic_name, state.partition_index))
                errors.append(
                    StopReplicaPartitionError(
                        topic_name=topic.topic_name, partition_index=state.partition_index, error_code=code
                    )
                )
        return StopReplicaResponse(error_code=0, partition_errors=errors)
