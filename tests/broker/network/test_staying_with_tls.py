"""A worker that stays with a connection with TLS: it receives, decrypts and handles what comes."""

from __future__ import annotations

import hashlib
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.network.serving import DEADLINE_SECONDS, Served, echo, receive_frame, send_frame
from tests.broker.network.test_tls import TlsServed, serving_tls
from tests.broker.security.certificates import Certificates
from tests.kit.waiting import until

from ottla.broker.network import connection as connection_module
from ottla.broker.network.connection import Connection
from ottla.broker.network.tls import tls_channel, tls_connection
from ottla.broker.network.tls.tls_channel import PIECE_BYTES, LatestReceiver
from ottla.broker.network.tls.tls_connection import TlsConnection


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """One CA for all tests of the file."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(autouse=True)
def stays_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any pause between requests is short, a worker waits longer than any test, and no client has to be alone long."""
    monkeypatch.setattr(connection_module, "_CLOSE_SECONDS", float("inf"))
    monkeypatch.setattr(connection_module, "_STAY_MS", 10 * DEADLINE_SECONDS * 1000)
    monkeypatch.setattr(tls_channel, "ALONE_SECONDS", 0.0)


class Client:
    """A client that has its TLS records in memory, and sends them in the pieces that a test wants."""

    def __init__(self, served: TlsServed, certificates: Certificates) -> None:
        self.socket = served.served.connect()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = certificates.client_context().wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1")
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.socket.sendall(self._outgoing.read())
                self._incoming.write(self.socket.recv(65536))
        self.socket.sendall(self._outgoing.read())

    def encrypted(self, data: bytes) -> bytes:
        """Return TLS records."""
        self._tls.write(data)
        return self._outgoing.read()

    def goodbye(self) -> bytes:
        """Return the record that ends the stream."""
        with pytest.raises(ssl.SSLWantReadError):
            self._tls.unwrap()
        return self._outgoing.read()

    def receive(self, size: int) -> bytes:
        """Receive so many bytes."""
        data = b""
        while len(data) < size:
            try:
                data += self._tls.read(size - len(data))
            except ssl.SSLWantReadError:
                self._incoming.write(self.socket.recv(65536))
        return data


def only_connection(served: Served) -> TlsConnection:
    """The connection of the only client."""
    (connection,) = served.on_loop(served.network.connections)
    assert isinstance(connection, TlsConnection)
    return connection


@pytest.fixture
def attended(certificates: Certificates) -> Iterator[tuple[Client, TlsConnection]]:
    """A client with whose connection a worker stays."""
    with serving_tls(echo, certificates) as served:
        client = Client(served, certificates)
        with client.socket:
            # The first may come with the end of the handshake, which is not received as requests are.
            for body in (b"first", b"again"):
                client.socket.sendall(client.encrypted(framed(body)))
                assert client.receive(9) == framed(body)
            connection = only_connection(served.served)
            until(lambda: connection.is_lent, "a worker stays")
            yield client, connection


def framed(body: bytes) -> bytes:
    """A body with its size in front."""
    return len(body).to_bytes(4) + body


