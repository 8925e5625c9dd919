"""Connections with TLS: handshakes, records and requests that do not end together, and clients that misbehave."""

from __future__ import annotations

import hashlib
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog
import trustme
from tests.broker.network.serving import (
    DEADLINE_SECONDS,
    Served,
    echo,
    receive_exactly,
    receive_frame,
    send_frame,
    serving_securely,
)
from tests.broker.security.certificates import Certificates
from tests.kit.waiting import until

from ottla.broker.config import BrokerConfig
from ottla.broker.network import limits
from ottla.broker.network.tls.handshakes import Handshakes
from ottla.broker.security.listener_security import ListenerSecurity
from ottla.broker.security.tls.tls_listener import TlsListener
from ottla.broker.storage.open_files import FileSlice, OpenFile

MIB = 1024 * 1024


class TlsServed:
    """A network with TLS, and how to connect to it."""

    def __init__(self, served: Served, tls: TlsListener) -> None:
        self.served = served
        self.tls = tls

    def connect(self, context: ssl.SSLContext) -> ssl.SSLSocket:
        """Open a client socket, through the handshake."""
        return context.wrap_socket(self.served.connect(), server_hostname="127.0.0.1")

    def await_failures(self, count: int) -> None:
        """Wait until that many handshakes have failed; clients may know of it first."""
        until(lambda: self.tls.failures >= count, f"{count} failures")
        assert self.tls.failures == count


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """One CA for all tests of the file."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


@contextmanager
def serving_tls(dispatch: Any, certificates: Certificates, **options: str) -> Iterator[TlsServed]:
    """Serve with TLS until the block ends."""
    config = BrokerConfig.of(
        {
            "listeners": "SSL://127.0.0.1:0",
            "security.inter.broker.protocol": "SSL",
            **certificates.options(),
            **{key.replace("_", "."): value for key, value in options.items()},
        }
    )
    tls = TlsListener("SSL", lambda: config)
    with serving_securely(dispatch, config, {"SSL": ListenerSecurity(tls, None)}) as served:
        yield TlsServed(served, tls)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_requests_are_answered_through_tls(certificates: Certificates, version: ssl.TLSVersion) -> None:
    """In both versions, whatever their sizes."""
    context = certificates.client_context()
    context.minimum_version = context.maximum_version = version
    with serving_tls(echo, certificates) as served, served.connect(context) as client:
        for size in (0, 1, 100, 16_384, 65_535, 65_536, 300_000, 2 * MIB):
            body = hashlib.shake_128(str(size).encode()).digest(size)
            send_frame(client, body)
            assert receive_frame(client) == body


def test_requests_may_begin_and_end_anywhere_in_records(certificates: Certificates) -> None:
    """Many in one record, one in many records, and a size that is cut in two."""
    bodies = [bytes([number % 256]) * (number * 37 % 4000) for number in range(300)]
    stream = b"".join(len(body).to_bytes(4) + body for body in bodies)
    with serving_tls(echo, certificates) as served, served.connect(certificates.client_context()) as client:
        position = 0
        for step in (1, 2, 3, 5, 7, 50_000, 13, 100_000, len(stream)):
            client.sendall(stream[position : position + step])
            position += step
        assert [receive_frame(client) for _ in bodies] == bodies


def test_the_first_request_may_come_with_the_end_of_the_handshake(certificates: Certificates) -> None:
    """Its bytes are in memory by then, and no selector tells of them."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = certificates.client_context().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with serving_tls(echo, certificates) as served, served.served.connect() as client:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                client.sendall(outgoing.read())
                incoming.write(client.recv(65536))
        tls.write(b"\0\0\0\5hello")
        client.sendall(outgoing.read())
        answer = b""
        while len(answer) < 9:
            try:
                answer += tls.read(100)
            except ssl.SSLWantReadError:
                incoming.write(client.recv(65536))
    assert answer == b"\0\0\0\5hello"


def test_file_slices_are_read_and_encrypted_in_pieces(certificates: Certificates, tmp_path: Path) -> None:
    """A hundred megabytes arrive whole, and are counted as copied."""
    path = tmp_path / "segment"
    block = hashlib.shake_128(b"segment").digest(MIB)
    with path.open("wb") as file:
        for _ in range(100):
            file.write(block)
    opened = OpenFile(path)

    def answer(connection: Any, frame: Any, slot: Any, arrived: float) -> None:
        connection.respond(slot, [b"head", FileSlice(opened, 0, 100 * MIB), b"tail"])

    with serving_tls(answer, certificates) as served, served.connect(certificates.client_context()) as client:
        send_frame(client, b"fetch")
        assert receive_exactly(client, 8) == (100 * MIB + 8).to_bytes(4) + b"head"
        for _ in range(100):
            assert receive_exactly(client, MIB) == block
        assert receive_exactly(client, 4) == b"tail"
        network = served.served.network
        assert (network.bytes_sendfile, network.bytes_copied) == (0, 100 * MIB + 12)


