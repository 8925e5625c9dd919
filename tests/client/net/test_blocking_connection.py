"""The blocking connection, against sockets that misbehave."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.kit.waiting import until

from ottla.client.net.blocking_connection import BlockingConnection, ConnectionFailedError, ResponseTimeoutError
from ottla.protocol.api import Api
from ottla.protocol.errors import DecodeError, EncodeError, ErrorCode, FrameError
from ottla.protocol.frame import FrameSplitter, frame
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from ottla.protocol.requests import decode_request, encode_response

TIMEOUT_S = 30
REQUEST = UpdateMetadataRequest(controller_id=1, controller_epoch=2, live_brokers=[])
Answer = Callable[[socket.socket, int], None]


def good_answer(peer: socket.socket, correlation_id: int) -> None:
    """Answer as a broker does."""
    response = UpdateMetadataResponse(error_code=77)
    peer.sendall(frame(encode_response(Api.UPDATE_METADATA, 8, correlation_id, response)))


@contextmanager
def server(*answers: Answer) -> Iterator[int]:
    """Serve requests with one answer after the other; after an answer that closes, accept again."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(TIMEOUT_S)
    left = list(answers)

    def serve() -> None:
        while left:
            peer, _ = listener.accept()
            with peer:
                peer.settimeout(TIMEOUT_S)
                splitter = FrameSplitter(1_000_000)
                while left and (received := peer.recv(65536)):
                    for body in splitter.feed(received):
                        left.pop(0)(peer, decode_request(body)[0].correlation_id)
                        if peer.fileno() == -1:
                            break
                    if peer.fileno() == -1:
                        break

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        thread.join(TIMEOUT_S)
        listener.close()
        assert not thread.is_alive()


def connection(
    port: int, request_timeout_ms: int = 20_000, response_bytes_max: int = 1000, reuses_buffer: bool = False
) -> BlockingConnection:
    """Make a connection to the server."""
    return BlockingConnection(
        "127.0.0.1",
        port,
        client_id="test",
        connect_timeout_ms=5000,
        request_timeout_ms=request_timeout_ms,
        response_bytes_max=response_bytes_max,
        reuses_buffer=reuses_buffer,
    )


def test_requests_are_answered_one_after_the_other() -> None:
    """On one connection, with correlation ids that differ."""
    ids: list[int] = []

    def answer(peer: socket.socket, correlation_id: int) -> None:
        ids.append(correlation_id)
        good_answer(peer, correlation_id)

    with server(answer, answer) as port:
        talking = connection(port)
        for _ in range(2):
            assert talking.request(Api.UPDATE_METADATA, 8, REQUEST) == UpdateMetadataResponse(error_code=77)
        assert talking.is_connected
        talking.close()
    assert ids == [0, 1]


