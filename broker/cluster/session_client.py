"""kazoo's client, changed to keep a session as long as possible and to know how long the session is sure to live."""

from __future__ import annotations

import ssl
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.exceptions import AuthFailedError  # type: ignore[import-untyped]
from kazoo.handlers.threading import SequentialThreadingHandler  # type: ignore[import-untyped]
from kazoo.protocol.connection import ConnectionDropped, ConnectionHandler  # type: ignore[import-untyped]

from ottla.broker.cluster.zookeeper_login import NO_LOGIN, DigestLogin, ZooKeeperLogin

# A server that has just started may accept a connection and never answer on it, and a cut network does not answer
# either. One such attempt must leave time for others within the session; kazoo would give it the whole session timeout.
_ATTEMPTS_PER_SESSION_TIMEOUT: Final = 4
# The pause between two attempts leaves time for several attempts in a session.
_PAUSE_SECONDS_MAX: Final = 1.0
_PAUSES_PER_SESSION_TIMEOUT: Final = 6
# How long a server may say nothing before the connection is given up, as a share of the session timeout. The rest is
# enough for one attempt to reach another server.
_SILENCE_SHARE: Final = 0.75


class SessionClient(KazooClient):  # type: ignore[misc]
    """A client of an ensemble, for one session."""

    def __init__(self, servers: Sequence[str], session_timeout_s: float, login: ZooKeeperLogin = NO_LOGIN) -> None:
        pause_s_max = min(_PAUSE_SECONDS_MAX, session_timeout_s / _PAUSES_PER_SESSION_TIMEOUT)
        super().__init__(
            hosts=",".join(servers),
            timeout=session_timeout_s,
            connection_retry={"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": pause_s_max},
            handler=_Handler(login),
        )
        self._connection = _Connection(self, login.digest)
        # Whether ZooKeeper has refused our user and password. Set by kazoo's thread before the state changes.
        self.is_login_refused = False

    @property
    def failure(self) -> str:
        """Why the last attempt to connect failed; empty if none did."""
        failure: str = self.handler.failure
        return failure

    @property
    def heard_at(self) -> float:
        """When the newest request that is known to have reached a server was sent, by the monotonic clock."""
        return self._connection.heard_at

    @property
    def sure_until(self) -> float:
        """The time, by the monotonic clock, before which no server can have ended the session."""
        return self._connection.sure_until


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads, with a shorter timeout for opening connections, and our own TLS."""

    def __init__(self, login: ZooKeeperLogin) -> None:
        super().__init__()
        self._tls = login.tls
        # Why the last attempt to connect failed, in words. Changed by kazoo's thread.
        self.failure = ""

    def create_connection(self, *args: Any, timeout: float, hostname: str | None = None, **options: Any) -> Any:
        try:
            return self._connection(
                *args, timeout=timeout / _ATTEMPTS_PER_SESSION_TIMEOUT, hostname=hostname, **options
            )
        except OSError as error:
            self.failure = str(error)
            raise

    def _connection(self, *args: Any, timeout: float, hostname: str | None, **options: Any) -> Any:
        context = None if self._tls is None else self._tls()
        plain = super().create_connection(*args, timeout=timeout, **options)
        if context is None:
            return plain
        try:
            plain.settimeout(timeout)
            return context.wrap_socket(plain, server_hostname=hostname)
        except BaseException:
            plain.close()
            raise

    def select(self, *args: Any, **kwargs: Any) -> Any:
        """Wait as kazoo does. Data that TLS has decrypted already is ready too, and no selector knows of it."""
        decrypted = [each for each in args[0] if isinstance(each, ssl.SSLSocket) and each.pending()]
        if not decrypted:
            return super().select(*args, **kwargs)
        others = [each for each in args[0] if each not in decrypted]
        readable, writable, failed = super().select(others, *args[1:3], 0)
        return [*decrypted, *readable], writable, failed


class Heartbeats:
    """The pings that wait for an answer, in place of the event by which kazoo knows of one.

    kazoo gives up a connection if a ping is not answered when the next one is due: after 0.3 to 0.7 s if the session
    timeout is 2 s. A server that waits for a disk or a processor would lose all its clients, and they would connect
    again all at once, when it has least time for them. So a ping is overdue only when the server has said nothing for
    most of the session timeout; until then further pings follow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # When each unanswered ping was sent. Servers answer them in order.
        self._sent: deque[float] = deque()
        self._heard = 0.0
        self.silence_s_max = 0.0
        # When the ping that was answered last was sent.
        self.answered = 0.0

    def __len__(self) -> int:
        return len(self._sent)

    def begin(self, silence_s_max: float) -> None:
        """Start again on a new connection, on which the server has just said something."""
        self._sent.clear()
        self.silence_s_max = silence_s_max
        self.heard()

    def heard(self) -> None:
        """Note that the server has said something."""
        self._heard = self._clock()

    # What kazoo calls.

    def set(self) -> None:
        """Note that a ping is sent."""
        self._sent.append(self._clock())

    def clear(self) -> None:
        """Note that a ping is answered. On a new connection, and when it is given up, there is nothing to note."""
        if self._sent:
            self.answered = self._sent.popleft()

    def is_set(self) -> bool:
        """Whether a ping is overdue. kazoo asks when it has heard nothing since the last one, and gives up if so."""
        return bool(self._sent) and self._clock() - self._heard >= self.silence_s_max


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection, which also knows until when the session is sure to live.

    Servers keep a session for its timeout after the last request that reached one of them. An answer shows that its
    request arrived. The timeout counts from when the request was sent, because the process may have been frozen while
    the answer waited.
    """

    def __init__(self, client: KazooClient, login: DigestLogin | None) -> None:
        super().__init__(client, client._conn_retry.copy(), logger=client.logger, sasl_options=_sasl_options(login))
        # Changed by kazoo's thread; any thread may read them.
        self.heard_at = self.sure_until = 0.0
        self._session_timeout_s = 0.0
        # When each request that waits for an answer was sent, in the order of kazoo's `_pending`.
        self._sent: deque[float] = deque()
        self.ping_outstanding = self.heartbeats = Heartbeats()

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        """Ask for the session; the server may grant another timeout than the one we asked for."""
        sent = time.monotonic()
        timeout = min(timeout, self.client._session_timeout / 1000 / _ATTEMPTS_PER_SESSION_TIMEOUT)
        answer = super()._invoke(timeout, request, xid)
        granted_ms = getattr(answer[0], "time_out", 0) if isinstance(answer, tuple) else 0
        if granted_ms > 0:
            self._session_timeout_s = granted_ms / 1000
            self._sent.clear()
            self.heartbeats.begin(self._session_timeout_s * _SILENCE_SHARE)
            self._arrived(sent)
        return answer

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        """Log in. A connection that is lost meanwhile says nothing about our password, although kazoo thinks so."""
        try:
            super()._authenticate_with_sasl(host, timeout)
        except AuthFailedError as error:
            if isinstance(error.__cause__, ConnectionDropped):
                raise error.__cause__ from None
            self.client.is_login_refused = True
            raise

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        now, before = time.monotonic(), len(self.client._pending)
        super()._send_request(read_timeout, connect_timeout)
        if len(self.client._pending) > before:
            self._sent.append(now)

    def _read_socket(self, read_timeout: float) -> Any:
        requests, pings = len(self.client._pending), len(self.heartbeats)
        answer = super()._read_socket(read_timeout)
        self.heartbeats.heard()
        if len(self.client._pending) < requests:
            self._arrived(self._sent.popleft())
        elif len(self.heartbeats) < pings:
            self._arrived(self.heartbeats.answered)
        return answer

    def _arrived(self, sent: float) -> None:
        self.heard_at = max(self.heard_at, sent)
        self.sure_until = max(self.sure_until, sent + self._session_timeout_s)


def _sasl_options(login: DigestLogin | None) -> dict[str, str] | None:
    if login is None:
        return None
    return {"mechanism": "DIGEST-MD5", "username": login.username, "password": login.password}
