"""Frames that no client of Kafka sends: each costs its own connection, and nothing else. Rows F30 to F33."""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
import urllib.request
from contextlib import ExitStack, closing, suppress
from random import Random

import pytest
from tests.faults.live import (
    MIB,
    PATIENCE_SECONDS,
    PRODUCE_VERSION,
    Client,
    Process,
    Said,
    batch_of,
    check_serves,
    connect,
    is_closed_by_broker,
    produce_request,
)
from tests.kit.broker_process import BrokerProcess

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.frame import frame
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.requests import decode_response, encode_request

REQUEST_BYTES_MAX = 100 * MIB
FRAME_DEADLINE_SECONDS = 1.0
# A broker's memory moves by itself: what a hundred megabytes would do to it is far above this.
MEMORY_NOISE_BYTES = 16 * MIB


def frames_rejected(broker: BrokerProcess) -> float:
    """Read the counter of frames with a size that cannot be."""
    with urllib.request.urlopen(f"{broker.http}/metrics", timeout=PATIENCE_SECONDS) as response:
        lines = response.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("ottla_frames_rejected_total"))


@pytest.mark.parametrize("size", [2**31 - 1, -1, -(2**31), REQUEST_BYTES_MAX + 1])
def test_a_size_that_cannot_be_closes_the_connection(hasty_broker: BrokerProcess, size: int) -> None:
    """Nothing is allocated; there is one log line, and a counter moves by one."""
    process, said = Process(hasty_broker.pid), Said(hasty_broker)
    rejected, resident = frames_rejected(hasty_broker), process.resident_bytes
    with connect(hasty_broker) as client:
        client.sendall(struct.pack(">i", size))

        assert is_closed_by_broker(client)
    assert len(said.lines("frame_refused")) == 1
    assert str(size) in said.lines("frame_refused")[0]
    assert frames_rejected(hasty_broker) == rejected + 1
    assert process.resident_bytes - resident < MEMORY_NOISE_BYTES
    said.check_no_failure()


def test_an_empty_frame_closes_the_connection(hasty_broker: BrokerProcess) -> None:
    """It has no room for a header."""
    said = Said(hasty_broker)
    with connect(hasty_broker) as client:
        client.sendall(struct.pack(">i", 0))

        assert is_closed_by_broker(client)
    assert len(said.lines("request_refused")) == 1
    said.check_no_failure()


def test_the_largest_size_alone_costs_no_memory(hasty_broker: BrokerProcess) -> None:
    """Buffers grow with what arrives, and not with what was announced."""
    process = Process(hasty_broker.pid)
    resident = process.resident_bytes
    with ExitStack() as opened:
        clients = [opened.enter_context(connect(hasty_broker)) for _ in range(20)]
        for client in clients:
            client.sendall(struct.pack(">i", REQUEST_BYTES_MAX) + bytes(1000))

        assert all(is_closed_by_broker(client) for client in clients)
    assert process.resident_bytes - resident < 20 * MIB + MEMORY_NOISE_BYTES


# The same few bytes again and again: some of them stand where a message has a count or a length.
HOSTILE_BODIES = {
    "classic-counts": b"\x7f\xff\xff\xff" * 16,
    "compact-counts": b"\xff\xff\xff\xff\x0f" * 16,
    "endless-varints": b"\xff" * 80,
    "tagged-fields": b"\x01" * 16 + b"\xfe\xff\xff\xff\x0f" * 16,
}


@pytest.mark.parametrize("body", HOSTILE_BODIES.values(), ids=HOSTILE_BODIES)
def test_hostile_lengths_in_a_small_frame_cost_no_memory(hasty_broker: BrokerProcess, body: bytes) -> None:
    """Each API, in its first and last version, answers or closes, and allocates nothing that was only announced."""
    process, said = Process(hasty_broker.pid), Said(hasty_broker)
    resident = process.resident_bytes
    with closing(Client(hasty_broker)) as client:
        served = client.api_versions().api_keys
    for api in served:
        for version in {api.min_version, api.max_version}:
            header = struct.pack(">hhih", api.api_key, version, 1, -1)
            has_tags = Api(api.api_key).request_header_version(version) >= 2
            with connect(hasty_broker) as client:
                client.sendall(frame([header, b"\0" if has_tags else b"", body]))
                client.recv(4096)  # an answer, or the end
    assert process.resident_bytes - resident < MEMORY_NOISE_BYTES
    said.check_no_failure()


def client_hello() -> bytes:
    """What a TLS client says first."""
    outgoing = ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