def test_what_the_broker_closed_while_it_was_idle_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an error: no request was under way."""
    monkeypatch.setattr("ottla.client.net.blocking_connection._IDLE_SECONDS", 0.0)

    def answer_and_close(peer: socket.socket, correlation_id: int) -> None:
        good_answer(peer, correlation_id)
        peer.close()

    with server(answer_and_close, good_answer, good_answer) as port:
        talking = connection(port)
        assert talking.request(Api.UPDATE_METADATA, 8, REQUEST).error_code == 77
        until(talking._is_ended, "the connection has ended")
        for _ in range(2):
            assert talking.request(Api.UPDATE_METADATA, 8, REQUEST).error_code == 77
        talking.close()


def test_a_response_may_come_byte_by_byte() -> None:
    """And be larger than the first buffer."""

    def answer(peer: socket.socket, correlation_id: int) -> None:
        body = struct.pack(">i", correlation_id) + b"\0" + struct.pack(">hb", 0, 0)
        data = frame([body])
        for index in range(len(data)):
            peer.sendall(data[index : index + 1])

    with server(answer) as port:
        talking = connection(port)
        assert talking.request(Api.UPDATE_METADATA, 8, REQUEST).error_code == 0
        talking.close()


def test_large_responses_are_read_whole() -> None:
    """The buffer grows with what comes."""
    brokers = [DescribeClusterBroker(broker_id=index, host="h" * 200, port=1, rack=None) for index in range(2000)]

    def answer(peer: socket.socket, correlation_id: int) -> None:
        response = DescribeClusterResponse(
            throttle_time_ms=0, error_code=0, error_message=None, cluster_id="c", controller_id=1, brokers=brokers
        )
        peer.sendall(frame(encode_response(Api.DESCRIBE_CLUSTER, 1, correlation_id, response)))

    with server(answer) as port:
        talking = connection(port, response_bytes_max=1_000_000)
        request = DescribeClusterRequest(include_cluster_authorized_operations=False)
        assert talking.request(Api.DESCRIBE_CLUSTER, 1, request).brokers == brokers
        talking.close()


def large_answer(fill: bytes, size: int) -> Answer:
    """Answer a Fetch with records of a size, which are views of the buffer that the response was received in."""
    data = PartitionData(partition_index=0, error_code=0, high_watermark=0, records=fill * size)
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=bytes(16), partitions=[data])])

    def answer(peer: socket.socket, correlation_id: int) -> None:
        peer.sendall(frame(encode_response(Api.FETCH, 17, correlation_id, response)))

    return answer


def fetched(talking: BlockingConnection) -> memoryview:
    """Return the records of a response."""
    (topic,) = talking.request(Api.FETCH, 17, FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])).responses
    records = topic.partitions[0].records
    assert isinstance(records, memoryview)
    return records


@pytest.mark.parametrize("reuses", [True, False])
def test_a_buffer_is_used_again_only_where_that_was_asked_for(reuses: bool) -> None:
    """Then a response is valid until the next one: it was received in the same place."""
    size = 100_000
    with server(large_answer(b"a", size), large_answer(b"b", size + 1000), large_answer(b"c", 10)) as port:
        talking = connection(port, response_bytes_max=1_000_000, reuses_buffer=reuses)
        first = fetched(talking)
        assert first == b"a" * size
        assert fetched(talking) == b"b" * (size + 1000)
        assert fetched(talking) == b"c" * 10
        talking.close()
        assert bytes(first[:1]) == (b"b" if reuses else b"a")


def test_a_buffer_that_is_too_small_is_replaced() -> None:
    """What has arrived in it is kept."""
    sizes = (100_000, 5_000_000, 1_100_000)
    fills = (b"a", b"b", b"c")
    with server(*map(large_answer, fills, sizes)) as port:
        talking = connection(port, response_bytes_max=10_000_000, reuses_buffer=True)
        for fill, size in zip(fills, sizes, strict=True):
            assert fetched(talking) == fill * size
        talking.close()


def test_a_buffer_is_given_up_when_it_is_too_large_or_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower that copies little holds no megabytes."""
    monkeypatch.setattr("ottla.client.net.blocking_connection._KEPT_BYTES_MAX", 1_000_000)
    answers = (large_answer(b"a", 2_000_000), large_answer(b"b", 100_000), large_answer(b"c", 10))
    with server(*answers) as port:
        talking = connection(port, response_bytes_max=10_000_000, reuses_buffer=True)
        fetched(talking)
        held = [talking._kept is not None]
        fetched(talking)
        held.append(talking._kept is not None)
        # Nothing large was requested for a while.
        talking._kept_at -= 2.0
        fetched(talking)
        held.append(talking._kept is not None)
        talking.close()
    assert held == [False, True, False]


def close_at_once(peer: socket.socket, _: int) -> None:
    """Close without an answer."""
    peer.close()


def close_in_the_middle(peer: socket.socket, _: int) -> None:
    """Send a part of an answer."""
    peer.sendall(struct.pack(">i", 100) + b"abc")
    peer.close()


@pytest.mark.parametrize("misbehave", [close_at_once, close_in_the_middle])
def test_a_connection_that_breaks_is_made_anew(misbehave: Answer) -> None:
    """The request fails, and the next one works."""
    with server(misbehave, good_answer) as port:
        talking = connection(port)
        with pytest.raises(ConnectionFailedError) as caught:
            talking.request(Api.UPDATE_METADATA, 8, REQUEST)
        assert caught.value.code is ErrorCode.NETWORK_EXCEPTION
        assert not talking.is_connected
        assert talking.request(Api.UPDATE_METADATA, 8, REQUEST).error_code == 77
        talking.close()


def test_a_broker_that_does_not_answer_is_given_up() -> None:
    """After the timeout for the whole request, and the connection with it."""
    with server(lambda _peer, _id: None, good_answer) as port:
        talking = connection(port, request_timeout_ms=100)
        with pytest.raises(ResponseTimeoutError) as caught:
            talking.request(Api.UPDATE_METADATA, 8, REQUEST)
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert not talking.is_connected
        patient = connection(port)
        assert patient.request(Api.UPDATE_METADATA, 8, REQUEST).error_code == 77
        patient.close()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (struct.pack(">i", 1001), FrameError),
        (struct.pack(">i", -1), FrameError),
        (frame([struct.pack(">i", 99) + b"\0" + struct.pack(">hb", 0, 0)]), DecodeError),
        (frame([b"\0\0"]), DecodeError),
        (frame([b"\xff" * 50]), DecodeError),
    ],
    ids=["too large", "negative", "answer to another request", "too short", "garbage"],
)
def test_an_answer_that_makes_no_sense_is_refused(answer: bytes, error: type[Exception]) -> None:
    """Its size is checked before a buffer is made, and the connection is dropped."""
    with server(lambda peer, _id: peer.sendall(answer)) as port:
        talking = connection(port)
        with pytest.raises(error):
            talking.request(Api.UPDATE_METADATA, 8, REQUEST)
        assert not talking.is_connected