def test_a_slow_reader_gets_everything_in_order(certificates: Certificates) -> None:
    """Many answers wait behind a socket that is full, and a worker goes on with them."""
    body = hashlib.shake_128(b"slow").digest(8 * MIB)
    with serving_tls(echo, certificates) as served, served.served.connect() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 * 1024)
        client = certificates.client_context().wrap_socket(raw, server_hostname="127.0.0.1")
        with client:
            send_frame(client, body)
            send_frame(client, b"second")
            assert receive_frame(client) == body
            assert receive_frame(client) == b"second"


def test_a_client_in_the_clear_is_told_apart(certificates: Certificates) -> None:
    """Its connection is closed, and the log says what to do."""
    with structlog.testing.capture_logs() as logs, serving_tls(echo, certificates) as served:
        for _ in range(2):
            with served.served.connect() as client:
                send_frame(client, b"\0\x12\0\0\0\0\0\1\0\5kafka")
                while client.recv(1024):
                    pass  # an alert, which a client in the clear does not understand
            with served.served.connect() as client:
                client.sendall(b"GET / HTTP/1.1\r\n\r\n")
                while client.recv(1024):
                    pass
        served.await_failures(4)
    first, second = [entry["hint"] for entry in logs if entry["event"] == "tls_handshake_failed"]
    assert first == "the client does not speak TLS: set its security.protocol to SSL or SASL_SSL"
    assert "HTTP" in second, "one line in a while, for each mistake of a peer"


def test_a_client_with_another_ca_gives_up(certificates: Certificates, tmp_path: Path) -> None:
    """The log says that it does not trust us."""
    other = Certificates(tmp_path)
    with structlog.testing.capture_logs() as logs, serving_tls(echo, certificates) as served:
        with pytest.raises(ssl.SSLCertVerificationError):
            served.connect(other.client_context())
        with served.connect(certificates.client_context()) as client:
            send_frame(client, b"others are served")
            assert receive_frame(client) == b"others are served"
        served.await_failures(1)
    (said,) = [entry for entry in logs if entry["event"] == "tls_handshake_failed"]
    assert "does not trust our certificate" in said["hint"]


def names(connection: Any, frame: Any, slot: Any, arrived: float) -> None:
    """Answer with who the client is."""
    connection.respond(slot, [connection.session.principal.encode()])


def test_the_name_in_a_clients_certificate_is_its_principal(certificates: Certificates) -> None:
    """Written as Java does, and made shorter by rules."""
    with serving_tls(names, certificates, ssl_client_auth="requested") as served:
        with served.connect(certificates.client_context(common_name="alice")) as client:
            send_frame(client, b"")
            principal = (receive_frame(client) or b"").decode()
        with served.connect(certificates.client_context()) as client:
            send_frame(client, b"")
            assert receive_frame(client) == b"User:ANONYMOUS"
    assert principal.startswith("User:CN=alice,OU=Testing cert")
    with (
        serving_tls(
            names,
            certificates,
            ssl_client_auth="required",
            ssl_principal_mapping_rules=r"RULE:^CN=([a-z]+),.*$/$1/U",
        ) as served,
        served.connect(certificates.client_context(common_name="alice")) as client,
    ):
        send_frame(client, b"")
        assert receive_frame(client) == b"User:ALICE"


def test_a_client_without_a_certificate_is_refused_where_one_is_required(certificates: Certificates) -> None:
    """Also one whose certificate is signed by somebody else."""
    stranger = certificates.client_context()
    own = certificates.folder / "stranger.pem"
    Certificates.write(own, trustme.CA(), "stranger@example.org")
    stranger.load_cert_chain(own)
    with serving_tls(names, certificates, ssl_client_auth="required") as served:
        for context in (certificates.client_context(), stranger):
            # With TLS 1.3 the client learns of it when it reads.
            with served.connect(context) as client, pytest.raises((ssl.SSLError, ConnectionError)):
                client.recv(1)
        served.await_failures(2)