STRANGERS = {
    "http": (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP"),
    "tls": (client_hello(), "TLS"),
    "ssh": (b"SSH-2.0-OpenSSH_9.2\r\n", "SSH"),
    "garbage": (b"\xf0" + Random(1).randbytes(200), "something else than Kafka"),
    "zeros": (bytes(200), "no room for a header"),
    "plausible-size": (b"\0\0\0\x40" + b"\x7e" * 64, "unknown API key"),
}


@pytest.mark.parametrize(("spoken", "described"), STRANGERS.values(), ids=STRANGERS)
def test_who_does_not_speak_kafka_is_told_apart_in_the_log(
    hasty_broker: BrokerProcess, spoken: bytes, described: str
) -> None:
    """The connection is closed, and one line says in plain words what was spoken; there is no traceback."""
    said = Said(hasty_broker)
    with connect(hasty_broker) as client:
        client.sendall(spoken)

        assert is_closed_by_broker(client)
    (refusal,) = said.lines("frame_refused") + said.lines("request_refused")
    assert described in refusal
    said.check_no_failure()


@pytest.mark.parametrize("size", [10_000, 1_000_000], ids=["small", "large"])
def test_a_frame_that_never_completes_is_cut_at_the_deadline(
    hasty_broker: BrokerProcess, topic: str, size: int
) -> None:
    """However many send one byte now and then, others are served meanwhile."""
    with ExitStack() as opened:
        slow = [opened.enter_context(connect(hasty_broker)) for _ in range(50)]
        served = opened.enter_context(closing(Client(hasty_broker)))
        served.create_topic(topic)
        begun = time.monotonic()
        for client in slow:
            client.sendall(struct.pack(">i", size))
        left, cut_after = slow, []
        while left:
            assert time.monotonic() < begun + PATIENCE_SECONDS, f"{len(left)} are still open"
            served.round_trip(topic)
            ended = select.select(left, [], [], 0.05)[0]
            assert all(is_closed_by_broker(client) for client in ended)
            cut_after += [time.monotonic() - begun] * len(ended)
            left = [client for client in left if client not in ended]
            for client in left:
                with suppress(ConnectionError):
                    client.send(b"\0")
    assert min(cut_after) >= FRAME_DEADLINE_SECONDS


def test_an_unknown_api_closes_the_connection(hasty_broker: BrokerProcess) -> None:
    """There is no way to answer it."""
    said = Said(hasty_broker)
    with connect(hasty_broker) as client:
        client.sendall(frame([struct.pack(">hhih", 9999, 0, 1, -1)]))

        assert is_closed_by_broker(client)
    assert "unknown API key 9999" in said.lines("request_refused")[0]


@pytest.mark.parametrize("version", [-1, 99, 2**15 - 1])
def test_an_unknown_version_closes_the_connection(hasty_broker: BrokerProcess, version: int) -> None:
    """The log says which API and which version."""
    said = Said(hasty_broker)
    with connect(hasty_broker) as client:
        client.sendall(frame([struct.pack(">hhihB", Api.METADATA, version, 1, -1, 0)]))

        assert is_closed_by_broker(client)
    assert f"Metadata version {version} is" in said.lines("request_refused")[0]
    said.check_no_failure()


def api_versions_answer(client: socket.socket) -> tuple[int, ApiVersionsResponse]:
    """Read an answer in version 0; return which request it is for, and the answer."""
    (size,) = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))
    header, answer = decode_response(Api.API_VERSIONS, 0, client.recv(size, socket.MSG_WAITALL))
    return header.correlation_id, answer


def test_api_versions_of_the_future_are_answered_in_version_0(hasty_broker: BrokerProcess) -> None:
    """The client learns which versions there are, and goes on with the same connection."""
    with connect(hasty_broker) as client:
        for version in (99, 2**15 - 1):
            client.sendall(frame([struct.pack(">hhih", Api.API_VERSIONS, version, 7, -1), b"\0 more of the future"]))
            correlation_id, answer = api_versions_answer(client)

            assert correlation_id == 7
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert [(row.api_key, row.min_version) for row in answer.api_keys] == [(Api.API_VERSIONS, 0)]
        client.sendall(frame(encode_request(Api.API_VERSIONS, 0, 8, None, ApiVersionsRequest())))
        correlation_id, answer = api_versions_answer(client)

        assert correlation_id == 8
        assert answer.error_code == ErrorCode.NONE


def test_after_all_that_a_client_is_served(hasty_broker: BrokerProcess, topic: str) -> None:
    """What comes after bad input does not notice it."""
    with connect(hasty_broker) as client:
        client.sendall(b"\xff" * 1000)
        assert is_closed_by_broker(client)

    check_serves(hasty_broker, topic)


def test_what_is_pipelined_behind_a_bad_request_takes_no_effect(hasty_broker: BrokerProcess, topic: str) -> None:
    """The connection ends with the bad request, whatever came in with it."""
    with closing(Client(hasty_broker)) as judge, connect(hasty_broker) as client:
        judge.create_topic(topic)
        good = frame(encode_request(Api.PRODUCE, PRODUCE_VERSION, 1, None, produce_request(topic, batch_of(b"value"))))
        bad = frame([struct.pack(">hhih", 9999, 0, 1, -1)])
        client.sendall(good + bad + good * 10)
        with suppress(ConnectionError):
            while client.recv(4096):
                pass

        assert judge.fetch(topic, 0).high_watermark == 1
