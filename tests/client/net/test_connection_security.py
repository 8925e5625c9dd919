"""The blocking connection with TLS and a login, against a broker's network."""

from __future__ import annotations

import ssl
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.broker.network.serving import DEADLINE_SECONDS
from tests.broker.network.test_tls import serving_tls
from tests.broker.security.certificates import Certificates
from tests.kit.waiting import until

from ottla.client.net.blocking_connection import BlockingConnection, ConnectionFailedError, ResponseTimeoutError
from ottla.client.net.connector import Connector
from ottla.protocol.api import Api
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from ottla.protocol.requests import decode_request_header, encode_response

VERSION = 8
REQUEST = UpdateMetadataRequest(controller_id=1, controller_epoch=2, live_brokers=[])


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """One CA for all tests of the file."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


def answer(connection: Any, frame: Any, slot: Any, arrived: float) -> None:
    """Answer as a broker does."""
    _, header, _ = decode_request_header(frame.body)
    response = UpdateMetadataResponse(error_code=77)
    connection.respond(slot, encode_response(Api.UPDATE_METADATA, VERSION, header.correlation_id, response))


def connection_to(
    port: int, context: ssl.SSLContext, host: str = "127.0.0.1", timeout_ms: int = 60_000
) -> BlockingConnection:
    """A connection with TLS."""
    connector = Connector(lambda: context)
    return connector.connection(host, port, client_id="test", connect_timeout_ms=60_000, request_timeout_ms=timeout_ms)


def test_requests_go_through_tls(certificates: Certificates) -> None:
    """Many on one connection."""
    with serving_tls(answer, certificates) as served:
        connection = connection_to(served.served.port, certificates.client_context())
        try:
            for _ in range(10):
                assert connection.request(Api.UPDATE_METADATA, VERSION, REQUEST).error_code == 77
        finally:
            connection.close()


def test_an_idle_connection_is_kept_until_the_broker_ends_it(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS has sent all that it had to say with the first answer, so that what comes then is the end."""
    monkeypatch.setattr("ottla.client.net.blocking_connection._IDLE_SECONDS", 0.0)
    peers: list[Any] = []

    def note(connection: Any, frame: Any, slot: Any, arrived: float) -> None:
        peers.append(connection)
        answer(connection, frame, slot, arrived)

    with serving_tls(note, certificates) as served:
        connection = connection_to(served.served.port, certificates.client_context())
        try:
            for _ in range(3):
                assert connection.request(Api.UPDATE_METADATA, VERSION, REQUEST).error_code == 77
            assert len(set(peers)) == 1
            peers[0].close()
            until(connection._is_ended, "the connection has ended")
            assert connection.request(Api.UPDATE_METADATA, VERSION, REQUEST).error_code == 77
            assert len(set(peers)) == 2
        finally:
            connection.close()


def test_a_broker_that_is_not_trusted_gets_no_request(certificates: Certificates, tmp_path: Path) -> None:
    """Another CA, or another host than the certificate names."""
    asked: list[Any] = []

    def note(*arguments: Any) -> None:
        asked.append(arguments)

    with serving_tls(note, certificates) as served:
        other = Certificates(tmp_path).client_context()
        with pytest.raises(ConnectionFailedError, match=r"self-signed|unable to get local issuer"):
            connection_to(served.served.port, other).request(Api.UPDATE_METADATA, VERSION, REQUEST)
    elsewhere = Certificates(tmp_path, broker_names=("elsewhere.example",))
    trusting = elsewhere.client_context()
    mismatch = pytest.raises(ConnectionFailedError, match=r"IP address mismatch.*127\.0\.0\.1")
    with serving_tls(note, elsewhere) as served, mismatch:
        connection_to(served.served.port, trusting).request(Api.UPDATE_METADATA, VERSION, REQUEST)
    assert asked == []


def test_silence_ends_at_the_timeout(certificates: Certificates) -> None:
    """And the next request connects anew."""
    silent = [True]

    def sometimes(connection: Any, frame: Any, slot: Any, arrived: float) -> None:
        if not silent[0]:
            answer(connection, frame, slot, arrived)

    with serving_tls(sometimes, certificates) as served:
        connection = connection_to(served.served.port, certificates.client_context(), timeout_ms=100)
        try:
            with pytest.raises(ResponseTimeoutError):
                connection.request(Api.UPDATE_METADATA, VERSION, REQUEST)
            assert not connection.is_connected
        finally:
            connection.close()


def test_another_thread_may_end_a_request(certificates: Certificates) -> None:
    """Nothing is sent in the clear meanwhile, and the waiting thread is told."""
    arrived = threading.Event()

    def never(*arguments: Any) -> None:
        arrived.set()

    with serving_tls(never, certificates) as served:
        connection = connection_to(served.served.port, certificates.client_context())
        failed: list[Exception] = []

        def ask() -> None:
            try:
                connection.request(Api.UPDATE_METADATA, VERSION, REQUEST)
            except ConnectionFailedError as error:
                failed.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        assert arrived.wait(DEADLINE_SECONDS)
        connection.interrupt()
        thread.join(DEADLINE_SECONDS)
        connection.close()
    assert len(failed) == 1