@pytest.mark.parametrize("size", [5, 16 * 1024, 300 * 1024, 5 * 1024 * 1024])
def test_the_worker_that_stays_decrypts_and_answers(
    size: int, attended: tuple[Client, TlsConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All parts of a request, and it waits for room at the socket: the loop has no part in it."""
    threads: list[str] = []
    for name in ("receive", "drain"):
        original = getattr(TlsConnection, name)

        def call(connection: Connection, original: Any = original) -> Any:
            threads.append(threading.current_thread().name)
            return original(connection)

        monkeypatch.setattr(TlsConnection, name, call)
    body = hashlib.shake_128(b"body").digest(size)
    client, _ = attended
    for _ in range(3):
        sender = threading.Thread(target=client.socket.sendall, args=(client.encrypted(framed(body)),))
        sender.start()
        assert client.receive(size + 4) == framed(body)
        sender.join(DEADLINE_SECONDS)
    assert not threads


def test_the_worker_waits_for_the_rest_of_a_record(attended: tuple[Client, TlsConnection]) -> None:
    """Part of a record is not a request, and no reason to leave."""
    client, connection = attended
    record = client.encrypted(framed(b"second"))
    client.socket.sendall(record[:10])
    until(lambda: client_bytes(client) == 0, "the worker has received it")
    assert connection.is_lent
    client.socket.sendall(record[10:])
    assert client.receive(10) == framed(b"second")
    assert connection.is_lent


def test_in_the_middle_of_a_large_request_the_worker_lets_more_come(
    attended: tuple[Client, TlsConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that sends record by record would wake it for each. Nothing waits where the end may be near."""
    pauses: list[float] = []
    monkeypatch.setattr(tls_connection, "time", SimpleNamespace(sleep=pauses.append, monotonic=time.monotonic))
    client, connection = attended
    body = bytes(3 * PIECE_BYTES)
    data = client.encrypted(framed(body))
    position = 0
    for end in (10_000, 90_000, len(data) - 100_000, len(data) - 50_000, len(data) - 10):
        client.socket.sendall(data[position:end])
        position = end
        until(lambda: client_bytes(client) == 0, "the worker has received it")
        if position == 90_000:
            assert pauses
        if position == len(data) - 100_000:
            pauses.clear()
    client.socket.sendall(data[position:])
    assert client.receive(len(body) + 4) == framed(body)
    assert connection.is_lent
    assert pauses == []


def client_bytes(client: Client) -> int:
    """How many bytes that the client has sent wait in the system, here or there."""
    port = client.socket.getsockname()[1]
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    queues = [fields[4].split(":") for fields in lines if f":{port:04X}" in fields[1] or f":{port:04X}" in fields[2]]
    ours = [fields[4] for fields in lines if fields[1].endswith(f":{port:04X}")]
    theirs = [fields[4] for fields in lines if fields[2].endswith(f":{port:04X}")]
    assert queues
    return sum(int(each.split(":")[0], 16) for each in ours) + sum(int(each.split(":")[1], 16) for each in theirs)


def test_the_loop_reads_what_a_worker_has_decrypted_and_left(
    attended: tuple[Client, TlsConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No selector knows of it."""
    client, connection = attended
    requests = [bytes([number]) * 3_000 for number in range(60)]
    # More than the worker's buffer takes at once, in one piece of what is received.
    monkeypatch.setattr(TlsConnection, "can_be_lent", False)
    sender = threading.Thread(target=client.socket.sendall, args=(client.encrypted(b"".join(map(framed, requests))),))
    sender.start()
    for body in requests:
        assert client.receive(len(body) + 4) == framed(body)
    sender.join(DEADLINE_SECONDS)
    until(lambda: not connection.is_lent, "the worker has left")


def test_the_loop_finds_the_end_that_a_worker_has_met(attended: tuple[Client, TlsConnection]) -> None:
    """A client that says goodbye may keep its socket open."""
    client, connection = attended
    client.socket.sendall(client.goodbye())
    until(lambda: connection.is_closed, "the connection is closed")


def test_the_loop_finds_the_error_that_a_worker_has_met(attended: tuple[Client, TlsConnection]) -> None:
    """OpenSSL says it once, and would wait for more data then."""
    client, connection = attended
    client.socket.sendall(b"\x17\x03\x03\0\x20" + bytes(32))
    until(lambda: connection.is_closed, "the connection is closed")


def test_no_worker_stays_while_another_client_with_tls_is_busy(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads that decrypt are slower than one."""
    monkeypatch.setattr(tls_channel, "ALONE_SECONDS", float("inf"))
    with serving_tls(echo, certificates) as served, served.connect(certificates.client_context()) as client:
        lent: list[bool] = []
        connection = only_connection(served.served)
        lend = connection.processor.lend

        def note(who: Connection, is_lent: bool) -> None:
            lent.append(is_lent)
            lend(who, is_lent)

        monkeypatch.setattr(connection.processor, "lend", note)
        for number in range(20):
            send_frame(client, bytes([number]))
            assert receive_frame(client) == bytes([number])
        assert not lent


def test_who_received_last_is_alone_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until another one receives something."""
    monkeypatch.setattr(tls_channel, "ALONE_SECONDS", 8.0)
    now = 100.0
    latest = LatestReceiver(lambda: now)
    one, other = object(), object()
    latest.note(one)
    assert not latest.is_alone(one)
    now += 8
    assert latest.is_alone(one)
    latest.note(one)
    assert latest.is_alone(one)
    assert not latest.is_alone(other)
    latest.note(other)
    assert not latest.is_alone(one)
    latest.note(one)
    now += 7
    assert not latest.is_alone(one)