def test_nobody_listening_is_a_typed_error() -> None:
    """It names the address."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(ConnectionFailedError, match=str(port)):
            connection(port).request(Api.UPDATE_METADATA, 8, REQUEST)


def test_the_time_to_connect_doubles_with_each_failure_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A success brings the first limit back."""
    limits: list[float] = []
    create_connection = socket.create_connection

    def fail(address: tuple[str, int], timeout: float) -> socket.socket:
        limits.append(timeout)
        raise TimeoutError

    def succeed(address: tuple[str, int], timeout: float) -> socket.socket:
        limits.append(timeout)
        return create_connection(address, timeout=timeout)

    with server(good_answer) as port:
        talking = BlockingConnection(
            "127.0.0.1",
            port,
            client_id="test",
            connect_timeout_ms=10_000,
            connect_timeout_max_ms=30_000,
            request_timeout_ms=20_000,
        )
        monkeypatch.setattr(socket, "create_connection", fail)
        for _ in range(4):
            with pytest.raises(ConnectionFailedError):
                talking.connect()
        monkeypatch.setattr(socket, "create_connection", succeed)
        talking.request(Api.UPDATE_METADATA, 8, REQUEST)
        talking.interrupt()
        monkeypatch.setattr(socket, "create_connection", fail)
        # The first one ends with the old connection, the next one tries to make a new one.
        for _ in range(2):
            with pytest.raises(ConnectionFailedError):
                talking.request(Api.UPDATE_METADATA, 8, REQUEST)
        talking.close()

    assert limits == [10, 20, 30, 30, 30, 10]


def test_a_connection_has_the_receive_buffer_that_it_was_given() -> None:
    """Linux doubles the number, for its own use."""
    with server(good_answer) as port:
        talking = BlockingConnection(
            "127.0.0.1",
            port,
            client_id="test",
            connect_timeout_ms=5000,
            request_timeout_ms=20_000,
            receive_buffer_bytes=20_000,
        )
        talking.request(Api.UPDATE_METADATA, 8, REQUEST)
        made = talking._socket
        assert made is not None
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (20_000, 40_000)
        talking.close()


def test_closing_ends_a_request_of_another_thread() -> None:
    """Long before its timeout; and nothing is sent afterwards."""
    asked = threading.Event()
    errors: list[Exception] = []
    with server(lambda _peer, _id: asked.set()) as port:
        talking = connection(port, request_timeout_ms=600_000)

        def ask() -> None:
            try:
                talking.request(Api.UPDATE_METADATA, 8, REQUEST)
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        assert asked.wait(TIMEOUT_S)
        talking.close()
        thread.join(TIMEOUT_S)
        assert isinstance(errors[0], ConnectionFailedError)
        with pytest.raises(ConnectionFailedError, match="closed"):
            talking.request(Api.UPDATE_METADATA, 8, REQUEST)


def test_a_request_that_cannot_be_written_leaves_the_connection_alone() -> None:
    """The fault is ours, and nothing was sent."""
    with server(good_answer) as port:
        talking = connection(port)
        assert talking.request(Api.UPDATE_METADATA, 8, REQUEST).error_code == 77
        with pytest.raises(EncodeError):
            talking.request(Api.UPDATE_METADATA, 99, REQUEST)
        assert talking.is_connected
        talking.close()


def test_an_interruption_ends_a_request_and_the_next_one_connects_anew() -> None:
    """From another thread, long before the timeout."""
    asked = threading.Event()
    errors: list[Exception] = []
    with server(lambda _peer, _id: asked.set(), good_answer) as port:
        talking = connection(port, request_timeout_ms=600_000)

        def ask() -> None:
            try:
                talking.request(Api.UPDATE_METADATA, 8, REQUEST)
            except ConnectionFailedError as error:
                errors.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        assert asked.wait(TIMEOUT_S)
        talking.interrupt()
        thread.join(TIMEOUT_S)
        assert len(errors) == 1
        assert talking.request(Api.UPDATE_METADATA, 8, REQUEST).error_code == 77
        talking.interrupt()
        talking.close()
        talking.interrupt()


def test_bytes_behind_an_answer_are_refused() -> None:
    """Nobody asked for them."""

    def answer(peer: socket.socket, correlation_id: int) -> None:
        response = UpdateMetadataResponse(error_code=77)
        peer.sendall(frame(encode_response(Api.UPDATE_METADATA, 8, correlation_id, response)) + b"more")

    with server(answer) as port:
        talking = connection(port)
        with pytest.raises(DecodeError, match="4 bytes more"):
            talking.request(Api.UPDATE_METADATA, 8, REQUEST)
        assert not talking.is_connected
