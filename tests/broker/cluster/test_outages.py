"""What becomes of a session while its server is away, frozen or silent; each test has a server of its own."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.broker.sessions import TIMEOUT_S, expire, session
from tests.kit.waiting import until
from tests.kit.zookeeper import ZooKeeperServer

from ottla.broker.cluster.operations import SessionExpiredError, ZooKeeperUnavailableError
from ottla.broker.cluster.zookeeper import SessionState, ZooKeeper

# The shortest timeout that the server grants.
SHORT_MS = 1_000


class Observed:
    """A session, with all the states that it was in."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self.zookeeper = zookeeper
        self.states: list[SessionState] = []
        self._changed = threading.Condition()
        zookeeper.on_state = self._note

    def _note(self, state: SessionState) -> None:
        with self._changed:
            self.states.append(state)
            self._changed.notify_all()

    def wait_for(self, state: SessionState) -> None:
        """Wait until the session is in a state."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.states[-1:] == [state], TIMEOUT_S), self.states


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """A server that a test may stop."""
    with ZooKeeperServer(tmp_path) as server:
        yield server


@pytest.fixture
def observe(server: ZooKeeperServer) -> Iterator[Callable[[int], Observed]]:
    """Opens sessions with a timeout."""
    opened: list[ZooKeeper] = []

    def connect(session_timeout_ms: int) -> Observed:
        zookeeper = session(server.connect, session_timeout_ms=session_timeout_ms)
        observed = Observed(zookeeper)
        zookeeper.start()
        opened.append(zookeeper)
        return observed

    yield connect
    for each in opened:
        each.close()


Observe = Callable[[int], Observed]


def test_calls_survive_a_restart_of_the_server(server: ZooKeeperServer, observe: Observe) -> None:
    """A call during a short outage waits, and the session goes on."""
    observed = observe(30_000)
    zookeeper = observed.zookeeper
    session_id = zookeeper.session_id
    zookeeper.create("/mine", b"1", ephemeral=True)
    server.kill()
    observed.wait_for(SessionState.SUSPENDED)
    assert zookeeper.is_session_sure
    results: list[bytes] = []
    read = threading.Thread(target=lambda: results.append(zookeeper.read("/mine").data))
    read.start()
    server.start()
    read.join(TIMEOUT_S)
    assert results == [b"1"]
    assert zookeeper.session_id == session_id


def test_watches_are_called_when_the_connection_is_back(server: ZooKeeperServer, observe: Observe) -> None:
    """They may have missed something, and whoever looks then gets an answer."""
    observed = observe(30_000)
    zookeeper = observed.zookeeper
    states: list[SessionState] = []
    called = threading.Event()

    def watch() -> None:
        states.append(zookeeper.state)
        called.set()

    zookeeper.exists("/a", watch)
    server.kill()
    observed.wait_for(SessionState.SUSPENDED)
    server.start()
    assert called.wait(TIMEOUT_S)
    assert states == [SessionState.CONNECTED]


class Relay:
    """A port that passes connections on to a server, or accepts them and says nothing."""

    def __init__(self, server: ZooKeeperServer) -> None:
        self._server = (server.host, server.port)
        self._listener = socket.create_server((server.host, 0))
        self.address = f"{server.host}:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []
        # How many of the next connections are left alone, and how many were.
        self.silent = 0
        self.left_alone = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._open.append(client)
                if self.left_alone < self.silent:
                    self.left_alone += 1
                    continue
                server = socket.create_connection(self._server)
                self._open.append(server)
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """End all connections."""
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the threads."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self.cut()
        for each in (self._listener, *self._open):
            each.close()


def test_a_server_that_never_answers_does_not_use_up_the_session(server: ZooKeeperServer) -> None:
    """A connection that is accepted and left alone is given up in time for another."""
    with closing(Relay(server)) as relay, closing(session(relay.address, session_timeout_ms=12_000)) as zookeeper:
        observed = Observed(zookeeper)
        zookeeper.start()
        session_id = zookeeper.session_id
        relay.silent = 1
        relay.cut()
        until(lambda: relay.left_alone, "a connection that is left alone")
        observed.wait_for(SessionState.CONNECTED)
        assert zookeeper.session_id == session_id
        assert SessionState.IN_DOUBT not in observed.states


def test_a_session_in_doubt_goes_on_when_the_server_is_back(server: ZooKeeperServer, observe: Observe) -> None:
    """An outage longer than the session timeout ends no session by itself: the server was not there to end it."""
    # A server that has just started ends the sessions that do not come back within their timeout.
    observed = observe(4 * SHORT_MS)
    zookeeper = observed.zookeeper
    session_id = zookeeper.session_id
    zookeeper.create("/mine", ephemeral=True)
    server.kill()
    observed.wait_for(SessionState.IN_DOUBT)
    assert not zookeeper.is_session_sure
    server.start()
    assert zookeeper.read("/mine").stat.ephemeral_owner == session_id
    assert SessionState.EXPIRED not in observed.states


def test_calls_wait_for_a_session_in_doubt_up_to_their_deadline(server: ZooKeeperServer, observe: Observe) -> None:
    """They neither fail at once nor wait for ever."""
    observed = observe(SHORT_MS)
    server.kill()
    observed.wait_for(SessionState.IN_DOUBT)
    begun = time.monotonic()
    with pytest.raises(ZooKeeperUnavailableError):
        observed.zookeeper.read("/")
    assert time.monotonic() - begun >= 2 * SHORT_MS / 1000
    assert observed.zookeeper.state is SessionState.IN_DOUBT


def test_a_session_in_doubt_that_the_server_does_not_know_is_expired(server: ZooKeeperServer, observe: Observe) -> None:
    """The doubt ends with the server's word."""
    observed = observe(SHORT_MS)
    zookeeper = observed.zookeeper
    expired = threading.Event()
    zookeeper.on_expired = expired.set
    session_id = zookeeper.session_id
    server.kill()
    observed.wait_for(SessionState.IN_DOUBT)
    assert not expired.is_set()
    shutil.rmtree(server.folder / "data")
    server.start()
    assert expired.wait(TIMEOUT_S)
    assert not zookeeper.is_session_sure
    with pytest.raises(SessionExpiredError):
        zookeeper.read("/")
    zookeeper.renew_session()
    assert zookeeper.session_id != session_id
    assert zookeeper.is_session_sure