def test_a_handshake_has_a_deadline(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the client says nothing, or half of a hello."""
    monkeypatch.setattr(limits, "SETUP_SECONDS", 0.0)
    with serving_tls(echo, certificates) as served:
        for first in (b"", b"\x16\x03\x01\x02\x00\x01"):
            with served.served.connect() as client:
                client.sendall(first)
                assert client.recv(1) == b""


def test_a_handshake_of_endless_size_is_cut_off(certificates: Certificates) -> None:
    """After what a long chain of certificates may take."""
    record = b"\x16\x03\x01\x40\x00\x01\x00\xff\xff" + bytes(0x4000 - 4)
    with serving_tls(echo, certificates) as served, served.served.connect() as client:
        with pytest.raises(ConnectionError):
            client.sendall(record * 1000)
        assert served.served.on_loop(served.served.network.connections) == []


@pytest.fixture
def few_handshakes(monkeypatch: pytest.MonkeyPatch) -> int:
    """How many handshakes a network may have in progress during the test."""
    count_max = 4
    monkeypatch.setattr("ottla.broker.network.network.Handshakes", partial(Handshakes, count_max=count_max))
    return count_max


def test_the_oldest_handshake_makes_room_for_a_new_one(certificates: Certificates, few_handshakes: int) -> None:
    """Clients that connect and say nothing keep nobody out, and one line in the log tells of them."""
    with ExitStack() as stack:
        logs = stack.enter_context(structlog.testing.capture_logs())
        served = stack.enter_context(serving_tls(echo, certificates))
        silent = [stack.enter_context(served.served.connect()) for _ in range(few_handshakes)]
        until(
            lambda: served.served.on_loop(lambda: served.served.network.counts.total) == few_handshakes, "all accepted"
        )

        with served.connect(certificates.client_context()) as client:
            send_frame(client, b"welcome")
            assert receive_frame(client) == b"welcome"
        assert silent[0].recv(1) == b"", "the oldest one is closed"
        with served.connect(certificates.client_context()) as client:
            send_frame(client, b"welcome")
            assert receive_frame(client) == b"welcome"
        silent[1].settimeout(0)
        with pytest.raises(BlockingIOError):
            silent[1].recv(1)
    (said,) = [entry for entry in logs if entry["event"] == "tls_handshakes_dropped"]
    assert (said["listener"], said["handshakes_max"]) == ("SSL", few_handshakes)


def test_silent_clients_of_one_listener_take_no_handshakes_from_another(
    certificates: Certificates, few_handshakes: int
) -> None:
    """Brokers reach each other however many strangers wait at the listener for clients."""
    config = BrokerConfig.of(
        {
            "listeners": "INTERNAL://127.0.0.1:0,PUBLIC://127.0.0.1:1",
            "listener.security.protocol.map": "INTERNAL:SSL,PUBLIC:SSL",
            "inter.broker.listener.name": "INTERNAL",
            **certificates.options(),
        }
    )
    security = {name: ListenerSecurity(TlsListener(name, lambda: config), None) for name in ("INTERNAL", "PUBLIC")}
    with ExitStack() as stack:
        served = stack.enter_context(serving_securely(echo, config, security))
        for _ in range(2 * few_handshakes):
            stack.enter_context(served.connect("PUBLIC"))
        until(lambda: served.on_loop(lambda: served.network.counts.total) == few_handshakes, "as many as may wait")

        with certificates.client_context().wrap_socket(
            served.connect("INTERNAL"), server_hostname="127.0.0.1"
        ) as broker:
            send_frame(broker, b"welcome")
            assert receive_frame(broker) == b"welcome"


def test_certificates_are_reloaded_without_a_restart(tmp_path: Path) -> None:
    """New connections see the new one, open ones go on, and a broken file changes nothing."""
    certificates = Certificates(tmp_path)
    context = certificates.client_context()
    with serving_tls(echo, certificates) as served, served.connect(context) as before:
        first = before.getpeercert(binary_form=True)
        certificates.write(certificates.keystore, certificates.ca, "127.0.0.1")
        served.tls.refresh()
        with served.connect(context) as after:
            second = after.getpeercert(binary_form=True)
        assert second != first
        certificates.keystore.write_text("-----BEGIN NOTHING-----")
        with structlog.testing.capture_logs() as logs:
            served.tls.refresh()
            served.tls.refresh()
        # Connections end when they end, and say so.
        said = [entry["event"] for entry in logs if entry["event"] != "connection_closed"]
        assert said == ["certificates_not_reloaded"]
        with served.connect(context) as again:
            assert again.getpeercert(binary_form=True) == second
        send_frame(before, b"still here")
        assert receive_frame(before) == b"still here"


def test_a_client_is_told_when_the_broker_closes(certificates: Certificates) -> None:
    """With TLS's own goodbye, so that it knows that nothing was cut off."""

    def refuse(connection: Any, frame: Any, slot: Any, arrived: float) -> None:
        connection.fail("for a test")

    with serving_tls(refuse, certificates) as served:
        client = certificates.client_context().wrap_socket(
            served.served.connect(), server_hostname="127.0.0.1", suppress_ragged_eofs=False
        )
        with client:
            client.settimeout(DEADLINE_SECONDS)
            send_frame(client, b"")
            assert client.recv(1) == b""