def test_a_frozen_server_puts_the_session_in_doubt(server: ZooKeeperServer, observe: Observe) -> None:
    """Nothing is refused, nothing is answered; the timeout counts from the last word that arrived."""
    observed = observe(2 * SHORT_MS)
    zookeeper = observed.zookeeper
    zookeeper.read("/")
    asked = time.monotonic()
    server.pause()
    try:
        observed.wait_for(SessionState.IN_DOUBT)
        # A silent connection is given up after three quarters of the timeout. To wait for all of it from there would be
        # to lead on while others have been told that we are gone.
        assert time.monotonic() - asked < 1.5 * 2 * SHORT_MS / 1000
        assert not zookeeper.is_session_sure
    finally:
        server.resume()


def test_a_server_that_is_slow_to_answer_keeps_its_connections(server: ZooKeeperServer, observe: Observe) -> None:
    """kazoo would leave when the second ping is due, and come back when the server has least time for it."""
    observed = observe(2 * SHORT_MS)
    assert observed.zookeeper._client is not None
    connection = observed.zookeeper._client._connection
    # This test is about the pings; how long a server may be silent is another one's business.
    connection.heartbeats.silence_s_max = float(TIMEOUT_S)
    server.pause()
    try:
        until(lambda: len(connection.heartbeats) >= 2, "two pings without an answer")
    finally:
        server.resume()
    until(lambda: not len(connection.heartbeats), "their answers")
    assert SessionState.SUSPENDED not in observed.states


def test_the_session_is_sure_as_long_as_requests_arrive(server: ZooKeeperServer, observe: Observe) -> None:
    """Pings and calls both show that it lives; the end is known at once when a server tells it."""
    observed = observe(2 * SHORT_MS)
    zookeeper = observed.zookeeper
    end = time.monotonic() + 3 * SHORT_MS / 1000
    while time.monotonic() < end:
        zookeeper.read("/")
        assert zookeeper.is_session_sure
    client = zookeeper._client
    assert client is not None
    before = client.sure_until

    def is_pinged() -> bool:
        assert zookeeper.is_session_sure
        return client.sure_until > before

    until(is_pinged, "a ping")
    expire(zookeeper)
    assert not zookeeper.is_session_sure


def test_a_broker_knows_how_lately_a_server_has_heard_it(server: ZooKeeperServer, observe: Observe) -> None:
    """It knows that long before the session is in doubt."""
    zookeeper = observe(30_000).zookeeper
    zookeeper.read("/")
    assert zookeeper.was_heard_within(TIMEOUT_S)
    server.pause()
    try:
        until(lambda: not zookeeper.was_heard_within(0.2), "silence")
        assert zookeeper.is_session_sure
    finally:
        server.resume()
    zookeeper.read("/")
    assert zookeeper.was_heard_within(TIMEOUT_S)
    expire(zookeeper)
    assert not zookeeper.was_heard_within(TIMEOUT_S)


def test_an_answer_that_waited_unread_proves_only_what_held_when_it_was_asked_for(
    observe: Observe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was frozen finds old answers when it wakes, and may have been replaced meanwhile."""
    zookeeper = observe(SHORT_MS).zookeeper
    assert zookeeper._client is not None
    connection = zookeeper._client._connection
    read_socket = connection._read_socket
    woken, taken = threading.Event(), threading.Event()
    known: list[tuple[float, float]] = []

    def read_late(read_timeout: float) -> object:
        woken.wait(TIMEOUT_S)
        answer = read_socket(read_timeout)
        known.append((connection.sure_until, time.monotonic()))
        taken.set()
        return answer

    monkeypatch.setattr(connection, "_read_socket", read_late)
    # Whatever was asked meanwhile was asked in the first of these two timeouts.
    while time.monotonic() < connection.sure_until + SHORT_MS / 1000:
        woken.wait(0.05)
    assert not zookeeper.is_session_sure
    woken.set()
    assert taken.wait(TIMEOUT_S)
    sure_until, now = known[0]
    assert sure_until < now
